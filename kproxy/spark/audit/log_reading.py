"""Topics and the transaction log as DataFrames, each read between offsets that were fixed when the run began."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from kproxy.spark.audit.offset_spans import Span
from kproxy.spark.audit.tables import BATCHES
from kproxy.spark.kafka_cluster import EARLIEST, LATEST, KafkaCluster, TopicPartition
from kproxy.spark.read_options import read_options
from kproxy.spark.table_reader import TableReader

#: Up to so many offsets the driver reads by itself: Spark takes longer to start the Python of its tasks.
FEW_OFFSETS: Final = 200_000
_MOST_BYTES: Final = 256 << 20
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


def are_few(slices: Iterable[Slice]) -> bool:
    """Whether the driver reads them by itself."""
    return sum(each.end - each.start for each in slices) <= FEW_OFFSETS


def read_batches(spark: SparkSession, where: Mapping[str, str], spans: Sequence[Span]) -> DataFrame:
    """One row for each record batch of the spans, context and all (``tables.BATCHES``)."""
    slices = [Slice(span.topic, span.partition, span.reread, span.end) for span in spans]
    return _read(spark, {**where, "records.as": "batches"}, slices, BATCHES)


def read_records(spark: SparkSession, where: Mapping[str, str], spans: Sequence[Span]) -> DataFrame:
    """One row for each record that a read_committed consumer sees: key, value, topic, partition, offset, timestamp."""
    slices = [Slice(span.topic, span.partition, span.reread, span.stable) for span in spans]
    return _read(spark, {**where, "isolation.level": "read_committed"}, slices, _PLAIN)


def log_slices(cluster: KafkaCluster) -> list[Slice]:
    """What there is of the transaction log; nothing if no kproxy has begun a transaction. KafkaError as it comes."""
    count = cluster.partitions([LOG]).get(LOG, 0)
    places = [TopicPartition(LOG, index) for index in range(count)]
    starts, ends = (cluster.offsets(dict.fromkeys(places, when)) for when in (EARLIEST, LATEST))
    return [Slice(*each, starts[each] or 0, ends[each] or 0) for each in places]


def read_log(spark: SparkSession, where: Mapping[str, str], slices: Sequence[Slice]) -> DataFrame:
    """The records of the transaction log: key, value, topic, partition, offset, timestamp."""
    return _read(spark, {**where, "isolation.level": "read_uncommitted"}, slices, _PLAIN)


def _read(spark: SparkSession, options: Mapping[str, str], slices: Iterable[Slice], schema: str) -> DataFrame:
    """Read by the driver if there is little to read, else by Spark's tasks."""
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
    places = {"assign": json.dumps(assign), "startingOffsets": json.dumps(starts), "endingOffsets": json.dumps(ends)}
    columns = [word.split()[0] for word in schema.split(", ")]
    if are_few(wanted) and (rows := _read_here({**options, **places})) is not None:
        return spark.createDataFrame(rows.select(columns)) if rows.num_rows else spark.createDataFrame([], schema)
    return spark.read.format("kproxy").options(**options, **places).load().select(*columns)


def _read_here(options: Mapping[str, str]) -> pa.Table | None:
    """What Spark's tasks would read; None if it is too large for the driver. Errors as of ``TableReader``."""
    reader = TableReader(read_options(options))
    batches: list[pa.RecordBatch] = []
    size = 0
    for partition in reader.partitions():
        for batch in reader.read(partition):
            batches.append(batch)
            size += batch.nbytes
            if size > _MOST_BYTES:
                return None
    return pa.Table.from_batches(batches, schema=batches[0].schema if batches else pa.schema([]))
