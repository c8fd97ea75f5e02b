"""Message sets of magic 0 and 1, written the plain way: what the tests compare the fast loops with."""

import struct
import zlib
from collections.abc import Iterable, Sequence

from kproxy.codec import compression

Triple = tuple[int, bytes | None, bytes | None]
"""Timestamp, key, value."""


def entry(
    offset: int,
    key: bytes | None,
    value: bytes | None,
    *,
    magic: int = 1,
    timestamp: int = -1,
    attributes: int = 0,
) -> bytes:
    """One entry; ``timestamp`` is not written in magic 0."""
    body = struct.pack(">bb", magic, attributes)
    if magic:
        body += struct.pack(">q", timestamp)
    for field in (key, value):
        body += struct.pack(">i", -1) if field is None else struct.pack(">i", len(field)) + field
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


def wrapper(
    codec: int, inner: Iterable[bytes], *, offset: int = 0, magic: int = 1, timestamp: int = -1, attributes: int = 0
) -> bytes:
    """A compressed entry around others."""
    value = compression.compress(codec, b"".join(inner), magic=magic)
    return entry(offset, None, value, magic=magic, timestamp=timestamp, attributes=attributes | codec)


def message_set(triples: Sequence[Triple], magic: int, codec: int, start: int = 0) -> bytes:
    """The records as entries with rising offsets, in one wrapper if there is a codec."""
    entries = [
        entry(start + number, key, value, magic=magic, timestamp=time)
        for number, (time, key, value) in enumerate(triples)
    ]
    if codec == compression.NONE:
        return b"".join(entries)
    return wrapper(codec, entries, magic=magic, offset=start + len(entries) - 1)
