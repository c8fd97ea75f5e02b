"""``spark.read.format("kproxy")``: what lies in the topics between two offsets of each partition."""

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from kproxy.spark.fetching import Range
from kproxy.spark.kafka_cluster import EARLIEST, LATEST, KafkaCluster
from kproxy.spark.offsets import ranges, split
from kproxy.spark.planning import Planner
from kproxy.spark.range_partition import RangePartition, read_partition
from kproxy.spark.read_options import Bound, ReadOptions
from kproxy.spark.spark_errors import cause_first


class TableReader(DataSourceReader):
    """Plans the tasks on the driver, reads on executors."""

    def __init__(self, options: ReadOptions) -> None:
        """Raises OptionError if these are options of a stream."""
        options.check_table()
        self._options = options

    @cause_first()
    def partitions(self) -> Sequence[InputPartition]:
        """One task for each partition, or more if ``minPartitions`` says so. Raises OptionError, KafkaError."""
        options = self._options
        with options.open_cluster() as cluster:
            planner = Planner(options, cluster)
            there = planner.partitions()
            start = planner.resolved(options.start or Bound("startingOffsets", EARLIEST), there)
            end = planner.resolved(options.end or Bound("endingOffsets", LATEST), there)
            planner.check_order(start, end)
            return tasks(options, cluster, ranges(start, end))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task. Raises KafkaError, DataLost."""
        return read_partition(self._options, partition)


def tasks(options: ReadOptions, cluster: KafkaCluster, whole: Sequence[Range]) -> list[InputPartition]:
    """Ranges as tasks, the big ones cut; asks for last stable offsets if rows are to tell who may see what."""
    stable = {}
    if options.as_batches:
        stable = Planner(options, cluster).stable([each.partition for each in whole])
    return [
        RangePartition(each, stable.get(each.partition, 0))
        for each in split(whole, options.min_partitions, options.max_records_per_partition)
    ]
