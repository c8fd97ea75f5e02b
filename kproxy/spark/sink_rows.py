"""Rows to be written: the columns of Spark's Kafka sink and a timestamp, as a topic's rows in Kafka's own bytes."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kproxy.spark.record_encoding import ANYWHERE, Rows, encoded_headers
from kproxy.spark.spark_errors import OptionError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_Numbers: TypeAlias = npt.NDArray[np.int64]

_TEXT: Final = ("string", "binary")
_HEADERS: Final = "array<struct<key:string,value:binary>>"
_TYPES: Final[dict[str, tuple[str, ...]]] = {
    "key": _TEXT,
    "value": _TEXT,
    "headers": (_HEADERS,),
    "topic": ("string",),
    "partition": ("int",),
    "timestamp": ("timestamp",),
}


@dataclass(frozen=True, slots=True)
class Columns:
    """Where each column is; what has another name is not written, as in Spark's Kafka sink."""

    value: int
    key: int | None
    headers: int | None
    topic: int | None
    partition: int | None
    timestamp: int | None


def columns_of(schema: "StructType", *, has_topic: bool) -> Columns:
    """Looks them up; ``has_topic``: an option says the topic, and goes before the column.

    OptionError names a column that is missing or of another type.
    """
    found: dict[str, int] = {}
    for index, field in enumerate(schema.fields):
        valid = _TYPES.get(field.name)
        if valid is None:
            continue
        given = field.dataType.simpleString()
        if given not in valid:
            raise OptionError(f"column {field.name}: is {given} and must be {' or '.join(valid)}")
        found[field.name] = index
    if "value" not in found:
        raise OptionError(f"column value: is needed, of type {' or '.join(_TEXT)}")
    if has_topic:
        found.pop("topic", None)
    elif "topic" not in found:
        raise OptionError("topic: name the topic by this option, or have a column topic of type string")
    return Columns(**{name: found.get(name) for name in _TYPES})  # type: ignore[arg-type]  # value was looked for


def rows_of(batch: pa.RecordBatch, columns: Columns, topic: str | None, now_ms: int) -> Iterator[tuple[str, Rows]]:
    """The rows of each topic, in order; ``topic``: that of all rows, before the column.

    ``now_ms``: the time of rows that have none. OptionError if a row has no topic, or a negative partition.
    """
    rows = _rows(batch, columns, now_ms)
    if topic is not None:
        yield topic, rows
        return
    assert columns.topic is not None
    column = batch.column(columns.topic)
    if column.null_count:
        raise OptionError("topic: is null in a row; each needs one, or name the topic by the option")
    named = column.dictionary_encode()
    places = named.indices.to_numpy(zero_copy_only=False)
    for index, name in enumerate(named.dictionary.to_pylist()):
        yield name, rows if len(named.dictionary) == 1 else rows.take(np.flatnonzero(places == index))


def _rows(batch: pa.RecordBatch, columns: Columns, now_ms: int) -> Rows:
    def of(index: int | None) -> pa.Array | None:
        return None if index is None else batch.column(index)

    key, headers, partition, timestamp = map(of, (columns.key, columns.headers, columns.partition, columns.timestamp))
    return Rows(
        values=_bytes(batch.column(columns.value)),
        keys=None if key is None else _bytes(key),
        headers=None if headers is None else _headers(headers),
        times=np.full(batch.num_rows, now_ms, np.int64) if timestamp is None else _timestamps(timestamp, now_ms),
        partitions=None if partition is None else _partitions(partition),
    )


def _bytes(column: pa.Array) -> pa.Array:
    return column.cast(pa.binary())  # text is UTF-8 in Arrow as it is in Kafka


def _partitions(column: pa.Array) -> _Numbers:
    if pc.any(pc.less(column, 0)).as_py():
        raise OptionError("partition: is negative in a row; null lets the key decide, else it counts from 0")
    return _numbers(pc.fill_null(column, ANYWHERE))


def _timestamps(column: pa.Array, now_ms: int) -> _Numbers:
    milliseconds = pc.cast(column, pa.timestamp("ms", column.type.tz), safe=False).cast(pa.int64())
    return _numbers(pc.fill_null(milliseconds, now_ms))


def _numbers(column: pa.Array) -> _Numbers:
    found: _Numbers = column.to_numpy(zero_copy_only=False).astype(np.int64)
    return found


def _headers(column: pa.Array) -> pa.Array:
    if pc.list_flatten(column).field("key").null_count:
        raise OptionError("headers: the key of a header is null in a row; Kafka has none such")
    return encoded_headers([row and [(header["key"], header["value"]) for header in row] for row in column.to_pylist()])
