"""Which offsets an audit reads, fixed when the run begins, and from where on each partition is judged."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from kproxy.spark.audit.audit_state import PartitionProgress, State
from kproxy.spark.audit.request import Since
from kproxy.spark.kafka_cluster import EARLIEST, LATEST, KafkaCluster, TopicPartition
from kproxy.spark.read_options import read_options

LOG: Final = "__kproxy_transaction_state"
#: Options of the source: batches with who may see them; what read_committed consumers see; all there is of the log.
AS_BATCHES: Final = {"records.as": "batches"}
AS_SEEN: Final = {"isolation.level": "read_committed"}
AS_WRITTEN: Final = {"isolation.level": "read_uncommitted"}


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


class Slice(NamedTuple):
    """Offsets of one partition, ``end`` not among them."""

    topic: str
    partition: int
    start: int
    end: int
    #: The last stable offset.
    stable: int


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


def connector(where: Mapping[str, str]) -> Callable[[], KafkaCluster]:
    """What opens connections to kproxy or brokers; Spark's tasks can use it, too.

    ``where``: options of the source that name addresses and security. OptionError if one is wrong.
    """
    options = read_options({**where, "subscribePattern": ".*"})
    return options.open_cluster


def batch_slices(spans: Iterable[Span]) -> list[Slice]:
    """What is read of the headers of batches, context and all."""
    return [Slice(each.topic, each.partition, each.reread, each.end, each.stable) for each in spans]


def record_slices(spans: Iterable[Span]) -> list[Slice]:
    """What is read of the records."""
    return [Slice(each.topic, each.partition, each.reread, each.stable, each.stable) for each in spans]


def log_slices(cluster: KafkaCluster) -> list[Slice]:
    """What there is of the transaction log; nothing if no kproxy has begun a transaction. KafkaError as it comes."""
    count = cluster.partitions([LOG]).get(LOG, 0)
    places = [TopicPartition(LOG, index) for index in range(count)]
    starts, ends = (cluster.offsets(dict.fromkeys(places, when)) for when in (EARLIEST, LATEST))
    return [Slice(*each, starts[each] or 0, ends[each] or 0, ends[each] or 0) for each in places]
