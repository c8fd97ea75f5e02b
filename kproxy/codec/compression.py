"""The codecs of record batches: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd (Kafka's ``CompressionType``).

Everything here is bounded: decoders never hold more than the limit they were given, whatever the input declares.
"""

import zlib
from collections.abc import Callable
from typing import Final

import cramjam

from kproxy.codec import lz4_frame, snappy_frame, zstd_frame
from kproxy.codec.records import DecompressionLimit, UnsupportedCodec
from kproxy.errors import LocalProtocolError, RemoteProtocolError

NONE: Final = 0
GZIP: Final = 1
SNAPPY: Final = 2
LZ4: Final = 3
ZSTD: Final = 4

_GZIP_WRAPPER: Final = 31  # zlib's window bits for 32 KiB in a gzip envelope
_GZIP_MAX_MEMBERS: Final = 64
_GZIP_LEVEL: Final = 6
_ZSTD_LEVEL: Final = 3  # the levels that Kafka's producer uses unless told otherwise
_ZSTD_FIRST_GUESS: Final = 1 << 16


def compress(codec: int, data: bytes | memoryview, *, magic: int = 2, level: int | None = None) -> bytes:
    """Compress ``data`` for a batch or wrapper of format ``magic`` (lz4 looks different in magic 0, KAFKA-3160).

    ``level``: of gzip or zstd; None for that of Kafka's producer. The other codecs have one only.

    Raises ``LocalProtocolError`` for a codec that the format does not have (zstd needs magic 2, KIP-110).
    """
    if codec == NONE:
        return bytes(data)
    if codec == GZIP:
        packer = zlib.compressobj(_GZIP_LEVEL if level is None else level, zlib.DEFLATED, _GZIP_WRAPPER)
        return packer.compress(data) + packer.flush()
    if codec == SNAPPY:
        return snappy_frame.compress(data)
    if codec == LZ4:
        return lz4_frame.compress(data, broken_checksum=magic == 0)
    if codec == ZSTD and magic >= 2:
        return bytes(cramjam.zstd.compress(data, _ZSTD_LEVEL if level is None else level))
    raise LocalProtocolError(f"codec {codec} does not exist in magic {magic}")


def decompress(codec: int, data: bytes | memoryview, *, max_bytes: int) -> bytes | memoryview:
    """Decompress ``data``, whose content may have at most ``max_bytes``.

    Raises ``UnsupportedCodec`` for an unknown codec, ``DecompressionLimit`` when the content is larger than allowed,
    plain ``RemoteProtocolError`` on garbage, truncated input or bytes after the end.
    """
    decoder = _DECODERS.get(codec)
    if decoder is None:
        raise UnsupportedCodec(f"unknown codec {codec}")
    return decoder(data, max_bytes)


def _stored(data: bytes | memoryview, max_bytes: int) -> bytes | memoryview:
    if len(data) > max_bytes:
        raise DecompressionLimit(f"{len(data)} bytes exceed the limit of {max_bytes}")
    return data


def _gunzip(data: bytes | memoryview, max_bytes: int) -> bytes:
    parts: list[bytes] = []
    left = max_bytes
    rest: bytes | memoryview = data
    for _ in range(_GZIP_MAX_MEMBERS):
        unpacker = zlib.decompressobj(_GZIP_WRAPPER)
        try:
            part = unpacker.decompress(rest, left + 1)
        except zlib.error as error:
            raise RemoteProtocolError(f"bad gzip stream: {error}") from error
        if len(part) > left:
            raise DecompressionLimit(f"gzip content exceeds {max_bytes} bytes")
        if not unpacker.eof:
            raise RemoteProtocolError("gzip stream cut short")
        parts.append(part)
        left -= len(part)
        rest = unpacker.unused_data
        if not rest:
            return parts[0] if len(parts) == 1 else b"".join(parts)
    raise RemoteProtocolError(f"more than {_GZIP_MAX_MEMBERS} gzip members")


def _unzstd(data: bytes | memoryview, max_bytes: int) -> memoryview:
    declared = zstd_frame.declared_size(data)
    if declared is not None and declared > max_bytes:
        raise DecompressionLimit(f"zstd content declares {declared} bytes, the limit is {max_bytes}")
    bound = zstd_frame.content_bound(data)
    most = min(bound, max_bytes)
    room = min(most, max(_ZSTD_FIRST_GUESS, 8 * len(data)) if declared is None else declared)
    while True:
        out = bytearray(room)
        try:
            return memoryview(out)[: cramjam.zstd.decompress_into(data, out)]
        except cramjam.DecompressionError as error:
            # The library says only in prose whether the room or the input was bad, and a streaming writer declares no
            # size: so more room is tried until no more can be held, a few times at most.
            if room >= most:
                kind = DecompressionLimit if bound > max_bytes and "whole buffer" in str(error) else RemoteProtocolError
                raise kind(f"bad zstd stream, or one of more than {max_bytes} bytes: {error}") from error
        room = min(most, 4 * room + _ZSTD_FIRST_GUESS)


_DECODERS: Final[dict[int, Callable[[bytes | memoryview, int], bytes | memoryview]]] = {
    NONE: _stored,
    GZIP: _gunzip,
    SNAPPY: lambda data, max_bytes: snappy_frame.decompress(data, max_bytes=max_bytes),
    LZ4: lambda data, max_bytes: lz4_frame.decompress(data, max_bytes=max_bytes),
    ZSTD: _unzstd,
}
