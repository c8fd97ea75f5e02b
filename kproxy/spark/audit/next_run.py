"""What a run leaves to the next one, so that nothing is missed at the boundary between them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from kproxy.spark.audit.audit_state import PartitionProgress, State
from kproxy.spark.audit.engine import Engine
from kproxy.spark.audit.offset_spans import Span
from kproxy.spark.audit.sequences import PRODUCER
from kproxy.spark.audit.tables import CARRIED, Limits

#: Its directory, in that of the run.
CARRIED_TABLE: Final = "carried"


def load_carried(engine: Engine, out: Path, state: State | None) -> None:
    """View ``audit_carried``: what the last run left, whichever engine it had; empty if there was none."""
    if state is None:
        engine.put("audit_carried", CARRIED.empty_table())
    else:
        engine.load("audit_carried", out / f"run={state.run}" / CARRIED_TABLE, CARRIED)


def carry(oldest_ms: int) -> str:
    """The highest sequence of each producer below the last stable offset, from this run and those before.

    Producers that wrote nothing since ``oldest_ms`` are left out; those of partitions that this run did not look at
    stay as they are.
    """
    return f"""
    with found as (
      select /*+ broadcast(s) */ n.*,
        row_number() over (
          partition by n.topic, n.partition, producer_id, producer_epoch, shown
          order by last_number desc, base_offset desc) as place
      from audit_numbered n join audit_spans s on s.topic = n.topic and s.partition = n.partition
      where n.base_offset < greatest(s.start, s.stable)
    ), known as (
      select {PRODUCER}, shown, last_offset, last_sequence, f.at from found f where place = 1
      union all
      select {PRODUCER}, shown, last_offset, last_sequence, c.at from audit_carried c
      where not exists (select 1 from audit_spans s where s.topic = c.topic and s.partition = c.partition)
    )
    select * from known k where k.at is null or unix_micros(k.at) >= {1000 * oldest_ms}"""


def next_places(
    engine: Engine, limits: Limits, spans: Sequence[Span], state: State | None
) -> tuple[PartitionProgress, ...]:
    """Where the next run begins: at the last stable offset, for what is undecided is judged again.

    Partitions that this run was not asked for stay as they were.
    """
    near = engine.rows(
        f"""
        with newest as (
          select topic, partition, max(unix_micros(max_timestamp)) as micros
          from audit_batches group by topic, partition
        )
        select b.topic, b.partition, min(b.base_offset) as reread
        from audit_batches b join newest n on n.topic = b.topic and n.partition = b.partition
        where unix_micros(b.max_timestamp) >= n.micros - {1000 * limits.window_ms}
        group by b.topic, b.partition"""
    )
    reread = {(row["topic"], row["partition"]): int(row["reread"]) for row in near}
    offsets = {(span.topic, span.partition): max(span.start, span.stable) for span in spans}
    found = (PartitionProgress(*key, offset, min(reread.get(key, offset), offset)) for key, offset in offsets.items())
    former = state.places if state is not None else ()
    return (*found, *(place for place in former if (place.topic, place.partition) not in offsets))
