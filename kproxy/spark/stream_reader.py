"""``spark.readStream.format("kproxy")``: micro-batches from offset to offset, as far as Spark asks."""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from kproxy.spark.kafka_cluster import LATEST, KafkaCluster
from kproxy.spark.offsets import Offsets, OffsetsJson, begun_in, from_json, limited, ranges, to_json
from kproxy.spark.planning import Planner
from kproxy.spark.range_partition import read_partition
from kproxy.spark.read_options import Bound, ReadOptions
from kproxy.spark.spark_errors import cause_first
from kproxy.spark.table_reader import tasks


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One query's source: lives as long as it on the driver, where it keeps its connections; copies of it read.

    Offsets are ``{"topic": {"0": 23}}`` everywhere, as in the checkpoints of Spark's own Kafka source.
    """

    def __init__(self, options: ReadOptions, clock: Callable[[], float] = time.monotonic) -> None:
        """Raises OptionError if these are options of a table. ``clock`` is in seconds."""
        self._clock = clock
        self._last_batch_at = float("-inf")
        options.check_stream()
        self._options = options
        self._cluster: KafkaCluster | None = None
        self._initial: OffsetsJson | None = None
        #: Where the query ends if it reads only what is there now.
        self._target: Offsets | None = None
        self._reported: OffsetsJson | None = None

    @cause_first()
    def initialOffset(self) -> OffsetsJson:
        """Where a query without a checkpoint begins; once it was returned, it does not change. Raises OptionError,
        KafkaError.

        Spark asks again for each micro-batch until one is complete.
        """
        if self._initial is None:
            planner = self._planner()
            bound = self._options.start or Bound("startingOffsets", LATEST)
            begun = planner.resolved(bound, planner.partitions())
            if self._target is not None and (bound.is_time or bound.everywhere == LATEST):
                begun = {each: min(offset, self._target.get(each, offset)) for each, offset in begun.items()}
            self._initial = to_json(begun)
        return self._initial

    @cause_first()
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> OffsetsJson:
        """How far the next micro-batch goes. New partitions begin at their oldest offset. Raises KafkaError, DataLost.

        If it is less than ``start``, records were deleted; this is returned only if ``failOnDataLoss`` is false. The
        result has the beginnings that are in no checkpoint yet, so that a batch that is run again is the same.
        """
        planner, begun = self._planner(), from_json(start)
        end = self._latest(planner, begun)
        self._reported = to_json(end)
        for each in sorted(begun.keys() - end.keys()):
            planner.lost(f"{each} does not exist any more, of which offset {begun[each]} should come next")
        planner.check_order(begun, end)
        new = planner.earliest([each for each in end if each not in begun])
        if self._waits({**begun, **new}, end):
            return start
        if isinstance(limit, ReadMaxRows):
            end = limited({**begun, **new}, end, limit.max_rows)
        if end == begun:
            return start
        return to_json(end, {**begun, **new} if start == self._initial else new)

    def _waits(self, begun: Offsets, end: Offsets) -> bool:
        """Whether the micro-batch waits for more offsets (``minOffsetsPerTrigger``); the first one never does."""
        least, now = self._options.min_offsets_per_trigger, self._clock()
        if least is None or self._target is not None:
            return False
        new = sum(max(0, offset - begun[each]) for each, offset in end.items())
        if new < least and now < self._last_batch_at + self._options.max_trigger_delay_s:
            return True
        self._last_batch_at = now
        return False

    def getDefaultReadLimit(self) -> ReadLimit:
        """``maxOffsetsPerTrigger``, if it is set."""
        most = self._options.max_offsets_per_trigger
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def reportLatestOffset(self) -> OffsetsJson | None:
        """What there was when the last micro-batch was planned, limit or not."""
        return self._reported

    @cause_first()
    def prepareForTriggerAvailableNow(self) -> None:
        """Notes what there is now: the query ends there. Raises OptionError, KafkaError."""
        planner = self._planner()
        self._target = planner.latest(planner.partitions())

    @cause_first()
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The tasks of a micro-batch. Raises KafkaError."""
        whole = ranges({**from_json(start), **begun_in(end)}, from_json(end))
        return tasks(self._options, self._open(), whole)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task. Raises KafkaError, DataLost."""
        return read_partition(self._options, partition)

    def stop(self) -> None:
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
