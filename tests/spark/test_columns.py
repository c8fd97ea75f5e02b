from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from kproxy.codec.batch import Record, build_batch
from kproxy.spark import batch_rows, columns
from kproxy.spark.columns import CHUNK_BYTES, MOST_MS, RecordColumns
from kproxy.spark.fetching import Range
from kproxy.spark.kafka_cluster import TopicPartition
from kproxy.spark.spark_errors import KafkaError
from tests.codec.message_sets import message_set

T = TopicPartition("topic", 3)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MOST = 1 << 24


def _read(data: bytes, start: int = 0, end: int = 1 << 40, *, headers: bool = False, most: int = _MOST) -> pa.Table:
    reader = RecordColumns(Range(T, start, end), with_headers=headers, max_decompressed_bytes=most)
    batches = [*reader.add(data), *reader.rest()]
    return pa.Table.from_batches(batches, columns.SCHEMA_WITH_HEADERS if headers else columns.SCHEMA)


def _records(count: int, start: int = 0, value: bytes = b"v") -> list[Record]:
    return [Record(start + number, 1000 + number, b"k%d" % number, value) for number in range(count)]


@pytest.mark.parametrize("schema", [columns.SCHEMA, columns.SCHEMA_WITH_HEADERS, batch_rows.SCHEMA])
def test_the_schema_is_what_spark_makes_of_it(schema: pa.Schema) -> None:
    assert to_arrow_schema(from_arrow_schema(schema), timezone="UTC").equals(schema)


@pytest.mark.parametrize("codec", range(5))
def test_every_column(codec: int) -> None:
    record = Record(0, 1234, None, b"v", (("h", b"x"), ("n", None)))
    batch = build_batch([record, Record(2, 1235, b"k", None)], base_offset=40, codec=codec)
    common = {"topic": "topic", "partition": 3, "timestampType": 0}
    first = {"key": None, "value": b"v", "offset": 40, "timestamp": _EPOCH + timedelta(milliseconds=1234)}
    second = {"key": b"k", "value": None, "offset": 42, "timestamp": _EPOCH + timedelta(milliseconds=1235)}
    headers = [{"key": "h", "value": b"x"}, {"key": "n", "value": None}]
    assert _read(bytes(batch)).to_pylist() == [{**common, **first}, {**common, **second}]
    with_headers = [{**common, **first, "headers": headers}, {**common, **second, "headers": None}]
    assert _read(bytes(batch), headers=True).to_pylist() == with_headers


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 60), st.integers(0, 60), st.sampled_from([1, 3, 20]))
def test_only_the_range_is_read(start: int, end: int, size: int) -> None:
    data = b"".join(bytes(build_batch(_records(size), base_offset=at)) for at in range(0, 60, size))
    assert _read(data, start, end)["offset"].to_pylist() == list(range(start, end))


def test_control_batches_and_empty_ones_are_passed_over() -> None:
    control = build_batch([Record(0, 0, bytes(4), bytes(6))], is_control=True, is_transactional=True)
    assert _read(bytes(control)).num_rows == 0
    assert _read(b"").num_rows == 0


def test_the_times_of_log_append_time_are_the_brokers() -> None:
    late = build_batch(_records(2), base_offset=2, timestamp_type=1)
    table = _read(bytes(build_batch(_records(2))) + bytes(late))
    assert table["timestampType"].to_pylist() == [0, 0, 1, 1]
    assert [(time - _EPOCH) // timedelta(milliseconds=1) for time in table["timestamp"].to_pylist()] == [
        1000,
        1001,
        1001,
        1001,
    ]


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", range(4))
def test_old_formats(magic: int, codec: int) -> None:
    triples = [(5, b"a", b"1"), (6, None, b"2"), (7, b"c", None)]
    table = _read(message_set(triples, magic, codec, start=10), 11, 13, headers=True)
    assert table["offset"].to_pylist() == [11, 12]
    assert table["key"].to_pylist() == [None, b"c"]
    assert table["value"].to_pylist() == [b"2", None]
    assert table["timestampType"].to_pylist() == [0 if magic else -1] * 2
    assert table["headers"].to_pylist() == [None, None]
    assert table["timestamp"].to_pylist()[1] == _EPOCH + timedelta(milliseconds=7 if magic else -1)


def test_times_beyond_reach_are_the_last_there_is() -> None:
    times = [5, 1_700_000_000_000_000_000, -(1 << 62)]
    batch = build_batch([Record(at, time, None, b"v") for at, time in enumerate(times)])
    column = _read(bytes(batch))["timestamp"].cast(pa.int64()).to_pylist()
    assert column == [5000, MOST_MS * 1000, -MOST_MS * 1000]


def test_arrow_batches_are_of_bounded_size_however_large_a_batch_is() -> None:
    value = bytes(1000)
    data = bytes(build_batch(_records(5000, value=value), codec=4))
    reader = RecordColumns(Range(T, 10, 4990), with_headers=False, max_decompressed_bytes=_MOST)
    found = [*reader.add(data), *reader.rest()]
    assert sum(batch.num_rows for batch in found) == 4980
    assert all(batch.nbytes < CHUNK_BYTES + 100_000 for batch in found)


def test_small_batches_are_put_together() -> None:
    reader = RecordColumns(Range(T, 0, 1 << 40), with_headers=False, max_decompressed_bytes=_MOST)
    for at in range(0, 1000, 10):
        assert not list(reader.add(build_batch(_records(10), base_offset=at)))
    assert [batch.num_rows for batch in reader.rest()] == [1000]


def _damaged(**changes: Any) -> bytes:
    data = build_batch(_records(3), base_offset=77, **changes)
    data[-2] ^= 1
    return bytes(data)


def test_what_can_not_be_read_is_reported_with_its_place() -> None:
    with pytest.raises(KafkaError, match="topic-3: batch at offset 77: its checksum is wrong"):
        _read(_damaged())
    with pytest.raises(KafkaError, match=r"topic-3: batch at offset 77: .* limit is 1000"):
        _read(bytes(build_batch(_records(3, value=bytes(500)), base_offset=77, codec=4)), most=1000)
    with pytest.raises(KafkaError, match="topic-3: batch at offset 10: entry"):
        _read(message_set([(1, None, b"x")], 1, 0, start=10)[:-1] + b"y")
