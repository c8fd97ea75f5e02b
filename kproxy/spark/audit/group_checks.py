"""Offsets of consumer groups: what transactions decided, against what the groups' coordinators say."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from kproxy.spark.audit.engine import Engine
from kproxy.spark.audit.tables import FETCHED, Limits
from kproxy.spark.kafka_cluster import KafkaCluster

_GROUP: Final = "group_id, topic, partition"


def group_offsets_behind(_: Limits) -> str:
    """Partitions where a group's offset is lower than the offset that a committed transaction with its outputs decided.

    A consumer that starts there reads again what has been processed. In the log of one id the later transaction counts,
    between two ids the later generation, then the larger offset, as kproxy itself has it (``txn.group_offsets``).
    """
    columns = f"{_GROUP}, decided_offset, fetched_offset, behind, transactional_id, l.at"
    return f"select {columns} from ({_LOWER}) l where reason is null"


def unknown_groups(_: Limits) -> str:
    """The same where nothing can be said: the topic was recreated since, or the group was deleted."""
    columns = f"{_GROUP}, decided_offset, fetched_offset, reason, transactional_id, l.at"
    return f"select {columns} from ({_LOWER}) l where reason is not null"


_LOWER: Final = f"""
    with said as (
      select {_GROUP}, transactional_id, generation, f.offset as decided_offset,
        max(f.at) over (partition by {_GROUP}) as at,
        row_number() over (partition by {_GROUP}, transactional_id order by log_offset desc) as place
      from audit_facts f
      where fact = 'offsets'
        and exists (select 1 from audit_spans s where s.topic = f.topic and s.partition = f.partition)
    ), ranked as (
      select *, row_number() over (
        partition by {_GROUP} order by generation desc, decided_offset desc, transactional_id) as rank
      from said where place = 1
    ), present as (
      select distinct group_id from audit_fetched
    )
    select r.group_id, r.topic, r.partition, r.decided_offset, g.fetched_offset,
      r.decided_offset - greatest(coalesce(g.fetched_offset, 0), 0) as behind,
      case when r.decided_offset > s.end then 'the partition ends before the decided offset'
           when p.group_id is null then 'the group has no offsets: it was deleted, or they have expired' end as reason,
      r.transactional_id, r.at
    from ranked r
    join audit_spans s on s.topic = r.topic and s.partition = r.partition
    left join audit_fetched g on g.group_id = r.group_id and g.topic = r.topic and g.partition = r.partition
    left join present p on p.group_id = r.group_id
    where r.rank = 1 and coalesce(g.fetched_offset, -1) < r.decided_offset"""


def fetch_offsets(engine: Engine, connect: Callable[[], KafkaCluster]) -> None:
    """View ``audit_fetched``: what OffsetFetch says now of each group that the facts name with a topic of the spans.

    ``connect`` opens a cluster and travels to the engine's tasks; its KafkaError ends the run.
    """

    def ask(rows: Iterable[Any]) -> Iterator[tuple[str, str, int, int]]:
        with connect() as cluster:
            for (group,) in rows:
                for each, offset in cluster.group_offsets(group).items():
                    yield group, each.topic, each.partition, offset

    named = """
    select distinct f.group_id from audit_facts f
    where f.fact = 'offsets' and exists (select 1 from audit_spans s where s.topic = f.topic)"""
    engine.make("audit_fetched", named, (), ask, FETCHED)
