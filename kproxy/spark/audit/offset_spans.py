"""From which offset to which one each partition is read, and from where on it is judged."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from kproxy.spark.audit.audit_state import PartitionProgress, State
from kproxy.spark.audit.request import Since
from kproxy.spark.kafka_cluster import EARLIEST, LATEST, KafkaCluster, TopicPartition


class Span(NamedTuple):
    """One partition; offsets, the columns of ``tables.SPANS``."""

    topic: str
    partition: int
    log_start: int
    reread: int
    """Read from here; what lies before ``start`` is only compared with."""
    start: int
    end: int
    stable: int
    """The last stable offset when the run began."""


def find_spans(
    cluster: KafkaCluster, topics: Sequence[str], since: Since, state: State | None, *, with_stable: bool = True
) -> list[Span]:
    """The spans of all partitions of these topics. KafkaError if the cluster does not say.

    A partition continues where the last run ended; one that was not in it begins at ``since``. Without
    ``with_stable`` the stable offset is the end.
    """
    counts = cluster.partitions(topics)
    all_of = [TopicPartition(topic, index) for topic in topics for index in range(counts.get(topic, 0))]
    ends = _known(cluster.offsets(dict.fromkeys(all_of, LATEST)))
    stable = _known(cluster.offsets(dict.fromkeys(all_of, LATEST), committed=True)) if with_stable else ends
    starts = _known(cluster.offsets(dict.fromkeys(all_of, EARLIEST)))
    begin = _beginning(cluster, all_of, since, starts, ends)
    former = {TopicPartition(row.topic, row.partition): row for row in (state.places if state is not None else ())}
    return [
        _span(each, former.get(each), begin(each), starts[each], ends[each], min(stable[each], ends[each]))
        for each in all_of
    ]


def _known(found: Mapping[TopicPartition, int | None]) -> dict[TopicPartition, int]:
    return {each: offset or 0 for each, offset in found.items()}


def _beginning(
    cluster: KafkaCluster,
    partitions: Iterable[TopicPartition],
    since: Since,
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
) -> Callable[[TopicPartition], int]:
    if since.time_ms is not None:
        found = cluster.offsets(dict.fromkeys(partitions, since.time_ms))

        def by_time(each: TopicPartition) -> int:
            offset = found[each]
            return ends[each] if offset is None else offset

        return by_time
    named = since.offsets or {}
    return lambda each: named.get(each.topic, {}).get(each.partition, starts[each])


def _span(
    each: TopicPartition, former: PartitionProgress | None, begin: int, log_start: int, end: int, stable: int
) -> Span:
    # an offset after the end: the topic was deleted and made again
    if former is not None and former.offset <= end:
        reread, start = former.reread, former.offset
    else:
        reread = start = begin
    start = min(max(start, log_start), end)
    return Span(*each, log_start, min(max(reread, log_start), start), start, end, stable)
