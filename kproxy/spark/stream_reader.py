"""``spark.readStream.format("kproxy")``: micro-batches from offset to offset, as far as Spark asks."""

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from kproxy.spark.cluster import LATEST, KafkaCluster
from kproxy.spark.offsets import Offsets, OffsetsJson, from_json, limited, ranges, to_json
from kproxy.spark.options import Bound, ReadOptions
from kproxy.spark.planning import Planner
from kproxy.spark.reading import read_partition
from kproxy.spark.table_reader import tasks


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One query's source: lives as long as it on the driver, where it keeps its connections; copies of it read.

    Offsets are ``{"topic": {"0": 23}}`` everywhere, as in the checkpoints of Spark's own Kafka source.
    """

    def __init__(self, options: ReadOptions) -> None:
        """Raises OptionError if these are options of a table."""
        options.check_stream()
        self._options = options
        self._cluster: KafkaCluster | None = None
        #: Where the query ends if it reads only what is there now.
        self._target: Offsets | None = None
        self._reported: OffsetsJson | None = None

    def initialOffset(self) -> OffsetsJson:
        """Where a query without a checkpoint begins. Raises OptionError, KafkaError."""
        planner = self._planner()
        start = self._options.start or Bound("startingOffsets", LATEST)
        return to_json(planner.resolved(start, planner.partitions()))

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> OffsetsJson:
        """How far the next micro-batch goes. New partitions begin at their oldest offset. Raises KafkaError, DataLost.

        Where it is less than ``start``, records are gone; so it is only if ``failOnDataLoss`` is false.
        """
        planner, begun = self._planner(), from_json(start)
        end = self._latest(planner, begun)
        self._reported = to_json(end)
        for each in sorted(begun.keys() - end.keys()):
            planner.lost(f"{each} does not exist any more, of which offset {begun[each]} should come next")
        planner.check_order(begun, end)
        if isinstance(limit, ReadMaxRows):
            end = limited(self._begun(planner, begun, end), end, limit.max_rows)
        return to_json(end)

    def getDefaultReadLimit(self) -> ReadLimit:
        """``maxOffsetsPerTrigger``, if it is set."""
        most = self._options.max_offsets_per_trigger
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def reportLatestOffset(self) -> OffsetsJson | None:
        """What there was when the last micro-batch was planned, limit or not."""
        return self._reported

    def prepareForTriggerAvailableNow(self) -> None:
        """Notes what there is now: the query ends there. Raises OptionError, KafkaError."""
        planner = self._planner()
        self._target = planner.latest(planner.partitions())

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The tasks of a micro-batch. Raises KafkaError."""
        planner, ends = self._planner(), from_json(end)
        whole = ranges(self._begun(planner, from_json(start), ends), ends)
        return tasks(self._options, self._open(), whole)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task. Raises KafkaError, DataLost."""
        return read_partition(self._options, partition)

    def stop(self) -> None:
        """Closes the connections."""
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None

    def _open(self) -> KafkaCluster:
        if self._cluster is None:
            self._cluster = self._options.open_cluster()
        return self._cluster

    def _planner(self) -> Planner:
        return Planner(self._options, self._open())

    def _latest(self, planner: Planner, begun: Offsets) -> Offsets:
        if self._target is None:
            return planner.latest(planner.partitions(gone=begun.keys()))
        there = set(planner.partitions(gone={**begun, **self._target}.keys()))
        return {each: offset for each, offset in self._target.items() if each in there}

    def _begun(self, planner: Planner, start: Offsets, end: Offsets) -> Offsets:
        """Where to begin in each partition of ``end``, new ones among them."""
        new = planner.earliest([each for each in end if each not in start])
        return {each: new[each] if each in new else start[each] for each in end}
