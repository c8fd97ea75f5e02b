"""The records of one Produce request that has to be compared: read at once where that is short.

Reading takes about 3 us for each record, and a small batch may decompress to ``decompression.max.bytes``. A long
request is left to the shell (``Read``), which reads it beside its loop, so that other clients do not wait for it.
"""

from collections.abc import Sequence
from typing import TypeAlias

from kproxy.codec.batch import HEADER_SIZE, RawRecord, read_header
from kproxy.codec.message_formats import Room
from kproxy.codec.records import DecompressionLimit
from kproxy.dedup.digest import AT_ONCE_BYTES, AT_ONCE_RECORDS, Digest, read_whole
from kproxy.errors import RemoteProtocolError

#: Records of one request that are compared; what is beyond is written as new.
MOST_RECORDS = 100_000

Pairs: TypeAlias = Sequence[tuple[Digest, RawRecord]]


class Reading:
    """All batches of one request, and of each one its records once they are read."""

    def __init__(self, batches: Sequence[tuple[memoryview, int | None]], max_bytes: int) -> None:
        """``batches``: each with ``arrival_ms`` (``read_batch``). ``max_bytes``: of all records, decompressed."""
        self._batches = batches
        self._max_bytes = max_bytes
        self._found: list[Pairs | None] | None = None

    def at_once(self) -> bool:
        """Whether all is read: it was before, or that is short."""
        if self._found is None:
            size = sum(len(data) for data, _ in self._batches)
            if size <= AT_ONCE_BYTES:
                self._found = self._read(Room(min(self._max_bytes, AT_ONCE_BYTES), AT_ONCE_RECORDS), gives_up=True)
        return self._found is not None

    def whole(self) -> None:
        """Reads all, however long that takes; may be called in another thread."""
        self._found = self._read(Room(self._max_bytes, MOST_RECORDS), gives_up=False)

    def of(self, number: int) -> Pairs | None:
        """The records of one batch, none if it is damaged; None: the request has more than is compared."""
        assert self._found is not None
        return self._found[number]

    def _read(self, room: Room, *, gives_up: bool) -> list[Pairs | None] | None:
        found: list[Pairs | None] = []
        for data, arrival_ms in self._batches:
            pairs = _read_within(room, data, arrival_ms)
            if pairs is None and gives_up:
                return None
            found.append(pairs)
        return found


def _read_within(room: Room, data: memoryview, arrival_ms: int | None) -> Pairs | None:
    """The records of a batch, taken from ``room``; None if it has not so much."""
    if len(data) < HEADER_SIZE:
        return []
    try:
        count = read_header(data).record_count
    except RemoteProtocolError:
        return []
    if count > room.records:
        return None
    try:
        pairs = read_whole(data, arrival_ms=arrival_ms, max_decompressed_bytes=room.bytes)
    except DecompressionLimit:
        return None
    room.records -= count
    room.bytes = max(0, room.bytes - sum(len(record.body) for _, record in pairs))
    return pairs
