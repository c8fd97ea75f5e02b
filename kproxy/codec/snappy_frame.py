"""Snappy as Kafka's clients use it: the framing of xerial's snappy-java (written), or one raw block (read too)."""

from collections.abc import Iterator
from struct import Struct
from typing import Final

import cramjam

from kproxy.codec.records import DecompressionLimit
from kproxy.errors import RemoteProtocolError

_MAGIC: Final = b"\x82SNAPPY\x00"
_HEADER: Final = _MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"  # version 1, readable since version 1
_BLOCK_SIZE: Final = 1 << 15
_U32: Final = Struct(">I")
# The densest element copies 64 bytes and takes two; everything above that is a lie in the length field.
_MAX_RATIO: Final = 64


def compress(data: bytes | memoryview) -> bytes:
    """The data in xerial framing, blocks of 32 KiB."""
    out = [_HEADER]
    view = memoryview(data)
    for start in range(0, len(view), _BLOCK_SIZE):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _BLOCK_SIZE]))
        out += _U32.pack(len(block)), block
    return b"".join(out)


def decompress(data: bytes | memoryview, *, max_bytes: int) -> bytes | memoryview:
    """The content of a xerial stream or of one raw block, at most ``max_bytes``.

    Raises ``RemoteProtocolError`` on garbage, ``DecompressionLimit`` beyond the limit.
    """
    view = memoryview(data)
    if bytes(view[: len(_MAGIC)]) != _MAGIC:
        return _block(view, max_bytes)
    parts: list[memoryview] = []
    left = max_bytes
    for block in _blocks(view):
        parts.append(_block(block, left))
        left -= len(parts[-1])
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _blocks(view: memoryview) -> Iterator[memoryview]:
    """The raw blocks of a xerial stream. Several concatenated streams count as one, as in snappy-java."""
    pos = 0
    while pos < len(view):
        if view[pos] == _MAGIC[0] and bytes(view[pos : pos + len(_MAGIC)]) == _MAGIC:
            pos += len(_HEADER)
            if pos > len(view):
                raise RemoteProtocolError("snappy stream header cut short")
            continue
        if pos + 4 > len(view):
            raise RemoteProtocolError("snappy stream cut short")
        (size,) = _U32.unpack_from(view, pos)
        pos += 4
        if size > len(view) - pos:
            raise RemoteProtocolError("snappy block cut short")
        yield view[pos : pos + size]
        pos += size


def _block(block: memoryview, max_bytes: int) -> memoryview:
    try:
        size = cramjam.snappy.decompress_raw_len(block)
        if size > _MAX_RATIO * len(block):
            raise RemoteProtocolError("snappy block declares an impossible length")
        if size > max_bytes:
            raise DecompressionLimit(f"snappy content exceeds the limit by {size - max_bytes} bytes")
        out = bytearray(size)
        cramjam.snappy.decompress_raw_into(block, out)
    except cramjam.DecompressionError as error:
        raise RemoteProtocolError(f"bad snappy block: {error}") from error
    return memoryview(out)
