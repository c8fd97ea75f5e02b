"""Records of v2 batches as columns: their beginnings are found one by one, their fields for all of them at once.

No object is made for a record. Numbers are varints of zigzag numbers (KIP-98).
"""

from collections.abc import Callable
from typing import Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kproxy.codec.batch import BatchHeader
from kproxy.codec.records import CorruptRecord

Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]
_Numbers: TypeAlias = npt.NDArray[np.int64]
_Unsigned: TypeAlias = npt.NDArray[np.uint64]
_LOW: Final = 0x7F
_MOST_SHIFT: Final = 63
#: So that the six numbers of a damaged record, of ten bytes each, can be read without a look at the end of the block.
_PADDING: Final = bytes(64)
_ONE: Final = np.uint64(1)


class DamagedRecord(CorruptRecord):
    """A record whose fields do not fit into it; ``base_offset`` is that of its batch."""

    def __init__(self, problem: str, base_offset: int) -> None:
        super().__init__(problem)
        self.base_offset = base_offset


class Columns(NamedTuple):
    """Columns of one length; offsets absolute, times in ms; no headers if they are not wanted."""

    keys: pa.Array
    values: pa.Array
    offsets: _Numbers
    times: _Numbers
    headers: list[Headers | None]


class _Part(NamedTuple):
    """Records in a row of one batch; ``shift`` is added to their places in it."""

    header: BatchHeader
    records: int
    shift: int


class Block:
    """Records of batches, put together. Those of ``LogAppendTime`` and others must not be mixed."""

    def __init__(self) -> None:
        self.size = 0
        self._data: list[bytes] = []
        self._starts: list[int] = []
        self._parts: list[_Part] = []

    def add(self, header: BatchHeader, data: bytes, pos: int, stop: int) -> tuple[int, int]:
        """Adds the records from ``pos`` on until one ends at or after ``stop``: how many, and where the next begins.

        ``data`` is the block of the batch's records, decompressed. Raises CorruptRecord if one reaches beyond it.
        """
        before = len(self._starts)
        try:
            end = _walk(data, pos, stop, self._starts.append)
        except IndexError as error:
            raise CorruptRecord("record reaches beyond its batch") from error
        if end > len(data):
            raise CorruptRecord("record reaches beyond its batch")
        count = len(self._starts) - before
        self._parts.append(_Part(header, count, self.size - pos))
        self._data.append(data[pos:end])
        self.size += end - pos
        return count, end

    def columns(self, start: int, end: int, *, with_headers: bool) -> Columns:
        """The records with offsets from ``start`` up to ``end``. Raises DamagedRecord."""
        counts = [part.records for part in self._parts]

        def spread(values: list[int]) -> _Numbers:
            return np.repeat(np.array(values, np.int64), counts)

        data = b"".join((*self._data, _PADDING))
        starts = np.array(self._starts, np.int64) + spread([part.shift for part in self._parts])
        found = _find(data, starts, np.append(starts[1:], self.size))
        bases = spread([part.header.base_offset for part in self._parts])
        if found.damaged is not None:
            raise DamagedRecord("record length does not fit its content", int(bases[found.damaged]))
        offsets = found.deltas + bases
        if self._parts[0].header.is_log_append_time:
            times = spread([part.header.max_timestamp for part in self._parts])
        else:
            times = found.times + spread([part.header.base_timestamp for part in self._parts])
        kept = np.flatnonzero((offsets >= start) & (offsets < end))
        headers = _all_headers(data, found, kept, bases) if with_headers else []
        return Columns(*_fields(data, found, kept), offsets[kept], times[kept], headers)


class _Found(NamedTuple):
    """Fields of all records of a block."""

    times: _Numbers
    deltas: _Numbers
    places: _Numbers
    """Of each record: begin and end of the key, begin and end of the value."""
    has_key: npt.NDArray[np.bool_]
    has_value: npt.NDArray[np.bool_]
    ends: _Numbers
    damaged: int | None
    """The first record whose fields do not fit into it."""


def _walk(data: bytes, pos: int, stop: int, add: Callable[[int], None]) -> int:
    """Where the records begin, and where the next one would: each says how long it is."""
    while pos < stop:
        add(pos)
        size = data[pos]
        if size <= _LOW:
            pos += (size >> 1) + 1
        elif (more := data[pos + 1]) <= _LOW:
            pos += ((size & _LOW | more << 7) >> 1) + 2
        else:
            size, at = _number(data, pos)
            pos = at + (size >> 1)
    return pos


def _find(data: bytes, starts: _Numbers, ends: _Numbers) -> _Found:
    block = np.frombuffer(data, np.uint8)
    damaged = np.zeros(len(starts), np.bool_)
    _, at = _numbers(block, starts, damaged)
    time, at = _numbers(block, at + 1, damaged)  # after the attributes, of which there are none
    delta, at = _numbers(block, at, damaged)
    places = np.empty((len(starts), 4), np.int64)
    sizes = []
    for column in (0, 2):
        size, begin = _numbers(block, at, damaged)
        sizes.append(size)
        damaged |= (begin > ends) | (size >> _ONE > (ends - np.minimum(begin, ends)).astype(np.uint64))
        at = np.where(damaged, begin, begin + (size >> _ONE).astype(np.int64))  # null is -1, in zigzag 1
        at = np.minimum(at, ends)
        places[:, column], places[:, column + 1] = begin, at
    damaged |= (at >= ends) | ((block[at] == 0) & (at + 1 != ends))
    first = int(damaged.argmax()) if damaged.any() else None
    has_key, has_value = ((size & _ONE) == 0 for size in sizes)
    return _Found(_signed(time), _signed(delta), places, has_key, has_value, ends, first)


def _numbers(block: npt.NDArray[np.uint8], at: _Numbers, damaged: npt.NDArray[np.bool_]) -> tuple[_Unsigned, _Numbers]:
    """The varint at each of the places, and where it ends; one of more than ten bytes damages its record."""
    found, at = block[at].astype(np.uint64), at + 1
    more = np.flatnonzero(found > _LOW)
    found[more] &= np.uint64(_LOW)
    shift = 7
    while len(more) and shift <= _MOST_SHIFT:
        byte = block[at[more]]
        at[more] += 1
        found[more] |= (byte & np.uint8(_LOW)).astype(np.uint64) << np.uint64(shift)
        more = more[byte > _LOW]
        shift += 7
    damaged[more] = True
    return found, at


def _signed(numbers: _Unsigned) -> _Numbers:
    return (numbers >> _ONE).astype(np.int64) ^ -(numbers & _ONE).astype(np.int64)


def _fields(data: bytes, found: _Found, kept: _Numbers) -> tuple[pa.Array, pa.Array]:
    """Keys and values of some records. To Arrow the block is one column: a key, what follows it, a value, and so on."""
    places = found.places.reshape(-1).astype(np.int32)
    buffers = [None, pa.py_buffer(places), pa.py_buffer(data)]
    block = pa.BinaryArray.from_buffers(pa.binary(), len(places) - 1, buffers)
    keys = pa.array(kept * 4, mask=~found.has_key[kept])
    values = pa.array(kept * 4 + 2, mask=~found.has_value[kept])
    return block.take(keys), block.take(values)


def _all_headers(data: bytes, found: _Found, kept: _Numbers, bases: _Numbers) -> list[Headers | None]:
    """The headers of some records; None where there are none. ``bases``: the base offsets of the records' batches."""
    rows: list[Headers | None] = []
    for pos, end, base in zip(
        *(column[kept].tolist() for column in (found.places[:, 3], found.ends, bases)), strict=True
    ):
        try:
            rows.append(_headers(data, pos, end) if data[pos] else None)
        except (CorruptRecord, IndexError) as error:
            raise DamagedRecord("the headers of a record do not fit into it", base) from error
    return rows


def _number(data: bytes, pos: int) -> tuple[int, int]:
    """A varint, and where it ends."""
    result = shift = 0
    while shift <= _MOST_SHIFT:
        byte = data[pos]
        pos += 1
        result |= (byte & _LOW) << shift
        if byte <= _LOW:
            return result, pos
        shift += 7
    raise CorruptRecord("varint of more than ten bytes")


def _headers(data: bytes, pos: int, end: int) -> Headers:
    """The headers that fill a record from their number, at ``pos``, to its end; damaged names are mended."""
    count, pos = _number(data, pos)
    if count & 1 or count >> 1 > end - pos:
        raise CorruptRecord("impossible number of record headers")
    found = []
    for _ in range(count >> 1):
        size, pos = _number(data, pos)
        name = data[pos : pos + (size >> 1)].decode(errors="replace")
        size, at = _number(data, pos + (size >> 1))
        pos = at + (size >> 1)
        found.append((name, None if size & 1 else data[at:pos]))
    if pos != end:
        raise CorruptRecord("record length does not fit its headers")
    return tuple(found)
