"""From Arrow to the bytes of keys, values and headers."""

from datetime import UTC, datetime

import pyarrow as pa
import pytest
from pyspark.sql import types as spark_types
from pyspark.sql.types import DataType, StructType

from kproxy.spark.record_encoding import Rows
from kproxy.spark.sink_rows import columns_of, rows_of
from kproxy.spark.spark_errors import OptionError

_NOW = 1_700_000_000_000
_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
_STRING, _BINARY, _INT = spark_types.StringType(), spark_types.BinaryType(), spark_types.IntegerType()
_LONG, _TIMESTAMP = spark_types.LongType(), spark_types.TimestampType()
_HEADER_LIST = spark_types.ArrayType(StructType().add("key", _STRING).add("value", _BINARY))


def _told(topic: str, rows: Rows) -> tuple[object, ...]:
    assert rows.keys is not None
    assert rows.headers is not None
    assert rows.partitions is not None
    columns = (rows.values.to_pylist(), rows.keys.to_pylist(), rows.partitions.tolist())
    return topic, *columns, rows.times.tolist(), rows.headers.to_pylist()


def _schema(**columns: DataType) -> StructType:
    schema = StructType()
    for name, kind in columns.items():
        schema.add(name, kind)
    return schema


def test_all_columns() -> None:
    schema = _schema(
        key=_STRING,
        value=_BINARY,
        headers=_HEADER_LIST,
        topic=_STRING,
        partition=_INT,
        timestamp=_TIMESTAMP,
        other=_LONG,
    )
    columns = columns_of(schema, has_topic=False)
    made = pa.record_batch(
        {
            "key": pa.array(["kä", None]),
            "value": pa.array([b"v", None], pa.binary()),
            "headers": pa.array([[("h", b"1"), ("h", None)], None], _HEADERS),
            "topic": pa.array(["a", "b"]),
            "partition": pa.array([3, None], pa.int32()),
            "timestamp": pa.array([datetime(2020, 1, 1, 0, 0, 0, 1999, UTC), None], pa.timestamp("us", "UTC")),
            "other": pa.array([1.0, 2.0]),
        }
    )
    first, second = rows_of(made, columns, None, _NOW)
    assert _told(*first) == ("a", [b"v"], ["kä".encode()], [3], [1_577_836_800_001], [b"\4\2h\x021\2h\1"])
    assert _told(*second) == ("b", [None], [None], [-1], [_NOW], [b"\0"])


def test_the_option_goes_before_the_column() -> None:
    columns = columns_of(_schema(topic=_STRING, value=_STRING), has_topic=True)
    made = pa.record_batch({"topic": pa.nulls(2, pa.string()), "value": pa.array(["a", "b"])})
    [(topic, rows)] = rows_of(made, columns, "t", _NOW)
    assert (topic, rows.values.to_pylist()) == ("t", [b"a", b"b"])
    assert (rows.keys, rows.headers, rows.partitions, rows.times.tolist()) == (None, None, None, [_NOW, _NOW])


def test_rows_of_one_topic_stay_in_order() -> None:
    columns = columns_of(_schema(topic=_STRING, value=_STRING), has_topic=False)
    made = pa.record_batch({"topic": ["a", "b", "a", "b", "c"], "value": ["1", "2", "3", "4", "5"]})
    found = {topic: rows.values.to_pylist() for topic, rows in rows_of(made, columns, None, _NOW)}
    assert found == {"a": [b"1", b"3"], "b": [b"2", b"4"], "c": [b"5"]}


@pytest.mark.parametrize(
    ("columns", "has_topic", "message"),
    [
        ({"key": _STRING}, True, "column value: is needed"),
        ({"value": _INT}, True, "column value: is int and must be string or binary"),
        ({"value": _STRING}, False, "topic: name the topic by this option"),
        ({"value": _STRING, "topic": _BINARY}, False, "column topic: is binary"),
        ({"value": _STRING, "partition": _LONG}, True, "column partition: is bigint and must be int"),
        (
            {"value": _STRING, "headers": spark_types.MapType(_STRING, _BINARY)},
            True,
            "column headers: is map<string,binary>",
        ),
        ({"value": _STRING, "timestamp": _LONG}, True, "column timestamp: is bigint and must be timestamp"),
    ],
)
def test_what_is_wrong_with_the_columns_is_named(columns: dict[str, DataType], has_topic: bool, message: str) -> None:
    with pytest.raises(OptionError) as raised:
        columns_of(_schema(**columns), has_topic=has_topic)
    assert message in str(raised.value)


def test_what_a_row_must_have() -> None:
    columns = columns_of(_schema(value=_STRING, topic=_STRING), has_topic=False)
    with pytest.raises(OptionError, match="topic: is null in a row"):
        list(rows_of(pa.record_batch({"value": ["a"], "topic": pa.nulls(1, pa.string())}), columns, None, _NOW))
    columns = columns_of(_schema(value=_STRING, headers=_HEADER_LIST), has_topic=True)
    made = pa.record_batch({"value": ["a"], "headers": pa.array([[(None, b"1")]], _HEADERS)})
    with pytest.raises(OptionError, match="headers: the key"):
        list(rows_of(made, columns, "t", _NOW))
    columns = columns_of(_schema(value=_STRING, partition=_INT), has_topic=True)
    made = pa.record_batch({"value": ["a"], "partition": pa.array([-1], pa.int32())})
    with pytest.raises(OptionError, match="partition: is negative"):
        list(rows_of(made, columns, "t", _NOW))
