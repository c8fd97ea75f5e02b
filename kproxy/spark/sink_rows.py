"""Rows to be written: the columns of Spark's Kafka sink and a timestamp, from Arrow to the producer's arguments."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from kproxy.spark.spark_errors import OptionError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_Headers: TypeAlias = list[tuple[str, str | bytes | None]]
#: Arguments of ``confluent_kafka.Producer.produce`` in its order: topic, value, key, partition, no callbacks, timestamp
#: in ms (0: now) and headers.
Row: TypeAlias = tuple[str, bytes | None, bytes | None, int, None, None, int, _Headers | None]

#: So many rows are Python objects at once: memory does not grow with Spark's batches.
_SLICE_ROWS: Final = 1000
_ANY_PARTITION: Final = -1
_NOW: Final = 0

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


def rows_of(batch: pa.RecordBatch, columns: Columns, topic: str | None) -> Iterator[Row]:
    """The rows of a batch, in order; OptionError if one has no topic."""
    for start in range(0, batch.num_rows, _SLICE_ROWS):
        yield from _rows(batch.slice(start, _SLICE_ROWS), columns, topic)


def topics_of(batch: pa.RecordBatch, index: int) -> Sequence[str]:
    """The different topics in a column of a batch; OptionError if one is missing."""
    return _topics(pc.unique(batch.column(index)))


def _rows(batch: pa.RecordBatch, columns: Columns, topic: str | None) -> Iterator[Row]:
    def read(index: int | None, default: Any, convert: Callable[[pa.Array], Sequence[Any]]) -> Any:
        return repeat(default) if index is None else convert(batch.column(index))

    nothing = repeat(None)
    return zip(
        read(columns.topic, topic, _topics),
        _bytes(batch.column(columns.value)),
        read(columns.key, None, _bytes),
        read(columns.partition, _ANY_PARTITION, _partitions),
        nothing,
        nothing,
        read(columns.timestamp, _NOW, _timestamps),
        read(columns.headers, None, _headers),
        strict=False,  # constants have no end
    )


def _bytes(column: pa.Array) -> Sequence[bytes | None]:
    if pa.types.is_string(column.type):
        column = column.cast(pa.binary())  # text is UTF-8 in Arrow as it is in Kafka
    elif pa.types.is_large_string(column.type):
        column = column.cast(pa.large_binary())
    found: list[bytes | None] = column.to_pylist()
    return found


def _topics(column: pa.Array) -> Sequence[str]:
    if column.null_count:
        raise OptionError("topic: is null in a row; each needs one, or name the topic by the option")
    found: list[str] = column.to_pylist()
    return found


def _partitions(column: pa.Array) -> Sequence[int]:
    found: list[int] = pc.fill_null(column, _ANY_PARTITION).to_pylist()
    return found


def _timestamps(column: pa.Array) -> Sequence[int]:
    milliseconds = pc.cast(column, pa.timestamp("ms", column.type.tz), safe=False).cast(pa.int64())
    found: list[int] = pc.fill_null(milliseconds, _NOW).to_pylist()
    return found


def _headers(column: pa.Array) -> Sequence[_Headers | None]:
    if pc.list_flatten(column).field("key").null_count:
        raise OptionError("headers: the key of a header is null in a row; Kafka has none such")
    return [row and [(header["key"], header["value"]) for header in row] for row in column.to_pylist()]
