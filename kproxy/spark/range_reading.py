"""A range of offsets as Arrow batches, of records or of record batches. Knows nothing of Spark."""

from collections.abc import Iterator
from functools import partial

import pyarrow as pa

from kproxy.spark.batch_rows import read_batches
from kproxy.spark.columns import RecordColumns
from kproxy.spark.fetching import Range, Reading, record_sets
from kproxy.spark.kept_clusters import kept_cluster
from kproxy.spark.read_options import ReadOptions


def read_range(options: ReadOptions, wanted: Range, stable: int) -> Iterator[pa.RecordBatch]:
    """The rows of a range; ``stable`` is the last stable offset, which only rows of batches need.

    Raises KafkaError, DataLost.
    """
    committed = options.committed and not options.as_batches
    how = Reading(committed, options.fail_on_data_loss, options.fetch_bytes, options.patience_s)
    if options.as_batches:
        yield from read_batches(partial(options.open_cluster, first_patience_s=None), wanted, stable, how)
        return
    columns = RecordColumns(
        wanted, with_headers=options.with_headers, max_decompressed_bytes=options.max_decompressed_bytes
    )
    with kept_cluster(options) as cluster:
        for record_set in record_sets(cluster, wanted, how):
            yield from columns.add(record_set)
    yield from columns.rest()
