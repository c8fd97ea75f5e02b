"""From Arrow to the arguments of the producer."""

from datetime import UTC, datetime

import pyarrow as pa
import pytest
from pyspark.sql import types as spark_types
from pyspark.sql.types import DataType, StructType

from kproxy.spark.sink_rows import columns_of, rows_of
from kproxy.spark.spark_errors import OptionError

_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
_STRING, _BINARY, _INT = spark_types.StringType(), spark_types.BinaryType(), spark_types.IntegerType()
_LONG, _TIMESTAMP = spark_types.LongType(), spark_types.TimestampType()
_HEADER_LIST = spark_types.ArrayType(StructType().add("key", _STRING).add("value", _BINARY))


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
    assert list(rows_of(made, columns, None)) == [
        ("a", b"v", "kä".encode(), 3, None, None, 1_577_836_800_001, [("h", b"1"), ("h", None)]),
        ("b", None, None, -1, None, None, 0, None),
    ]


def test_the_option_goes_before_the_column_and_slices_lose_nothing() -> None:
    columns = columns_of(_schema(topic=_STRING, value=_STRING), has_topic=True)
    values = [str(number) for number in range(2500)]
    made = pa.record_batch({"topic": pa.nulls(2500, pa.string()), "value": pa.array(values)})
    rows = list(rows_of(made, columns, "t"))
    assert [row[1] for row in rows] == [value.encode() for value in values]
    assert {row[0] for row in rows} == {"t"}


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
        list(rows_of(pa.record_batch({"value": ["a"], "topic": pa.nulls(1, pa.string())}), columns, None))
    columns = columns_of(_schema(value=_STRING, headers=_HEADER_LIST), has_topic=True)
    made = pa.record_batch({"value": ["a"], "headers": pa.array([[(None, b"1")]], _HEADERS)})
    with pytest.raises(OptionError, match="headers: the key"):
        list(rows_of(made, columns, "t"))
