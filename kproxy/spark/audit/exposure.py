"""What is not protected, and what readers see: shares and sums by topic."""

from kproxy.spark.audit.tables import Limits


def protection() -> str:
    """For each topic: how much was written without a producer id, and so can be written twice by a retry.

    Such producers can't be told apart in the log; counted are the partitions that they wrote to.
    """
    return """
    with totals as (
      select topic,
        cast(sum(size_bytes) as bigint) as bytes,
        cast(sum(case when producer_id < 0 then size_bytes else 0 end) as bigint) as unprotected_bytes,
        cast(sum(records) as bigint) as records,
        cast(sum(case when producer_id < 0 then records else 0 end) as bigint) as unprotected_records,
        count(distinct case when producer_id >= 0 then producer_id end) as protected_producers,
        count(distinct case when producer_id < 0 then partition end) as unprotected_partitions,
        max(case when producer_id < 0 then max_timestamp end) as at
      from audit_judged where not is_control group by topic
    )
    select *, unprotected_bytes / bytes as unprotected_share from totals"""


def unprotected(_: Limits) -> str:
    """The topics of which a part is not protected."""
    return f"select * from ({protection()}) p where unprotected_bytes > 0"


def visibility() -> str:
    """For each topic: batches, records and bytes that are committed, aborted, undecided, or markers (control)."""
    return """
    select topic, visibility, count(*) as batches, cast(sum(records) as bigint) as records,
      cast(sum(size_bytes) as bigint) as bytes, min(base_timestamp) as oldest, max(max_timestamp) as newest
    from audit_judged group by topic, visibility"""


def stable_offsets() -> str:
    """For each partition: its last stable offset, and the records below and above it."""
    return """
    with counts as (
      select topic, partition,
        cast(sum(case when visibility <> 'undecided' then records else 0 end) as bigint) as records_below,
        cast(sum(case when visibility = 'undecided' then records else 0 end) as bigint) as records_above
      from audit_judged where not is_control group by topic, partition
    )
    select s.topic, s.partition, s.start, s.end as end, s.stable as stable_offset,
      coalesce(c.records_below, 0) as records_below, coalesce(c.records_above, 0) as records_above
    from audit_spans s left join counts c on c.topic = s.topic and c.partition = s.partition"""
