"""Sequences of idempotent producers: those that occur twice, and those that are missing (KIP-98).

A producer numbers its records in each partition, from 0 for each epoch; after 2^31-1 comes 0 again. So in the order of
offsets the batches of one (producer id, epoch) follow each other without a hole and never go back. Batches that no
reader sees (aborted, or a copy that does not count) use up sequences, but repeat nothing.
"""

from typing import Final

from kproxy.spark.audit.tables import SHOWN, Limits

_CYCLE: Final = 1 << 31
_HALF: Final = 1 << 30
PRODUCER: Final = "topic, partition, producer_id, producer_epoch"
_IN_ORDER: Final = f"partition by {PRODUCER} order by base_offset"
_EARLIER: Final = f"{_IN_ORDER} rows between unbounded preceding and 1 preceding"

#: ``audit_numbered``: judged batches and what is carried over, with sequences without wraps (``first_number``,
#: ``last_number``) and the highest before; ``highest_shown_before`` is that of batches which readers see.
#: A jump of more than half a cycle is a wrap.
NUMBERED: Final = f"""
    with sequenced as (
      select {PRODUCER}, {SHOWN} as shown, base_offset, last_offset, base_sequence, last_sequence, max_timestamp as at,
        false as carried
      from audit_judged where producer_id >= 0 and base_sequence >= 0 and not is_control
      union all
      select {PRODUCER}, shown, last_offset, last_offset, last_sequence, last_sequence, c.at, true
      from audit_carried c
    ), followed as (
      select *, lag(base_sequence) over ({_IN_ORDER}) as former_base,
        lag(last_sequence) over ({_IN_ORDER}) as former_last
      from sequenced
    ), turned as (
      select *,
        case when cast(base_sequence as bigint) - former_last < -{_HALF} then 1
             when cast(base_sequence as bigint) - former_last > {_HALF} then -1 else 0 end
        + case when former_last < former_base then 1 else 0 end as turn
      from followed
    ), begun as (
      select *, base_sequence + {_CYCLE} * cast(sum(turn) over ({_IN_ORDER}) as bigint) as first_number from turned
    ), ended as (
      select *, first_number + (cast(last_sequence as bigint) - base_sequence + {_CYCLE}) % {_CYCLE} as last_number
      from begun
    )
    select *,
      max(last_number) over ({_EARLIER}) as highest_before,
      max(case when shown then last_number end) over ({_EARLIER}) as highest_shown_before,
      min(case when shown and not carried then base_offset end) over (partition by {PRODUCER}, first_number) as found_at
    from ended"""


def duplicate_sequences(_: Limits) -> str:
    """Batches that readers see whose sequences were there before, whole or in part."""
    return f"""
    select {PRODUCER}, base_offset as first_offset, base_offset + repeated - 1 as last_offset, base_sequence,
      last_sequence, repeated, case when found_at < base_offset then found_at end as earlier_offset, d.at
    from (
      select *, least(last_number, highest_shown_before) - first_number + 1 as repeated
      from audit_numbered where not carried and shown and first_number <= highest_shown_before
    ) d"""


def sequence_gaps(_: Limits) -> str:
    """Batches that readers see before which sequences are missing.

    Not where compaction has been at work: it leaves holes. The first batch of a producer counts if the partition has
    lost nothing yet.
    """
    return f"""
    with whole as (
      select s.topic, s.partition from audit_spans s where s.log_start = 0 and s.start = 0
    ), compacted as (
      select distinct topic, partition from audit_batches
      where not is_control and records < last_offset - base_offset + 1
    ), counted as (
      select /*+ broadcast(w) */ n.*,
        n.first_number - case when w.topic is null then n.highest_before else coalesce(n.highest_before, -1) end - 1
          as missing
      from audit_numbered n left join whole w on w.topic = n.topic and w.partition = n.partition
      where not exists (select 1 from compacted c where c.topic = n.topic and c.partition = n.partition)
    )
    select {PRODUCER}, base_offset, cast(((first_number - missing) % {_CYCLE} + {_CYCLE}) % {_CYCLE} as int)
      as first_missing_sequence, missing, base_sequence, c.at
    from counted c where not carried and shown and missing > 0"""
