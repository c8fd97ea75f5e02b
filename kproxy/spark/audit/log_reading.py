"""Which offsets an audit reads, fixed when the run begins."""

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from kproxy.spark.audit.offset_spans import Span
from kproxy.spark.kafka_cluster import EARLIEST, LATEST, KafkaCluster, TopicPartition
from kproxy.spark.read_options import read_options

LOG: Final = "__kproxy_transaction_state"
#: Options of the source: batches with who may see them; what read_committed consumers see; all there is of the log.
AS_BATCHES: Final = {"records.as": "batches"}
AS_SEEN: Final = {"isolation.level": "read_committed"}
AS_WRITTEN: Final = {"isolation.level": "read_uncommitted"}


class Slice(NamedTuple):
    """Offsets of one partition, ``end`` not among them."""

    topic: str
    partition: int
    start: int
    end: int
    #: The last stable offset.
    stable: int


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
