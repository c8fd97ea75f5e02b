"""Transactions that are torn, hang, or have producers of which the log knows nothing."""

from typing import Final

from kproxy.spark.audit.tables import OF_KPROXY, SHOWN, Limits

_PART: Final = "topic, partition, producer_id, producer_epoch"


def torn_transactions(_: Limits) -> str:
    """Partitions of committed transactions whose data are missing, in whole or in part.

    The decision names each partition that was written, and the offset after its last batch. Partitions are judged that
    end between start and end of the offsets read; their beginning is checked where the log still has it.
    """
    return f"""
    with named as (
      select /*+ broadcast(s) */ f.*, s.start
      from audit_facts f join audit_spans s on s.topic = f.topic and s.partition = f.partition
      where f.fact = 'decided' and f.offset > s.start and f.offset <= s.end
    ), found as (
      select {_PART}, max(last_offset) as last_offset, min(base_sequence) as first_sequence,
        cast(max(last_sequence) as bigint) - min(base_sequence) + 1
          - cast(sum(cast(last_sequence as bigint) - base_sequence + 1) as bigint) as holes,
        cast(sum(records) as bigint) as records
      from audit_batches b where {SHOWN} and not is_control
        and exists (select 1 from named n where n.producer_id = b.producer_id) group by {_PART}
    ), judged_parts as (
      select n.transactional_id, n.batch_id, n.topic, n.partition, n.producer_id, n.producer_epoch,
        case when d.last_offset is null then 'all is missing'
             when d.last_offset + 1 < n.offset then 'the end is missing'
             when d.holes > 0 then 'some in the middle is missing'
             when d.first_sequence > 0 and n.bound >= n.start then 'the beginning is missing' end as fault,
        n.offset as decided_end_offset, d.last_offset + 1 as found_end_offset, coalesce(d.records, 0) as found_records,
        n.at, n.log_partition
      from named n left join found d on d.topic = n.topic and d.partition = n.partition
        and d.producer_id = n.producer_id and d.producer_epoch = n.producer_epoch
    )
    select * from judged_parts where fault is not null"""


def open_transactions(limits: Limits) -> str:
    """Transactions with data in the topics that nobody has decided, and that are open for too long."""
    return _waiting(limits, "open", limits.open_ms)


def prepared_transactions(limits: Limits) -> str:
    """Parts with data in the topics that are prepared and wait for their decision for too long."""
    return _waiting(limits, "prepared", limits.prepared_ms)


def _waiting(limits: Limits, state: str, limit_ms: int) -> str:
    part = "transactional_id, member, client_id, instance_id, producer_id, producer_epoch, f.at"
    return f"""
    with parts as (
      select {part}, array_join(array_sort(array_agg(distinct topic)), ', ') as topics
      from audit_facts f
      where fact = 'part' and state = '{state}' and exists (select 1 from audit_spans s where s.topic = f.topic)
      group by {part}
    )
    select *, {limits.age("p.at")} as seconds from parts p where {limits.age("p.at")} >= {limit_ms} / 1000"""


def stuck_partitions(limits: Limits) -> str:
    """Partitions whose last stable offset has not moved for too long: whose first undecided batch is too old."""
    return f"""
    with undecided as (
      select *, row_number() over (partition by topic, partition order by base_offset) as place,
        cast(sum(records) over (partition by topic, partition) as bigint) as hidden_records,
        cast(sum(size_bytes) over (partition by topic, partition) as bigint) as hidden_bytes
      from audit_batches where visibility = 'undecided'
    )
    select topic, partition, base_offset as stable_offset, producer_id, producer_epoch, max_timestamp as at,
      hidden_records, hidden_bytes, {limits.age("max_timestamp")} as seconds
    from undecided where place = 1 and {limits.age("max_timestamp")} >= {limits.open_ms} / 1000"""


def unknown_producers(_: Limits) -> str:
    """Producer ids of kproxy's transactions that are undecided, and of which the transaction log says nothing."""
    return f"""
    select {_PART}, min(base_offset) as first_offset, cast(sum(records) as bigint) as hidden_records,
      cast(sum(size_bytes) as bigint) as hidden_bytes, max(max_timestamp) as at
    from audit_batches b
    where visibility = 'undecided' and not is_control and {OF_KPROXY}
      and not exists (select 1 from audit_facts f where f.fact = 'known' and f.producer_id = b.producer_id)
    group by {_PART}"""


def unreadable_log(_: Limits) -> str:
    """Partitions of the transaction log with a record that this kproxy can't read: nothing after it counts."""
    return "select log_partition, log_offset, detail, f.at from audit_facts f where fact = 'unreadable'"
