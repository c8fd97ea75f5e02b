"""Reads a partition of a topic of kproxy's own to its end."""

from collections.abc import Iterable
from typing import Protocol

import structlog
import trio

from kproxy.codec._generated.fetch import FetchResponsePartitionData
from kproxy.codec.batch import iter_records, read_header
from kproxy.codec.batch_reader import entry_size
from kproxy.codec.messages import ErrorCode
from kproxy.codec.records import Record
from kproxy.codec.topic_partition import TopicPartition
from kproxy.errors import RemoteProtocolError
from kproxy.net.broker_log_questions import EARLIEST, LATEST, fetch, list_offsets
from kproxy.net.brokers.leaders import Leaders
from kproxy.net.brokers.metadata import NoLeader
from kproxy.net.own_topic import check

log = structlog.get_logger("kproxy.own_topic")

_FETCH_BYTES = 1 << 20
_DECOMPRESSED_BYTES = 16 << 20
_PROGRESS_SECONDS = 5.0


class Entries(Protocol):
    """What takes the entries, in their order; counts what cannot be read."""

    damaged: int

    def apply(self, records: Iterable[Record]) -> None: ...


class TopicReader:
    """Continues where it was when an attempt failed."""

    def __init__(self, leaders: Leaders, place: TopicPartition, entries: Entries, start: int | None = None) -> None:
        """``start``: the offset to read from; None: the start of the log."""
        self._leaders = leaders
        #: The partition.
        self.place = place
        self._entries = entries
        self._next = start

    @property
    def offset(self) -> int:
        """Of the first record that is not read yet; 0 if none was read."""
        return self._next or 0

    async def read(self) -> None:
        """Reads to what is the end now. OSError, RemoteProtocolError: try again; Refused."""
        try:
            await self.read_to(await self._offset(LATEST))
        except NoLeader as lost:
            check("Metadata", self.place[0], lost.error_code)
            raise

    async def read_to(self, end: int) -> None:
        """Reads to ``end``, which was the end some time ago. As of ``read``."""
        told_at = trio.current_time()
        try:
            if end and (self._next is None or self._next > end):  # not read yet, or the topic was created again
                self._next = await self._offset(EARLIEST)
            while self._next is not None and self._next < end:
                part = await self._fetch(self._next)
                if not part.records:
                    if part.high_watermark < end:
                        raise OSError("the leader has less than it had")
                    return  # nothing but what compaction left out
                self._next = self._take(memoryview(part.records), self._next)
                told_at = self._tell(end, told_at)
        except NoLeader as lost:
            check("Metadata", self.place[0], lost.error_code)
            raise

    async def _offset(self, timestamp: int) -> int:
        told = await self._leaders.once(self.place, list_offsets(timestamp))
        check("ListOffsets", self.place[0], told.error_code)
        return told.get(self.place, "ListOffsets")

    async def _fetch(self, offset: int) -> FetchResponsePartitionData:
        told = await self._leaders.once(self.place, fetch({self.place: (offset, _FETCH_BYTES)}, _FETCH_BYTES))
        if told.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._next = None  # deleted under the reader: what is left is read from its start
            raise OSError(f"{self.place[0]} begins after offset {offset}")
        check("Fetch", self.place[0], told.error_code)
        return told.get(self.place, "Fetch")

    def _take(self, data: memoryview, offset: int) -> int:
        """Reads the whole batches; returns the offset after them. A damaged batch is counted and skipped."""
        pos = 0
        while (size := entry_size(data, pos)) and pos + size <= len(data):
            offset = max(offset, self._take_batch(data[pos : pos + size]))
            pos += size
        if pos == 0:
            raise RemoteProtocolError(f"{self.place[0]} has no whole batch at offset {offset}")
        return offset

    def _take_batch(self, batch: memoryview) -> int:
        last = int.from_bytes(batch[:8], "big", signed=True)
        try:
            last += read_header(batch).last_offset_delta
            self._entries.apply(iter_records(batch, max_decompressed_bytes=_DECOMPRESSED_BYTES))
        except RemoteProtocolError:
            self._entries.damaged += 1
        return last + 1

    def _tell(self, end: int, told_at: float) -> float:
        """Logs now and then how far a long read is; when it last did, or when the read began."""
        now = trio.current_time()
        if now < told_at + _PROGRESS_SECONDS:
            return told_at
        log.info("reading a topic of kproxy's own", topic=self.place[0], offset=self._next, end=end)
        return now
