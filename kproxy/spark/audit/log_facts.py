"""Views of the transaction log: its facts (``log_fold``), and each of its records.

A partition of the log is short (snapshots replace deleted records), so one task reads it in order and holds the same
state as kproxy itself.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import pyarrow as pa

from kproxy.spark.audit.engine import Engine
from kproxy.spark.audit.log_fold import LogRecord, Row, decoded_row, fold_log
from kproxy.spark.audit.tables import FACTS

#: One row for each record of the log.
DECODED: Final = pa.schema(
    {
        "log_partition": pa.int32(),
        "log_offset": pa.int64(),
        "at": pa.timestamp("us", tz="UTC"),
        "kind": pa.string(),
        "transactional_id": pa.string(),
        "producer_id": pa.int64(),
        "producer_epoch": pa.int32(),
        "committed": pa.bool_(),
        "text": pa.string(),
    }
)
_RECORDS: Final = "select partition, l.offset, timestamp, key, value from audit_log l"


def make_facts(engine: Engine, starts: Mapping[int, int]) -> None:
    """View ``audit_facts`` from records of the log (view ``audit_log``); ``starts`` as in ``fold_log``."""
    starts = dict(starts)

    def fold(rows: Iterable[Any]) -> Iterator[tuple[Any, ...]]:
        return _tuples(fold_log(_records(rows), starts), FACTS)

    engine.make("audit_facts", _RECORDS, ("partition", "offset"), fold, FACTS)


def make_decoded(engine: Engine) -> None:
    """View ``audit_decoded``: each record of the log, for people and SQL (``DECODED``)."""

    def decode_all(rows: Iterable[Any]) -> Iterator[tuple[Any, ...]]:
        return _tuples(map(decoded_row, _records(rows)), DECODED)

    engine.make("audit_decoded", _RECORDS, (), decode_all, DECODED)


def _records(rows: Iterable[Any]) -> Iterator[LogRecord]:
    for partition, offset, at, key, value in rows:
        yield partition, offset, at, _bytes(key), _bytes(value)


def _bytes(field: bytes | bytearray | None) -> bytes | None:
    return None if field is None else bytes(field)


def _tuples(rows: Iterable[Row], schema: pa.Schema) -> Iterator[tuple[Any, ...]]:
    """Rows in the order of the schema; missing columns are null."""
    return (tuple(row.get(name) for name in schema.names) for row in rows)
