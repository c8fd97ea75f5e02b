"""LZ4 frames as Kafka's clients write and read them, with the header checksum of KAFKA-3160.

Kafka reads version 1 with independent blocks only. Messages of magic 0 carry a header checksum that was computed over
the frame's magic number too; from magic 1 on it is the one of the LZ4 frame format. Both are accepted here.
"""

from struct import Struct
from typing import Final

import cramjam
from xxhash import xxh32_intdigest

from kproxy.codec.records import DecompressionLimit
from kproxy.errors import RemoteProtocolError

_MAGIC: Final = b"\x04\x22\x4d\x18"
_FLAGS: Final = b"\x60\x40"  # version 1, independent blocks, no checksums, no content size; blocks of 64 KiB
_BLOCK_SIZE: Final = 1 << 16
_U32: Final = Struct("<I")
_STORED: Final = 1 << 31
_END_MARK: Final = bytes(4)

_VERSION: Final = 0xC0
_BLOCK_CHECKSUM: Final = 0x10
_CONTENT_SIZE: Final = 0x08
_CONTENT_CHECKSUM: Final = 0x04
_FORBIDDEN: Final = 0x03  # a dictionary, or the reserved bit


def _checksum(descriptor: bytes) -> int:
    return xxh32_intdigest(descriptor) >> 8 & 0xFF


def compress(data: bytes | memoryview, *, broken_checksum: bool = False) -> bytes:
    """One LZ4 frame; ``broken_checksum`` for messages of magic 0."""
    out = [_MAGIC, _FLAGS, bytes((_checksum(_MAGIC + _FLAGS if broken_checksum else _FLAGS),))]
    view = memoryview(data)
    for start in range(0, len(view), _BLOCK_SIZE):
        plain = view[start : start + _BLOCK_SIZE]
        block = bytes(cramjam.lz4.compress_block(plain, store_size=False))
        if len(block) < len(plain):
            out += _U32.pack(len(block)), block
        else:
            out += _U32.pack(len(plain) | _STORED), bytes(plain)
    out.append(_END_MARK)
    return b"".join(out)


def decompress(data: bytes | memoryview, *, max_bytes: int) -> memoryview:
    """The content of one LZ4 frame, at most ``max_bytes``.

    Raises ``RemoteProtocolError`` on anything that is not exactly one frame, ``DecompressionLimit`` beyond the limit.
    """
    frame = bytes(data)
    header_size, block_size = _read_header(frame)
    bound = _content_bound(frame, header_size, block_size)
    # The library knows only the right header checksum, so the broken one is replaced before it looks.
    right = bytes((_checksum(frame[4 : header_size - 1]),))
    out = bytearray(min(bound, max_bytes))
    try:
        size = cramjam.lz4.decompress_into(frame[: header_size - 1] + right + frame[header_size:], out)
    except cramjam.DecompressionError as error:
        if bound > max_bytes:
            raise DecompressionLimit(f"lz4 content may exceed {max_bytes} bytes") from error
        raise RemoteProtocolError(f"bad lz4 frame: {error}") from error
    return memoryview(out)[:size]


def _read_header(frame: bytes) -> tuple[int, int]:
    """Check the frame header; returns ``(its size, the largest size of a block)`` in bytes."""
    if len(frame) < 7 or frame[:4] != _MAGIC:
        raise RemoteProtocolError("not an lz4 frame")
    flags, block_code = frame[4], frame[5] >> 4
    if flags & _VERSION != 0x40 or flags & _FORBIDDEN or not 4 <= block_code <= 7 or frame[5] & 0x8F:
        raise RemoteProtocolError("unsupported lz4 frame header")
    size = 15 if flags & _CONTENT_SIZE else 7
    if len(frame) < size:
        raise RemoteProtocolError("lz4 frame header cut short")
    if frame[size - 1] not in (_checksum(frame[4 : size - 1]), _checksum(frame[: size - 1])):
        raise RemoteProtocolError("lz4 frame header checksum is wrong")
    return size, 1 << (8 + 2 * block_code)


def _content_bound(frame: bytes, pos: int, block_size: int) -> int:
    """Walk the blocks; returns the most bytes that they can hold, without decoding one."""
    trailer = 4 if frame[4] & _BLOCK_CHECKSUM else 0
    bound = 0
    while pos + 4 <= len(frame):
        (word,) = _U32.unpack_from(frame, pos)
        pos += 4
        if word == 0:
            if pos + (4 if frame[4] & _CONTENT_CHECKSUM else 0) != len(frame):
                break
            return bound
        size = word & ~_STORED
        # No LZ4 sequence makes more than 255 bytes out of one.
        bound += size if word & _STORED else min(block_size, 255 * size)
        pos += size + trailer
    raise RemoteProtocolError("lz4 frame cut short, or bytes after its end")
