"""One pass over the records of a v2 batch: where the fields are, into lists of columns; no object for a record."""

from dataclasses import dataclass, field
from typing import Final

from kproxy.codec.records import CorruptRecord

_LOW: Final = 0x7F
_MOST_SHIFT: Final = 63


@dataclass(slots=True)
class Fields:
    """Columns under construction, of one length; offsets absolute, times in ms."""

    keys: list[bytes | None] = field(default_factory=list)
    values: list[bytes | None] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    times: list[int] = field(default_factory=list)
    #: A record's headers as bytes of its batch, after their number; None if it has none. Not filled unless wanted.
    headers: list[tuple[tuple[str, bytes | None], ...] | None] = field(default_factory=list)

    def cut(self, since: int, start: int, end: int) -> None:
        """Leaves out the rows from index ``since`` on whose offsets are not from ``start`` up to ``end``."""
        offsets = self.offsets
        kept = [at for at in range(since, len(offsets)) if start <= offsets[at] < end]
        if len(kept) == len(offsets) - since:
            return
        self.keys[since:] = [self.keys[at] for at in kept]
        self.values[since:] = [self.values[at] for at in kept]
        self.times[since:] = [self.times[at] for at in kept]
        if self.headers:
            self.headers[since:] = [self.headers[at] for at in kept]
        offsets[since:] = [offsets[at] for at in kept]


def scan(
    data: bytes, pos: int, stop: int, base_offset: int, base_time: int, fields: Fields, *, with_headers: bool
) -> int:
    """Adds the records from ``pos`` on until one ends at or after ``stop``; returns where the next one begins.

    ``data`` is the block of a batch's records, decompressed. Numbers are unsigned varints of zigzag numbers (KIP-98);
    nearly all have one or two bytes, which are read in place. Raises CorruptRecord; rows may have been added then.
    """
    try:
        pos = _walk(data, pos, stop, base_offset, base_time, fields, with_headers)
    except IndexError as error:
        raise CorruptRecord("record reaches beyond its batch") from error
    if pos > len(data):
        raise CorruptRecord("record reaches beyond its batch")
    return pos


def _walk(
    data: bytes, pos: int, stop: int, base_offset: int, base_time: int, fields: Fields, with_headers: bool
) -> int:
    add_key, add_value = fields.keys.append, fields.values.append
    add_offset, add_time = fields.offsets.append, fields.times.append
    add_headers = fields.headers.append
    while pos < stop:
        size = data[pos]
        pos += 1
        if size > _LOW:
            size, pos = (size & 127 | data[pos] << 7, pos + 1) if data[pos] < 128 else _long(data, pos, size)
        end = pos + (size >> 1)
        time = data[pos + 1]  # after the attributes, of which there are none
        pos += 2
        if time > _LOW:
            time, pos = (time & 127 | data[pos] << 7, pos + 1) if data[pos] < 128 else _long(data, pos, time)
        delta = data[pos]
        pos += 1
        if delta > _LOW:
            delta, pos = (delta & 127 | data[pos] << 7, pos + 1) if data[pos] < 128 else _long(data, pos, delta)
        size = data[pos]
        pos += 1
        if size > _LOW:
            size, pos = (size & 127 | data[pos] << 7, pos + 1) if data[pos] < 128 else _long(data, pos, size)
        at = pos
        pos += size >> 1  # null is -1, in zigzag 1: nothing is passed
        add_key(None if size & 1 else data[at:pos])
        size = data[pos]
        pos += 1
        if size > _LOW:
            size, pos = (size & 127 | data[pos] << 7, pos + 1) if data[pos] < 128 else _long(data, pos, size)
        at = pos
        pos += size >> 1
        add_value(None if size & 1 else data[at:pos])
        if with_headers:
            add_headers(_headers(data, pos, end) if data[pos] else None)
        if pos >= end or (data[pos] == 0 and pos + 1 != end):
            raise CorruptRecord("record length does not fit its content")
        pos = end
        add_offset(base_offset + (delta >> 1))
        add_time(base_time + (time >> 1 ^ -(time & 1)))
    return pos


def _long(data: bytes, pos: int, first: int) -> tuple[int, int]:
    """The rest of a varint whose first byte was ``first``, and where it ends."""
    result, shift = first & _LOW, 7
    while shift <= _MOST_SHIFT:
        byte = data[pos]
        pos += 1
        result |= (byte & _LOW) << shift
        if byte <= _LOW:
            return result, pos
        shift += 7
    raise CorruptRecord("varint of more than ten bytes")


def _number(data: bytes, pos: int) -> tuple[int, int]:
    first = data[pos]
    return _long(data, pos + 1, first) if first > _LOW else (first, pos + 1)


def _headers(data: bytes, pos: int, end: int) -> tuple[tuple[str, bytes | None], ...]:
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
