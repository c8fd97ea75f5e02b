"""Appends to the lane log: many entries in one batch, sent again until the broker's response is definite."""

from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

import trio

from kproxy.codec._generated.produce import (
    ProduceRequest,
    ProduceRequestPartitionProduceData,
    ProduceRequestTopicProduceData,
    ProduceResponse,
)
from kproxy.codec.batch import Record, build_batch, stamp
from kproxy.codec.messages import ErrorCode
from kproxy.codec.sequence import advance
from kproxy.codec.topic_partition import TopicPartition
from kproxy.config.retry_options import RetryOptions
from kproxy.dedup.produce_outcome import ProduceOutcome, outcome_of
from kproxy.dedup.producer_ids import KPROXY_BIT
from kproxy.errors import RemoteProtocolError
from kproxy.net.brokers.backoff import Backoff
from kproxy.net.brokers.cluster import Cluster
from kproxy.net.brokers.leaders import Leaders
from kproxy.net.brokers.metadata import NoLeader
from kproxy.net.lane_topic import TOPIC
from kproxy.net.own_topic import Refused, check

#: Well below the 1 MiB that a topic takes by default; one entry has at most 100 KB.
_BATCH_BYTES = 262_144
_PRODUCE = (3, 8)


class _Entry(NamedTuple):
    record: Record
    written: trio.Event

    @property
    def size(self) -> int:
        return len(self.record.key or b"") + len(self.record.value or b"")


class LaneWriter:
    """One batch is in flight at a time; entries that arrive meanwhile go with the next.

    Resends carry the same producer id and sequence, lest a late copy replace a newer entry of its key. Where the broker
    has lost that producer, the batch goes under a new id and may be there twice: the same entry again changes nothing.
    """

    def __init__(
        self,
        cluster: Cluster,
        config: RetryOptions,
        leaders: Leaders,
        place: TopicPartition,
        saw: Callable[[int], None],
    ) -> None:
        """``place``: the log's partition; ``saw`` receives the time at which a batch was appended (ms since 1970)."""
        self._saw = saw
        self._cluster = cluster
        self._config = config
        self._leaders = leaders
        self.place = place
        self._queue: deque[_Entry] = deque()
        self._wake = trio.Event()
        self._producer_id: int | None = None
        self._sequence = 0

    def put(self, key: bytes, value: bytes | None, timestamp_ms: int) -> trio.Event:
        """Takes an entry, and writes it after those before; set when all in-sync replicas have it."""
        entry = _Entry(Record(0, timestamp_ms, key, value), trio.Event())
        self._queue.append(entry)
        self._wake.set()
        return entry.written

    async def run(self) -> None:
        """Writes for ever. Refused: the cluster will not have it; TopicDeleted; what waits then is kept."""
        while True:
            while not self._queue:
                self._wake = trio.Event()
                await self._wake.wait()
            await self._write(self._next_batch())

    def release(self) -> None:
        """Lets go all who wait: nothing will be written any more."""
        while self._queue:
            self._queue.popleft().written.set()

    def _next_batch(self) -> list[_Entry]:
        batch: list[_Entry] = []
        room = _BATCH_BYTES
        for entry in self._queue:
            room -= entry.size
            if batch and room < 0:
                break
            batch.append(entry)
        return batch

    async def _write(self, entries: Sequence[_Entry]) -> None:
        records = [entry.record._replace(offset=offset) for offset, entry in enumerate(entries)]
        try:
            await self._until_definite(build_batch(records), len(records))
        except Refused as refused:
            if refused.error_code != ErrorCode.MESSAGE_TOO_LARGE or len(entries) == 1:
                raise
            half = len(entries) // 2
            await self._write(entries[:half])
            await self._write(entries[half:])
            return
        for entry in entries:
            entry.written.set()
            self._queue.popleft()

    async def _until_definite(self, batch: bytearray, records: int) -> None:
        backoff = Backoff(self._config)
        stamped: int | None = None
        while True:
            try:
                if self._producer_id is None:
                    self._producer_id = await self._cluster.new_producer_id() | KPROXY_BIT
                    self._sequence = 0
                if stamped != self._producer_id:
                    stamp(batch, self._producer_id, 0, self._sequence)
                    stamped = self._producer_id
                error = await self._send(batch)
            except NoLeader as lost:
                error = lost.error_code
            except (OSError, RemoteProtocolError):
                error = ErrorCode.NETWORK_EXCEPTION
            if outcome_of(error) is ProduceOutcome.WRITTEN:
                self._sequence = advance(self._sequence, records)
                return
            self._take(error)
            await backoff.pause()

    def _take(self, error: int) -> None:
        """What an error means for the next attempt. Refused, TopicDeleted: there is to be none."""
        self._cluster.count_error("producer_state_log")
        self._cluster.metadata.forget(self.place)
        if outcome_of(error) is ProduceOutcome.OUT_OF_SEQUENCE:
            self._producer_id = None
        elif outcome_of(error) is ProduceOutcome.REFUSED and error != ErrorCode.CORRUPT_MESSAGE:
            check("Produce", TOPIC, error)

    async def _send(self, batch: bytearray) -> int:
        part = ProduceRequestPartitionProduceData(index=self.place[1], records=memoryview(batch))
        topic = ProduceRequestTopicProduceData(name=TOPIC, partition_data=[part])
        timeout_ms = self._config.upstream_request_timeout_ms
        request = ProduceRequest(acks=-1, timeout_ms=timeout_ms, topic_data=[topic])
        async with self._leaders.to(self.place) as client:
            response = await client.call(request, ProduceResponse, _PRODUCE, extra_ms=timeout_ms)
        for found in response.responses:
            for row in found.partition_responses:
                self._saw(row.log_append_time_ms)
                return row.error_code
        raise RemoteProtocolError("Produce answer without the partition")
