"""How much Zstandard frames (RFC 8878) can hold, read from their headers and those of their blocks alone.

The library decodes into room of a given size, and says only in prose whether the room or the input was bad.
"""

from struct import Struct
from typing import Final

from kproxy.errors import RemoteProtocolError

_MAGIC: Final = 0xFD2FB528
#: The first of 16 magic numbers of frames that decoders skip.
_SKIPPED: Final = 0x184D2A50
_SKIPPED_MASK: Final = 0xFFFFFFF0
_U32: Final = Struct("<I")
_MOST_OF_BLOCK: Final = 1 << 17
_RAW, _REPEATED, _COMPRESSED = range(3)


def declared_size(data: bytes | memoryview) -> int | None:
    """The content size that the first frame header declares (section 3.1.1.1); None if there is none."""
    if len(data) < 5 or _U32.unpack_from(data)[0] != _MAGIC:
        return None
    size, _ = _header(data, 0)
    return size


def content_bound(data: bytes | memoryview) -> int:
    """The most bytes that all frames together can hold.

    Raises RemoteProtocolError if they are no frames, or are cut short, or other bytes follow them.
    """
    pos = bound = 0
    while pos < len(data):
        if len(data) - pos < 5:
            raise RemoteProtocolError("zstd stream cut short")
        (magic,) = _U32.unpack_from(data, pos)
        if magic & _SKIPPED_MASK == _SKIPPED:
            pos = _skip(data, pos)
            continue
        if magic != _MAGIC:
            raise RemoteProtocolError("not a zstd frame")
        declared, start = _header(data, pos)
        has_checksum = data[pos + 4] & 4
        held, pos = _blocks(data, start)
        pos += _U32.size if has_checksum else 0
        bound += held if declared is None else min(held, declared)
    if pos > len(data):
        raise RemoteProtocolError("zstd stream cut short")
    return bound


def _skip(data: bytes | memoryview, pos: int) -> int:
    """Where a frame ends that is not decoded."""
    if len(data) - pos < 8:
        raise RemoteProtocolError("zstd stream cut short")
    size: int = _U32.unpack_from(data, pos + 4)[0]
    return pos + 8 + size


def _header(data: bytes | memoryview, pos: int) -> tuple[int | None, int]:
    """The content size that a frame declares, None if it declares none or is cut short; and where its blocks begin."""
    descriptor = data[pos + 4]
    single = descriptor >> 5 & 1
    width = (single, 2, 4, 8)[descriptor >> 6]
    start = pos + 5 + (1 - single) + (0, 1, 2, 4)[descriptor & 3]
    if width == 0 or start + width > len(data):
        return None, start + width
    size = int.from_bytes(data[start : start + width], "little")
    return size + 256 if width == 2 else size, start + width


def _blocks(data: bytes | memoryview, pos: int) -> tuple[int, int]:
    """The most bytes that the blocks of a frame can hold, and where they end."""
    bound, is_last = 0, False
    while not is_last:
        if pos + 3 > len(data):
            raise RemoteProtocolError("zstd stream cut short")
        word = data[pos] | data[pos + 1] << 8 | data[pos + 2] << 16
        is_last, kind, size = bool(word & 1), word >> 1 & 3, word >> 3
        if kind > _COMPRESSED or size > _MOST_OF_BLOCK:
            raise RemoteProtocolError("zstd block of a kind or size that there is not")
        bound += _MOST_OF_BLOCK if kind == _COMPRESSED else size
        pos += 3 + (1 if kind == _REPEATED else size)
    return bound, pos
