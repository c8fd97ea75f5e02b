"""Topics and the transaction log as DataFrames, each read between offsets that were fixed when the run began."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from pyspark.sql import DataFrame, SparkSession

from kproxy.spark.audit.offset_spans import Span
from kproxy.spark.audit.tables import BATCHES
from kproxy.spark.kafka_cluster import EARLIEST, LATEST, KafkaCluster, TopicPartition
from kproxy.spark.read_options import read_options

LOG: Final = "__kproxy_transaction_state"
_PLAIN: Final = "key binary, value binary, topic string, partition int, offset long, timestamp timestamp"


class Slice(NamedTuple):
    """Offsets of one partition, ``end`` not among them."""

    topic: str
    partition: int
    start: int
    end: int


def connector(where: Mapping[str, str]) -> Callable[[], KafkaCluster]:
    """What opens connections to kproxy or brokers; Spark's tasks can use it, too.

    ``where``: options of the source that name addresses and security. OptionError if one is wrong.
    """
    options = read_options({**where, "subscribePattern": ".*"})
    return options.open_cluster


def read_batches(spark: SparkSession, where: Mapping[str, str], spans: Sequence[Span]) -> DataFrame:
    """One row for each record batch of the spans, context and all (``tables.BATCHES``)."""
    slices = [Slice(span.topic, span.partition, span.reread, span.end) for span in spans]
    return _read(spark, where, slices, {"records.as": "batches"}, BATCHES)


def read_records(spark: SparkSession, where: Mapping[str, str], spans: Sequence[Span]) -> DataFrame:
    """One row for each record that a read_committed consumer sees: key, value, topic, partition, offset, timestamp."""
    slices = [Slice(span.topic, span.partition, span.reread, span.stable) for span in spans]
    return _read(spark, where, slices, {"isolation.level": "read_committed"}, _PLAIN)


def log_slices(cluster: KafkaCluster) -> list[Slice]:
    """What there is of the transaction log; nothing if no kproxy has begun a transaction. KafkaError as it comes."""
    count = cluster.partitions([LOG]).get(LOG, 0)
    places = [TopicPartition(LOG, index) for index in range(count)]
    starts, ends = (cluster.offsets(dict.fromkeys(places, when)) for when in (EARLIEST, LATEST))
    return [Slice(*each, starts[each] or 0, ends[each] or 0) for each in places]


def read_log(spark: SparkSession, where: Mapping[str, str], slices: Sequence[Slice]) -> DataFrame:
    """The records of the transaction log: key, value, topic, partition, offset, timestamp."""
    return _read(spark, where, slices, {"isolation.level": "read_uncommitted"}, _PLAIN)


def _read(
    spark: SparkSession, where: Mapping[str, str], slices: Iterable[Slice], options: dict[str, str], schema: str
) -> DataFrame:
    wanted = [each for each in slices if each.start < each.end]
    if not wanted:
        return spark.createDataFrame([], schema)
    assign: dict[str, list[int]] = {}
    starts: dict[str, dict[str, int]] = {}
    ends: dict[str, dict[str, int]] = {}
    for each in wanted:
        assign.setdefault(each.topic, []).append(each.partition)
        starts.setdefault(each.topic, {})[str(each.partition)] = each.start
        ends.setdefault(each.topic, {})[str(each.partition)] = each.end
    reader = spark.read.format("kproxy").options(
        **{
            **where,
            "assign": json.dumps(assign),
            "startingOffsets": json.dumps(starts),
            "endingOffsets": json.dumps(ends),
        }
    )
    columns = [word.split()[0] for word in schema.split(", ")]
    return reader.options(**options).load().select(*columns)
