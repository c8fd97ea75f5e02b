"""Views made by hand: rows with defaults, so that a test says only what it is about.

Spark takes long for each question and little for each row. So the cases of a module are topics of one set of views,
each finding is asked for once of each engine, and a test looks at its own topic.
"""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias

import pyarrow as pa

from kproxy.spark.audit.audit_job import define_views
from kproxy.spark.audit.engine import Engine
from kproxy.spark.audit.tables import BATCHES, CARRIED, FACTS, FETCHED, RECORDS, SPANS, Limits, table
from kproxy.txn.ids import TXN_BITS

Row: TypeAlias = dict[str, Any]

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
NOW_MS = int(NOW.timestamp() * 1000)
LIMITS = Limits(NOW_MS)
OURS = TXN_BITS | 77
_CYCLE = 1 << 31


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


def batch(topic: str, offset: int = 0, records: int = 1, sequence: int | None = None, **columns: Any) -> Row:
    """A batch of producer 7, whose sequences are its offsets unless it is said otherwise."""
    base = offset if sequence is None else sequence
    row = {
        "topic": topic,
        "partition": 0,
        "base_offset": offset,
        "last_offset": offset + records - 1,
        "records": records,
        "producer_id": 7,
        "producer_epoch": 0,
        "base_sequence": base,
        "last_sequence": (base + records - 1) % _CYCLE if base >= 0 else -1,
        "attributes": 0,
        "is_transactional": False,
        "is_control": False,
        "codec": "none",
        "timestamp_type": "CreateTime",
        "base_timestamp": ago(60),
        "max_timestamp": ago(60),
        "size_bytes": 100 * records,
        "visibility": "committed",
    }
    return row | columns


def record(topic: str, offset: int, content: int, key: str | None = None, age: float = 60, partition: int = 0) -> Row:
    """A record so many seconds old; ``content`` stands for the hash of its bytes."""
    row = {"topic": topic, "partition": partition, "offset": offset, "timestamp": ago(age)}
    return row | {"content": content, "duplicate_key": key}


def span(topic: str, end: int = 1000, **columns: Any) -> Row:
    """All of a partition, from its first offset on."""
    row = {"topic": topic, "partition": 0, "log_start": 0, "reread": 0, "start": 0, "end": end, "stable": end}
    return row | columns


def fact(name: str, **columns: Any) -> Row:
    return {"fact": name, "at": ago(60), "log_partition": 0, "log_offset": 0, "transactional_id": "loader", **columns}


def tables(
    engine: Engine,
    *,
    batches: Iterable[Row] = (),
    records: Iterable[Row] = (),
    spans: Iterable[Row] = (),
    carried: Iterable[Row] = (),
    facts: Iterable[Row] = (),
    fetched: Iterable[Row] = (),
) -> Engine:
    """Gives the engine the views; a topic for which no span is given is checked from its first offset on."""
    batches, records, spans = list(batches), list(records), list(spans)
    named = {(row["topic"], row["partition"]) for row in spans}
    others = {(row["topic"], row["partition"]) for row in (*batches, *records)} - named
    spans += [span(topic, partition=partition) for topic, partition in sorted(others)]
    engine.put("audit_batches", rows(BATCHES, batches))
    engine.put("audit_records", rows(RECORDS, records))
    engine.put("audit_spans", rows(SPANS, spans))
    engine.put("audit_carried", rows(CARRIED, carried))
    engine.put("audit_facts", rows(FACTS, facts))
    engine.put("audit_fetched", rows(FETCHED, fetched))
    define_views(engine)
    return engine


def rows(schema: pa.Schema, given: Iterable[Row]) -> pa.Table:
    return table(schema, [tuple(row.get(name) for name in schema.names) for row in given])


class Found:
    """The rows of a finding."""

    def __init__(self, engine: Engine, sql: str) -> None:
        self._rows = engine.rows(sql)

    def of(self, topic: str, *names: str) -> list[tuple[Any, ...]]:
        """These columns of the rows of one topic, in order."""
        rows = [tuple(row[name] for name in names) for row in self._rows if row["topic"] == topic]
        return sorted(rows, key=str)

    def all(self, *names: str) -> list[tuple[Any, ...]]:
        """These columns of all rows, in order."""
        return sorted((tuple(row[name] for name in names) for row in self._rows), key=str)
