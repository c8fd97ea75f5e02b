"""What a task does: one range of offsets to Arrow batches, of records or of record batches."""

from collections.abc import Iterator
from functools import partial

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from kproxy.spark.batch_rows import read_batches
from kproxy.spark.columns import RecordColumns
from kproxy.spark.fetching import Range, Reading, record_sets
from kproxy.spark.read_options import ReadOptions


class RangePartition(InputPartition):
    """One task's range; of batches the last stable offset, too, as it was when the tasks were planned."""

    def __init__(self, wanted: Range, stable: int) -> None:
        super().__init__(wanted)
        self.wanted = wanted
        self.stable = stable


def read_partition(options: ReadOptions, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """The rows of one task's range. Raises KafkaError, DataLost."""
    if not isinstance(partition, RangePartition):
        return  # Spark's stand-in where there are no tasks
    committed = options.committed and not options.as_batches
    how = Reading(committed, options.fail_on_data_loss, options.fetch_bytes, options.patience_s)
    open_patiently = partial(options.open_cluster, first_patience_s=None)
    if options.as_batches:
        yield from read_batches(open_patiently, partition.wanted, partition.stable, how)
        return
    columns = RecordColumns(
        partition.wanted, with_headers=options.with_headers, max_decompressed_bytes=options.max_decompressed_bytes
    )
    with open_patiently() as cluster:
        for record_set in record_sets(cluster, partition.wanted, how):
            yield from columns.add(record_set)
    yield from columns.rest()
