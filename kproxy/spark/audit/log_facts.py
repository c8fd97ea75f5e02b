"""The transaction log as DataFrames: its facts (``log_fold``), and each of its records.

A partition of the log is short (snapshots replace deleted records), so one task reads it in order and holds the same
state as kproxy itself. Nothing comes to the driver. Rows, not Arrow: for that PySpark would need pandas, too.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, TypeAlias

from pyspark.sql import DataFrame

from kproxy.spark.audit.log_fold import LogRecord, Row, decoded_row, fold_log
from kproxy.spark.audit.tables import FACTS

#: One row for each record of the log.
DECODED: Final = (
    "log_partition int, log_offset long, at timestamp, kind string, transactional_id string, producer_id long, "
    "producer_epoch int, committed boolean, text string"
)
Make: TypeAlias = Callable[[Iterable[Any]], Iterable[tuple[Any, ...]]]
_COLUMNS: Final = ("partition", "offset", "timestamp", "key", "value")


def log_facts(log: DataFrame, starts: Mapping[int, int], *, few: bool = False) -> DataFrame:
    """``FACTS`` from records of the log (partition, offset, timestamp, key, value); ``starts`` as in ``fold_log``.

    ``few``: as in ``made_of``.
    """
    starts = dict(starts)

    def fold(rows: Iterable[Any]) -> Iterator[tuple[Any, ...]]:
        return _tuples(fold_log(_records(rows), starts), FACTS)

    ordered = log.select(*_COLUMNS).repartition("partition").sortWithinPartitions("partition", "offset")
    return made_of(ordered, fold, FACTS, few=few)


def decoded_log(log: DataFrame, *, few: bool = False) -> DataFrame:
    """Each record of the log, decoded: ``DECODED``; ``few`` as in ``made_of``."""

    def decode_all(rows: Iterable[Any]) -> Iterator[tuple[Any, ...]]:
        return _tuples(map(decoded_row, _records(rows)), DECODED)

    return made_of(log.select(*_COLUMNS), decode_all, DECODED, few=few)


def made_of(rows: DataFrame, make: Make, schema: str, *, few: bool) -> DataFrame:
    """What a function in Python makes of the rows of each task; ``few``: of all rows, on the driver."""
    made: Any = list(make(rows.collect())) if few else rows.rdd.mapPartitions(make)
    return rows.sparkSession.createDataFrame(made, schema, verifySchema=False)


def _records(rows: Iterable[Any]) -> Iterator[LogRecord]:
    for partition, offset, at, key, value in rows:
        yield partition, offset, at, _bytes(key), _bytes(value)


def _bytes(field: bytes | bytearray | None) -> bytes | None:
    return None if field is None else bytes(field)


def _tuples(rows: Iterable[Row], schema: str) -> Iterator[tuple[Any, ...]]:
    """Rows in the order of the schema; missing columns are null."""
    names = [word.split()[0] for word in schema.split(", ")]
    return (tuple(row.get(name) for name in names) for row in rows)
