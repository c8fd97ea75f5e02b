"""The views that the rules of an audit read: one schema for each engine and for tests; and the limits of a run."""

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa

from kproxy.spark import batch_rows
from kproxy.txn.ids import TXN_BITS

_TIME: Final = pa.timestamp("us", tz="UTC")
_PLACE: Final = {"topic": pa.string(), "partition": pa.int32()}

#: ``audit_batches``: one row for each record batch, as ``records.as=batches`` has it.
BATCHES: Final = batch_rows.SCHEMA
#: What is read of a record before ``content.digest`` makes it small, and of the transaction log.
PLAIN: Final = pa.schema({"key": pa.binary(), "value": pa.binary(), **_PLACE, "offset": pa.int64(), "timestamp": _TIME})
#: ``audit_records``: one row for each record that a read_committed consumer sees, made by ``content.digest``.
RECORDS: Final = pa.schema(
    {**_PLACE, "offset": pa.int64(), "timestamp": _TIME, "content": pa.int64(), "duplicate_key": pa.string()}
)
#: ``audit_spans``: one row for each partition. From ``start`` to ``end`` is judged; from ``reread`` on is context.
SPANS: Final = pa.schema({**_PLACE, **dict.fromkeys(("log_start", "reread", "start", "end", "stable"), pa.int64())})
#: ``audit_carried``: the highest sequence of a producer in a partition, from a former run; ``shown``: of what readers
#: see.
CARRIED: Final = pa.schema(
    {
        **_PLACE,
        "producer_id": pa.int64(),
        "producer_epoch": pa.int32(),
        "shown": pa.bool_(),
        "last_offset": pa.int64(),
        "last_sequence": pa.int32(),
        "at": _TIME,
    }
)
#: ``audit_facts``: what the transaction log says, one row for each fact (``log_fold``).
FACTS: Final = pa.schema(
    {
        **dict.fromkeys(("fact", "transactional_id", "state", "member", "client_id", "instance_id"), pa.string()),
        "producer_id": pa.int64(),
        "producer_epoch": pa.int32(),
        "batch_id": pa.string(),
        **_PLACE,
        "offset": pa.int64(),
        "bound": pa.int64(),
        "group_id": pa.string(),
        "generation": pa.int32(),
        "at": _TIME,
        "log_partition": pa.int32(),
        "log_offset": pa.int64(),
        "detail": pa.string(),
    }
)
#: ``audit_fetched``: what the groups' coordinators answer to OffsetFetch.
FETCHED: Final = pa.schema({"group_id": pa.string(), **_PLACE, "fetched_offset": pa.int64()})

#: Of rows of ``audit_batches``: readers see them now, or will if they are committed; others are never seen.
SHOWN: Final = "visibility in ('committed', 'undecided')"
#: Of rows with a producer id: it is one of kproxy's transactions (``txn.ids.is_transactional_producer_id``).
OF_KPROXY: Final = f"producer_id > 0 and (producer_id & {TXN_BITS}) = {TXN_BITS}"
#: ``audit_judged``: the batches that no former run has judged.
JUDGED: Final = """
    select /*+ broadcast(s) */ b.*
    from audit_batches b join audit_spans s on s.topic = b.topic and s.partition = b.partition
    where b.base_offset >= s.start"""


def table(schema: pa.Schema, rows: Iterable[Sequence[Any]]) -> pa.Table:
    """Rows as Arrow columns."""
    columns = list(zip(*rows, strict=True)) or [()] * len(schema)
    return pa.table([pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)], schema)


class Limits(NamedTuple):
    """How much is too much; times in ms."""

    now_ms: int
    window_ms: int = 600_000
    open_ms: int = 900_000
    prepared_ms: int = 3_600_000
    run_length: int = 3

    def age(self, moment: str) -> str:
        """SQL for the seconds from the time in a column until now."""
        return f"({1000 * self.now_ms} - unix_micros({moment})) / 1000000"
