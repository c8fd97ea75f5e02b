"""A consumer, modelled: it fetches each partition from its beginning on, and notes what it is shown."""

from collections.abc import Callable
from typing import Any, Final

import trio

from kproxy.codec._generated.fetch import FetchRequest, FetchRequestFetchPartition, FetchRequestFetchTopic
from kproxy.codec._generated.list_offsets import (
    ListOffsetsRequest,
    ListOffsetsRequestListOffsetsPartition,
    ListOffsetsRequestListOffsetsTopic,
)
from kproxy.codec.batch import iter_records, read_header
from kproxy.codec.messages import ErrorCode
from verification.aborted import Aborted
from verification.simulation.plan import TOPIC
from verification.simulation.transactions.calls import LOST, Calls
from verification.simulation.transactions.plan import PLACES

_MAX_WAIT_MS: Final = 500
_BACKOFF: Final = 0.2
_MOST_BYTES: Final = 1 << 20
_LATEST: Final = -1
_LIST_OFFSETS: Final = 5


class Reader:
    """A reader of all partitions, at one isolation level."""

    def __init__(
        self,
        calls: Calls,
        version: int,
        *,
        committed: bool,
        shown: Callable[[int, int, bytes], None],
        asks: Callable[[int], Callable[[int], None]],
        most_bytes: int = _MOST_BYTES,
    ) -> None:
        """``version`` of Fetch; ``shown(partition, offset, value)`` hears of each record at once.

        ``asks(partition)`` is called before each Fetch of what is committed; what it returns hears of the last stable
        offset in the response. ``most_bytes`` of a response; 1: a batch at a time.
        """
        self._calls = calls
        self._version = version
        self._shown = shown
        self._asks = asks
        self._most_bytes = most_bytes
        #: Reads what is committed, else everything.
        self.committed = committed
        self.positions = dict.fromkeys(range(PLACES), 0)
        #: Value by offset of what was shown, by partition.
        self.values: dict[int, dict[int, bytes]] = {place: {} for place in range(PLACES)}
        #: The last stable offset, or the high watermark, as Fetch told it last.
        self.ends: dict[int, int] = {}

    async def run(self, place: int) -> None:
        """Reads a partition for ever."""
        while True:
            await self.poll(place)

    async def read_to(self, place: int, end: int) -> None:
        """Reads a partition until nothing before an offset is left."""
        while self.positions[place] < end:
            await self.poll(place)

    async def poll(self, place: int) -> None:
        """One Fetch; waits a while after an error."""
        part = FetchRequestFetchPartition(
            partition=place, fetch_offset=self.positions[place], partition_max_bytes=self._most_bytes
        )
        request = FetchRequest(
            max_wait_ms=_MAX_WAIT_MS,
            min_bytes=1,
            max_bytes=self._most_bytes,
            isolation_level=int(self.committed),
            session_epoch=-1,
            topics=[FetchRequestFetchTopic(topic=TOPIC, partitions=[part])],
        )
        try:
            leader = await self._calls.leader(place)
            hears = self._asks(place) if self.committed else None
            answer: Any = await self._calls.ask(leader, request, self._version)
            (row,) = answer.responses[0].partitions
            if not row.error_code:
                if hears is not None:
                    hears(row.last_stable_offset)
                self._take(place, row)
                return
        except LOST:
            pass
        self._calls.forget(place)
        await trio.sleep(_BACKOFF)

    def _take(self, place: int, row: Any) -> None:
        data = memoryview(row.records or b"")
        aborted = Aborted(row.aborted_transactions if self.committed else None)
        self.ends[place] = row.last_stable_offset if self.committed else row.high_watermark
        while data:
            header = read_header(data)
            if header.size > len(data):
                break
            batch, data = data[: header.size], data[header.size :]
            if not aborted.hides(header, batch):
                self._read(place, batch)
            self.positions[place] = max(self.positions[place], header.base_offset + header.last_offset_delta + 1)

    def _read(self, place: int, batch: memoryview) -> None:
        position = self.positions[place]
        for record in iter_records(batch, max_decompressed_bytes=_MOST_BYTES):
            if record.offset >= position:
                self.values[place][record.offset] = record.value or b""
                self._shown(place, record.offset, record.value or b"")

    async def end(self, place: int) -> int | None:
        """The end of the partition for this reader, by ListOffsets; None if there is no response."""
        row = ListOffsetsRequestListOffsetsPartition(partition_index=place, timestamp=_LATEST)
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=int(self.committed),
            topics=[ListOffsetsRequestListOffsetsTopic(name=TOPIC, partitions=[row])],
        )
        try:
            answer: Any = await self._calls.ask(await self._calls.leader(place), request, _LIST_OFFSETS)
        except LOST:
            self._calls.forget(place)
            return None
        (told,) = answer.topics[0].partitions
        if told.error_code:
            if told.error_code != ErrorCode.OFFSET_NOT_AVAILABLE:
                self._calls.forget(place)
            return None
        return int(told.offset)
