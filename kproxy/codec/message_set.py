"""Entries of the old message sets, magic 0 and 1: reading them one by one, compressed wrappers included.

Layout as in Kafka's ``LegacyRecord``: offset, size, CRC-32 (of everything after it), magic, attributes, in magic 1 a
timestamp, then key and value with signed lengths. A compressed set is an entry (the wrapper) whose value is a set.
"""

import zlib
from collections import deque
from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple

from kproxy.codec import compression
from kproxy.codec.records import (
    CODEC_MASK,
    LOG_APPEND_TIME,
    NO_TIMESTAMP,
    CorruptRecord,
    DecompressionLimit,
    Record,
    UnsupportedCodec,
)
from kproxy.errors import RemoteProtocolError

PREFIX: Final = (18, 26)
"""Bytes before the key's length, by magic."""
MIN_SIZE: Final = (26, 34)
"""Bytes of an entry whose key and value are null, by magic."""

_HEAD: Final = Struct(">qiIBB")
_I64: Final = Struct(">q")
_I32: Final = Struct(">i")


class MessageEntry(NamedTuple):
    """One whole entry; ``size`` counts all its bytes, ``timestamp`` is in ms and -1 in magic 0."""

    offset: int
    size: int
    magic: int
    attributes: int
    timestamp: int
    key: memoryview | None
    value: memoryview | None

    @property
    def codec(self) -> int:
        """The codec; not 0 in a wrapper."""
        return self.attributes & CODEC_MASK

    @property
    def is_log_append_time(self) -> bool:
        """Whether the timestamp is the broker's."""
        return bool(self.attributes & LOG_APPEND_TIME)


def read_entry(view: memoryview, pos: int, *, check_crc: bool = True) -> MessageEntry:
    """Decode the entry at ``pos``. Raises ``CorruptRecord`` when it is not whole, malformed, or fails its CRC-32."""
    if len(view) - pos < MIN_SIZE[0]:
        raise CorruptRecord("entry cut short")
    offset, size, crc, magic, attributes = _HEAD.unpack_from(view, pos)
    size += 12
    if magic > 1 or size < MIN_SIZE[magic] or size > len(view) - pos:
        raise CorruptRecord("entry cut short, or not of magic 0 or 1")
    if check_crc and zlib.crc32(view[pos + 16 : pos + size]) != crc:
        raise CorruptRecord("entry fails its CRC")
    entry = view[pos : pos + size]
    key, at = _nullable(entry, PREFIX[magic])
    value, at = _nullable(entry, at)
    if at != size:
        raise CorruptRecord("entry has bytes after its value")
    timestamp = _I64.unpack_from(entry, 18)[0] if magic else NO_TIMESTAMP
    return MessageEntry(offset, size, magic, attributes, timestamp, key, value)


def unwrap(wrapper: MessageEntry, max_bytes: int) -> bytes:
    """The set inside a wrapper.

    Raises ``CorruptRecord`` when there is none or it is garbage, ``UnsupportedCodec`` (zstd needs magic 2),
    ``DecompressionLimit`` beyond ``max_bytes``.
    """
    if wrapper.value is None:
        raise CorruptRecord("compressed entry without a value")
    if wrapper.codec >= compression.ZSTD:
        raise UnsupportedCodec(f"codec {wrapper.codec} does not exist in magic {wrapper.magic}")
    try:
        return bytes(compression.decompress(wrapper.codec, wrapper.value, max_bytes=max_bytes))
    except DecompressionLimit:
        raise
    except RemoteProtocolError as error:
        raise CorruptRecord(f"compressed entry: {error}") from error


def iter_entry(entry: memoryview, max_decompressed_bytes: int) -> Iterator[Record]:
    """The records of one whole entry: itself, or what it wraps, with absolute offsets. Checksums are not checked.

    Inside a wrapper magic 1 counts offsets relative to the wrapper's, which is that of the last record (KIP-31).
    """
    outer = read_entry(entry, 0, check_crc=False)
    if not outer.codec:
        yield _record(outer, outer.offset, outer.timestamp)
        return
    inner = memoryview(unwrap(outer, max_decompressed_bytes))
    # Two passes, since a list of them all would be many times the size that the limit allows.
    last = deque(_inner_entries(inner, outer.magic), maxlen=1) if outer.magic else ()
    shift = outer.offset - last[0].offset if last else 0
    for one in _inner_entries(inner, outer.magic):
        timestamp = outer.timestamp if outer.is_log_append_time else one.timestamp
        yield _record(one, one.offset + shift, timestamp)


def _inner_entries(view: memoryview, magic: int) -> Iterator[MessageEntry]:
    pos = 0
    while pos < len(view):
        entry = read_entry(view, pos, check_crc=False)
        if entry.codec or entry.magic != magic:
            raise CorruptRecord("compressed entry holds one that is compressed again, or of another magic")
        yield entry
        pos += entry.size


def _record(entry: MessageEntry, offset: int, timestamp: int) -> Record:
    key = None if entry.key is None else bytes(entry.key)
    return Record(offset, timestamp, key, None if entry.value is None else bytes(entry.value))


def _nullable(entry: memoryview, pos: int) -> tuple[memoryview | None, int]:
    if pos + 4 > len(entry):
        raise CorruptRecord("entry cut short")
    (size,) = _I32.unpack_from(entry, pos)
    pos += 4
    if size == -1:
        return None, pos
    if size < 0 or size > len(entry) - pos:
        raise CorruptRecord("field reaches beyond its entry")
    return entry[pos : pos + size], pos + size
