"""Records that occur twice by their content, from any writer and under any producer id."""

import re
from typing import Final

from kproxy.spark.audit.engine import ARRIVING
from kproxy.spark.audit.tables import Limits

#: Offsets of a partition that one task reads, where records are matched with batches.
_STRETCH: Final = 1 << 18
_PLAIN_KEY: Final = re.compile(r"(key|value)|string\(\s*(key|value)\s*\)", re.IGNORECASE)
#: A record that is there twice, and its time.
_REPEATED: Final = "r.topic, r.partition, r.offset, r.timestamp"
_RUN: Final = "topic, partition, producer_id"


def plain_key(key: str) -> str | None:
    """The column whose text a key expression is; None if it is more than that."""
    match = _PLAIN_KEY.fullmatch(key.strip())
    return None if match is None else (match[1] or match[2]).lower()


def digest(key: str | None, records: str = ARRIVING) -> str:
    """Of records with key and value: a hash of both, and what the key expression makes of them (null without one)."""
    plain = plain_key(key or "")
    named = f"string({plain})" if plain else f"cast({key or 'null'} as string)"
    return f"""
    select topic, partition, r.offset, timestamp, xxhash64(key is null, key, value is null, value) as content,
      {named} as duplicate_key
    from {records} r"""


def duplicate_keys(_: Limits) -> str:
    """Values of the user's key expression that more than one record of a topic has."""
    return """
    with placed as (
      select /*+ broadcast(s) */ r.topic, r.duplicate_key, r.partition, r.offset, r.timestamp,
        max(r.offset >= s.start) over (partition by r.topic, r.duplicate_key) as is_new,
        count(*) over (partition by r.topic, r.duplicate_key) as records,
        row_number() over (partition by r.topic, r.duplicate_key order by r.timestamp, r.partition, r.offset) as place
      from audit_records r join audit_spans s on s.topic = r.topic and s.partition = r.partition
      where r.duplicate_key is not null
    )
    select p.topic, p.duplicate_key, max(p.records) - 1 as repeated,
      max(case when p.place = 1 then p.partition end) as first_partition,
      max(case when p.place = 1 then p.offset end) as first_offset,
      max(case when p.place = p.records then p.partition end) as last_partition,
      max(case when p.place = p.records then p.offset end) as last_offset,
      min(p.timestamp) as first_at, max(p.timestamp) as at
    from placed p where p.records > 1 and p.is_new group by p.topic, p.duplicate_key"""


def later_of_a_key(_: str) -> str:
    """Of the records that share a key, all but the first of each topic: topic, partition, offset, timestamp."""
    return f"""
    with placed as (
      select {_REPEATED},
        row_number() over (partition by r.topic, r.duplicate_key order by r.timestamp, r.partition, r.offset) as place
      from audit_records r where r.duplicate_key is not null
    )
    select /*+ broadcast(s) */ {_REPEATED}
    from placed r join audit_spans s on s.topic = r.topic and s.partition = r.partition
    where r.place > 1 and r.offset >= s.start"""


def within_offsets(found: str) -> str:
    """The records between the offsets of each row of a view, both included: topic, partition, offset, timestamp."""
    return f"""
    select {_REPEATED} from audit_records r
    where exists (
      select 1 from (select topic, partition, explode(sequence(first_offset, last_offset)) as place from {found}) f
      where f.topic = r.topic and f.partition = r.partition and f.place = r.offset
    )"""


def identical_runs(limits: Limits) -> str:
    """Runs of records, equal byte by byte in key and value, that the same producer wrote to the partition before.

    Producers without an id can't be told apart, and count as one. A run is found by a hash of each ``run_length``
    records in a row; runs of equal hashes at one distance are one run.
    """
    length = limits.run_length
    order = f"partition by {_RUN} order by place"
    ahead = ", ".join(f"lead(content, {step}) over ({order})" for step in range(length))
    before = f"partition by {_RUN}, shingle order by position"
    return f"""
    with {_WITH_PRODUCERS}, shingled as (
      select {_RUN}, place, timestamp, row_number() over ({order}) as position,
        lead(place, {length - 1}) over ({order}) as end_offset, xxhash64(concat_ws(' ', {ahead})) as shingle
      from owned
    ), compared as (
      select *, position - lag(position) over ({before}) as distance, lag(place) over ({before}) as earlier_offset,
        unix_micros(timestamp) - unix_micros(lag(timestamp) over ({before})) as micros
      from shingled where end_offset is not null
    ), near as (
      select /*+ broadcast(s) */ c.*,
        c.position - row_number() over (
          partition by c.topic, c.partition, c.producer_id, c.distance order by c.position) as island
      from compared c join audit_spans s on s.topic = c.topic and s.partition = c.partition
      where abs(c.micros) <= {1000 * limits.window_ms} and c.end_offset >= s.start
    )
    select {_RUN}, min(place) as first_offset, max(end_offset) as last_offset,
      min(earlier_offset) as earlier_offset, count(*) + {length - 1} as repeated,
      max(micros) / 1000000 as seconds, max(timestamp) as at
    from near group by {_RUN}, distance, island"""


#: ``owned``: records with the producer id of their batch. Offsets are cut into stretches, so that a partition of any
#: size is spread over tasks.
_WITH_PRODUCERS: Final = f"""
    cut as (
      select topic, partition, base_offset, producer_id, explode(sequence(
        cast(floor(base_offset / {_STRETCH}) as bigint), cast(floor(last_offset / {_STRETCH}) as bigint))) as stretch
      from audit_batches where not is_control
    ), heads_and_records as (
      select topic, partition, stretch, greatest(base_offset, stretch * {_STRETCH}) as place, 0 as rank,
        greatest(base_offset, stretch * {_STRETCH}) as head, producer_id as head_producer,
        cast(null as timestamp) as timestamp, cast(null as bigint) as content
      from cut
      union all
      select topic, partition, cast(floor(r.offset / {_STRETCH}) as bigint), r.offset, 1, null, null, timestamp, content
      from audit_records r
    ), led as (
      select *, max_by(head_producer, head) over (partition by topic, partition, stretch order by place, rank)
        as producer_id
      from heads_and_records
    ), owned as (
      select topic, partition, producer_id, place, timestamp, content from led where rank = 1
    )"""
