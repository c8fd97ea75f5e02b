"""The records of one batch of format v2, read to be compared: their digests, and what it takes to write some again."""

from array import array
from collections.abc import Iterable
from typing import Final

from xxhash import xxh3_128_digest

from kproxy.codec.batch import RawRecord, crc_ok, iter_raw_records, read_header
from kproxy.codec.batch_header import BatchHeader
from kproxy.codec.batch_reader import iter_block, records_of
from kproxy.codec.records import LOG_APPEND_TIME, DecompressionLimit
from kproxy.dedup.digest import UNTIMED, Digests
from kproxy.errors import RemoteProtocolError

_MOST: Final = (1 << 63) - 1
_LEAST: Final = -_MOST - 1


def _as_int64(number: int) -> int:
    """The sum of a base and a difference, as Kafka's own classes have it."""
    return (number - _LEAST) % (1 << 64) + _LEAST


class BatchRecords:
    """Records of one batch, in their order: one block that holds all of them, and 48 bytes for each."""

    __slots__ = ("_block", "_ends", "_starts", "_timestamps", "digests", "offsets")

    def __init__(self) -> None:
        """None."""
        self._block = b""
        self._starts: array[int] = array("I")
        self._ends: array[int] = array("I")
        self._timestamps: array[int] = array("q")
        self.offsets: array[int] = array("q")
        self.digests = Digests()

    @classmethod
    def read(cls, header: BatchHeader, block: bytes, arrival_ms: int | None) -> "BatchRecords":
        """Those of the block that ``records_of`` returns. Raises as ``iter_records`` does."""
        found = cls()
        starts, ends, offsets, timestamps = found._starts, found._ends, found.offsets, found._timestamps
        timed = not header.attributes & LOG_APPEND_TIME
        contents, times = bytearray(), array("q")
        for offset, timestamp, body in iter_block(header, block, ends):
            if not (_LEAST <= timestamp <= _MOST and _LEAST <= offset <= _MOST):
                timestamp, offset = _as_int64(timestamp), _as_int64(offset)
            contents += xxh3_128_digest(body)
            times.append(timestamp if timed and timestamp != arrival_ms else UNTIMED)
            offsets.append(offset)
            timestamps.append(timestamp)
            starts.append(ends[-1] - len(body))
        found._block, found.digests = block, Digests(bytes(contents), times)
        return found

    def __len__(self) -> int:
        return len(self.offsets)

    @property
    def size(self) -> int:
        """Bytes of keys, values and headers."""
        return sum(self._ends) - sum(self._starts)

    def raw(self, places: Iterable[int]) -> list[RawRecord]:
        """Those at some places, with their offsets in the batch."""
        return [
            RawRecord(self.offsets[at], self._timestamps[at], self._block[self._starts[at] : self._ends[at]])
            for at in places
        ]


def read_batch(
    batch: bytes | bytearray | memoryview,
    *,
    arrival_ms: int | None = None,
    max_decompressed_bytes: int,
    as_sent: bool = False,
) -> BatchRecords:
    """The records of a batch of format v2; none if it is damaged: then it is left to the broker to say so.

    ``arrival_ms``: the batch was converted when it came, and this is the time of records that had none. ``as_sent``:
    with the timestamps of the client, which LogAppendTime leaves in the records. DecompressionLimit: it is too large.
    """
    try:
        header = read_header(batch)
        if crc_ok(batch, 0, len(batch)):
            if as_sent:
                header = header._replace(attributes=header.attributes & ~LOG_APPEND_TIME)
            block = records_of(header, memoryview(batch), max_decompressed_bytes)
            return BatchRecords.read(header, block, arrival_ms)
    except DecompressionLimit:
        raise
    except RemoteProtocolError:
        pass
    return BatchRecords()


def first_content(batch: bytes | bytearray | memoryview, max_decompressed_bytes: int) -> bytes | None:
    """``Digest.content`` of the first record of a batch of format v2; None if it can't be read."""
    try:
        first = next(iter_raw_records(read_header(batch), batch, max_decompressed_bytes), None)
    except RemoteProtocolError:
        return None
    return None if first is None else xxh3_128_digest(first.body)
