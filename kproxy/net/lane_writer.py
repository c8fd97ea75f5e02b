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
from kproxy.errors import RemoteProtocolError
from kproxy.net.brokers.backoff import Backoff
from kproxy.net.brokers.cluster import Cluster
from kproxy.net.brokers.leaders import Leaders
from kproxy.net.brokers.metadata import NoLeader
from kproxy.net.lane_topic import TOPIC
from kproxy.net.own_topic import Refused, check

#: Well below the 1 MiB that a topic takes by default; one entry has at most 100 KB.
_BATCH_BYTES = 262_144
#: A broker forgets a producer that wrote nothing for ``producer.id.expiration.ms`` (1 day), and then accepts what an
#: older epoch writes. A process that was stopped for so long has to learn first whether another one has its place.
_FORGOTTEN_SECONDS = 3600.0
_PRODUCE = (3, 8)


class _Entry(NamedTuple):
    record: Record
    written: trio.Event

    @property
    def size(self) -> int:
        return len(self.record.key or b"") + len(self.record.value or b"")


class Fenced(Exception):
    """The broker does not take what is written under this producer id and epoch; what waits is kept."""

    def __init__(self, *, is_lost: bool) -> None:
        """``is_lost``: the broker has lost the producer, else another process writes under a newer epoch."""
        super().__init__("the producer of the log of producer ids is fenced, or lost")
        self.is_lost = is_lost


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
        self._producer_id = self._epoch = self._sequence = 0
        #: By the clock that continues while the machine sleeps.
        self._wrote_at = 0.0

    def begin(self, producer_id: int, epoch: int) -> None:
        """From now on all is written under this producer id and epoch; needed before anything is written."""
        self._producer_id, self._epoch, self._sequence = producer_id, epoch, 0

    async def write(self, key: bytes, value: bytes, timestamp_ms: int) -> None:
        """Writes an entry alone, before all that waits; ``run`` must not run. Errors as of ``run``."""
        await self._until_definite(build_batch([Record(0, timestamp_ms, key, value)]), 1)

    def put(self, key: bytes, value: bytes | None, timestamp_ms: int) -> trio.Event:
        """Takes an entry, and writes it after those before; set when all in-sync replicas have it."""
        entry = _Entry(Record(0, timestamp_ms, key, value), trio.Event())
        self._queue.append(entry)
        self._wake.set()
        return entry.written

    def withdraw(self, key: bytes) -> None:
        """Lets go what waits to be written under a key; ``run`` must not run."""
        for entry in [entry for entry in self._queue if entry.record.key == key]:
            self._queue.remove(entry)
            entry.written.set()

    async def run(self) -> None:
        """Writes for ever. Refused: the cluster will not have it; TopicDeleted; Fenced; what waits then is kept."""
        while True:
            while not self._queue:
                self._wake = trio.Event()
                await self._wake.wait()
            if self._cluster.network.wall() > self._wrote_at + _FORGOTTEN_SECONDS:
                raise Fenced(is_lost=False)
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
        stamp(batch, self._producer_id, self._epoch, self._sequence)
        while True:
            try:
                error = await self._send(batch)
            except NoLeader as lost:
                error = lost.error_code
            except (OSError, RemoteProtocolError):
                error = ErrorCode.NETWORK_EXCEPTION
            if outcome_of(error) is ProduceOutcome.WRITTEN:
                self._sequence = advance(self._sequence, records)
                self._wrote_at = self._cluster.network.wall()
                return
            self._take(error)
            await backoff.pause()

    def _take(self, error: int) -> None:
        """What an error means for the next attempt. Refused, TopicDeleted, Fenced: there is to be none."""
        self._cluster.count_error("producer_state_log")
        self._cluster.metadata.forget(self.place)
        if outcome_of(error) in (ProduceOutcome.OUT_OF_SEQUENCE, ProduceOutcome.SUPERSEDED):
            raise Fenced(is_lost=outcome_of(error) is ProduceOutcome.OUT_OF_SEQUENCE)
        if outcome_of(error) is ProduceOutcome.REFUSED and error != ErrorCode.CORRUPT_MESSAGE:
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
