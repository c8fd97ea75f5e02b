from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest

from kproxy.codec._generated.fetch import (
    FetchRequest,
    FetchResponse,
    FetchResponseFetchableTopicResponse,
    FetchResponsePartitionData,
)
from kproxy.codec.batch import Record, build_batch
from kproxy.codec.messages import ApiKey
from kproxy.spark.batch_rows import read_batches
from kproxy.spark.fetching import Range, Reading, end_offset
from kproxy.spark.kafka_cluster import TopicPartition
from kproxy.spark.spark_errors import KafkaError
from kproxy.testing.fake_broker import Answer
from kproxy.txn.ids import TXN_BITS
from tests.codec.message_sets import message_set
from tests.spark.fake_cluster import Fake, fake_cluster

T = TopicPartition("t", 0)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _ms(number: int) -> datetime:
    return _EPOCH + timedelta(milliseconds=number)


def _batch(base_offset: int, producer: int = -1, **fields: Any) -> bytes:
    records = [Record(number, 1000 + number, b"k", b"v") for number in range(5)]
    epoch, sequence = (0, 0) if producer >= 0 else (-1, -1)
    fields = {"producer_id": producer, "producer_epoch": epoch, "base_sequence": sequence, **fields}
    return bytes(build_batch(records, base_offset=base_offset, **fields))


def _answer(records: bytes) -> Answer:
    row = FetchResponsePartitionData(partition_index=0, records=records, high_watermark=1000)
    return Answer(FetchResponse(responses=[FetchResponseFetchableTopicResponse(topic="t", partitions=[row])]))


class Log:
    """What a leader answers to Fetch: batch by batch, and to readers of committed data not all."""

    def __init__(self, batches: dict[int, bytes], hidden: set[int]) -> None:
        self._batches = batches
        self._hidden = hidden
        self.asked: list[tuple[int, int]] = []

    def answer(self, call: Any) -> Answer:
        request: FetchRequest = call.request
        committed = request.isolation_level
        offset = request.topics[0].partitions[0].fetch_offset
        self.asked.append((committed, offset))
        hidden = self._hidden if committed else set()
        left = (at for at, data in self._batches.items() if end_offset(data, 0) > offset and at not in hidden)
        records = self._batches.get(min(left, default=-1), b"")
        return _answer(records)


@pytest.fixture
def fake() -> Iterator[Fake]:
    with fake_cluster() as running:
        with running.client() as client:
            client.create_topic("t")
        yield running


def _read(fake: Fake, start: int, end: int, stable: int) -> list[dict[str, Any]]:
    how = Reading(committed=False, fail_on_data_loss=True, fetch_bytes=1 << 20, patience_s=20)
    found = list(read_batches(fake.cluster, Range(T, start, end), stable, how))
    return pa.Table.from_batches(found).to_pylist() if found else []


def test_every_column(fake: Fake) -> None:
    batch = _batch(10, 7, codec=4, timestamp_type=1, base_sequence=2**31 - 2)
    fake.on(ApiKey.FETCH, Log({10: batch}, set()).answer)
    (row,) = _read(fake, 10, 15, 15)
    assert row == {
        "topic": "t",
        "partition": 0,
        "base_offset": 10,
        "last_offset": 14,
        "records": 5,
        "producer_id": 7,
        "producer_epoch": 0,
        "base_sequence": 2**31 - 2,
        "last_sequence": 2,
        "attributes": 12,
        "is_transactional": False,
        "is_control": False,
        "codec": "zstd",
        "timestamp_type": "LogAppendTime",
        "base_timestamp": _ms(1000),
        "max_timestamp": _ms(1004),
        "size_bytes": len(batch),
        "visibility": "committed",
    }


def test_who_may_see_what(fake: Fake) -> None:
    ours = TXN_BITS + 5
    control = bytes(
        build_batch([Record(0, 0, bytes(4), bytes(6))], base_offset=25, is_control=True, is_transactional=True)
    )
    batches = {
        0: _batch(0),
        5: _batch(5, ours),
        10: _batch(10, 3, is_transactional=True),
        15: _batch(15, ours),
        20: _batch(20, 3, is_transactional=True),
        25: control,
        26: _batch(26, ours),
        31: _batch(31),
    }
    fake.on(ApiKey.FETCH, Log(batches, {5, 20, 26, 31}).answer)
    rows = _read(fake, 0, 36, 26)
    assert [(row["base_offset"], row["visibility"]) for row in rows] == [
        (0, "committed"),
        (5, "aborted"),
        (10, "committed"),
        (15, "committed"),
        (20, "aborted"),
        (25, "control"),
        (26, "undecided"),
        (31, "undecided"),
    ]
    assert [row["base_offset"] for row in rows if row["is_transactional"]] == [5, 10, 15, 20, 25, 26]


def test_without_transactions_the_log_is_read_once(fake: Fake) -> None:
    log = Log({0: _batch(0), 5: _batch(5, 9)}, set())
    fake.on(ApiKey.FETCH, log.answer)
    assert [row["visibility"] for row in _read(fake, 0, 10, 10)] == ["committed"] * 2
    assert all(not committed for committed, _ in log.asked)


def test_each_batch_is_in_one_range_only(fake: Fake) -> None:
    fake.on(ApiKey.FETCH, Log({base: _batch(base) for base in range(0, 40, 5)}, set()).answer)
    for cuts in ([0, 40], [0, 7, 22, 40], [0, 5, 6, 7, 39, 40]):
        ranges = pairwise(cuts)
        found = [row["base_offset"] for start, end in ranges for row in _read(fake, start, end, 40)]
        assert found == list(range(0, 40, 5))


@pytest.mark.parametrize("codec", [0, 2])
@pytest.mark.parametrize("magic", [0, 1])
def test_old_formats_count_as_committed(fake: Fake, magic: int, codec: int) -> None:
    data = message_set([(5, b"a", b"1"), (9, None, b"2"), (7, b"c", None)], magic, codec, start=10)
    fake.on(ApiKey.FETCH, Log({10: data}, set()).answer)
    rows = _read(fake, 10, 13, 10)
    assert {row["visibility"] for row in rows} == {"committed"}
    assert sum(row["records"] for row in rows) == 3
    assert (rows[0]["base_offset"], rows[-1]["last_offset"]) == (10, 12)
    assert {row["timestamp_type"] for row in rows} == {"CreateTime" if magic else "NoTimestampType"}
    assert (rows[0]["base_timestamp"], rows[0]["max_timestamp"]) == (
        (None, None) if not magic else (_ms(5), _ms(9 if codec else 5))
    )
    assert {row["codec"] for row in rows} == {"snappy" if codec else "none"}


def test_a_batch_that_contradicts_itself_is_reported_with_its_place(fake: Fake) -> None:
    batch = bytearray(_batch(10))
    batch[57:61] = (99).to_bytes(4)
    fake.on(ApiKey.FETCH, lambda call: _answer(bytes(batch)))
    with pytest.raises(KafkaError, match=r"t-0 at offset 10: no record set: .* contradicts itself"):
        _read(fake, 10, 15, 15)
