"""What a task does: one range of offsets to Arrow batches, of records or of record batches."""

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from kproxy.spark.fetching import Range
from kproxy.spark.range_reading import read_range
from kproxy.spark.read_options import ReadOptions
from kproxy.spark.spark_errors import cause_first
from kproxy.spark.worker_heap import settle_worker


class RangePartition(InputPartition):
    """One task's range; of batches the last stable offset, too, as it was when the tasks were planned."""

    def __init__(self, wanted: Range, stable: int) -> None:
        super().__init__(wanted)
        self.wanted = wanted
        self.stable = stable


def read_partition(options: ReadOptions, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """The rows of one task's range. Raises KafkaError, DataLost."""
    if isinstance(partition, RangePartition):  # else Spark's stand-in where there are no tasks
        with cause_first():
            yield from read_range(options, partition.wanted, partition.stable)
    settle_worker()
