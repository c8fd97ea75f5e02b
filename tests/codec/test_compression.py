import gzip
import resource
import struct
import tracemalloc
from collections.abc import Callable

import cramjam
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kproxy.codec import compression
from kproxy.codec.compression import compress, decompress
from kproxy.codec.records import DecompressionLimit, UnsupportedCodec
from kproxy.errors import LocalProtocolError, RemoteProtocolError
from tests.codec.compressible import MIB, TEXT, XERIAL

CODECS = (compression.NONE, compression.GZIP, compression.SNAPPY, compression.LZ4, compression.ZSTD)
PACKED = CODECS[1:]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("data", [b"", b"x", TEXT, TEXT[: 1 << 16], TEXT[: (1 << 15) + 1]], ids=len)
def test_round_trip_within_exactly_the_limit(codec: int, data: bytes) -> None:
    packed = compress(codec, data)
    assert bytes(decompress(codec, packed, max_bytes=len(data))) == data
    assert bytes(decompress(codec, memoryview(b"##" + packed)[2:], max_bytes=MIB)) == data
    if data:
        with pytest.raises(DecompressionLimit):
            decompress(codec, packed, max_bytes=len(data) - 1)


@settings(max_examples=50, deadline=None)
@given(st.sampled_from(CODECS), st.integers(0, 1), st.binary(max_size=2000), st.integers(1, 200))
def test_round_trip_of_anything(codec: int, magic: int, data: bytes, times: int) -> None:
    magic = 2 if codec == compression.ZSTD else magic
    packed = compress(codec, data * times, magic=magic)
    assert bytes(decompress(codec, packed, max_bytes=MIB)) == data * times


@pytest.mark.parametrize("codec", PACKED)
def test_cut_anywhere_or_followed_by_more_is_an_error(codec: int) -> None:
    packed = compress(codec, TEXT[:500] + bytes(range(256)))
    for end in range(len(packed)):
        # A xerial stream may end after any of its blocks, and its header is one without blocks.
        if not (codec == compression.SNAPPY and end == len(XERIAL)):
            with pytest.raises(RemoteProtocolError):
                decompress(codec, packed[:end], max_bytes=MIB)
    with pytest.raises(RemoteProtocolError):
        decompress(codec, packed + b"\x01", max_bytes=MIB)


@settings(max_examples=100, deadline=None)
@given(st.sampled_from((*PACKED, 5, 6, 7)), st.binary(max_size=300), st.integers(0, 2**32 - 1), st.integers(1, 255))
def test_garbage_and_damage_raise_nothing_else(codec: int, garbage: bytes, where: int, flip: int) -> None:
    damaged = bytearray(compress(codec, TEXT[:3000]) if codec in PACKED else garbage)
    damaged[where % max(1, len(damaged)) : where % max(1, len(damaged)) + 1] = bytes([flip])
    for data in (garbage, bytes(damaged), XERIAL + garbage, b"\x28\xb5\x2f\xfd" + garbage):
        try:
            decompress(codec, data, max_bytes=MIB)
        except RemoteProtocolError:
            continue


def test_unknown_codecs() -> None:
    for codec in (5, 7, -1):
        with pytest.raises(UnsupportedCodec):
            decompress(codec, b"", max_bytes=1)
        with pytest.raises(LocalProtocolError):
            compress(codec, b"")
    with pytest.raises(LocalProtocolError):
        compress(compression.ZSTD, b"", magic=1)


def test_gzip_members_are_joined_but_not_without_end() -> None:
    one = gzip.compress(b"abc")
    assert decompress(compression.GZIP, one * 64, max_bytes=MIB) == b"abc" * 64
    with pytest.raises(RemoteProtocolError):
        decompress(compression.GZIP, one * 65, max_bytes=MIB)
    with pytest.raises(DecompressionLimit):
        decompress(compression.GZIP, one * 3, max_bytes=8)


def test_zstd_without_a_declared_size_and_in_two_frames() -> None:
    stream = cramjam.zstd.Compressor(3)
    stream.compress(TEXT)
    packed = bytes(stream.finish())
    assert bytes(decompress(compression.ZSTD, packed, max_bytes=len(TEXT))) == TEXT
    with pytest.raises(DecompressionLimit):
        decompress(compression.ZSTD, packed, max_bytes=len(TEXT) - 1)
    two = compress(compression.ZSTD, b"abc") + packed
    assert bytes(decompress(compression.ZSTD, two, max_bytes=MIB)) == b"abc" + TEXT


def _snappy_bomb() -> bytes:
    return compress(compression.SNAPPY, bytes(24 * MIB))


def _zstd_stream_bomb() -> bytes:
    writer = cramjam.zstd.Compressor(3)
    for _ in range(32):
        writer.compress(bytes(32 * MIB))
    return bytes(writer.finish())


def _lz4_bomb() -> bytes:
    block = bytes(cramjam.lz4.compress_block(bytes(4 * MIB), store_size=False))
    return bytes.fromhex("04224d18607073") + (struct.pack("<I", len(block)) + block) * 64 + bytes(4)


def _gzip_bomb() -> bytes:
    packer = cramjam.gzip.Compressor(9)
    for _ in range(8):
        packer.compress(bytes(32 * MIB))
    return bytes(packer.finish())


@pytest.mark.parametrize(
    ("codec", "bomb"),
    [
        (compression.GZIP, _gzip_bomb),
        (compression.SNAPPY, _snappy_bomb),
        (compression.LZ4, _lz4_bomb),
        (compression.ZSTD, _zstd_stream_bomb),
    ],
)
def test_a_bomb_is_refused_and_memory_stays_near_the_limit(codec: int, bomb: Callable[[], bytes]) -> None:
    data = bomb()
    assert len(data) < 2 * MIB
    limit = 2 * MIB
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    tracemalloc.start()
    try:
        with pytest.raises(DecompressionLimit):
            decompress(codec, data, max_bytes=limit)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 3 * limit + 2 * len(data)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - resident < 16 * 1024  # KiB


def zstd_frame(descriptor: int, after: bytes) -> bytes:
    return b"\x28\xb5\x2f\xfd" + bytes([descriptor]) + after


@pytest.mark.parametrize(
    "data",
    [
        zstd_frame(0, b"\0" + b"garbage that is no block at all"),
        zstd_frame(0x20, b"\x07"),
        zstd_frame(0xA0, (64 * MIB).to_bytes(4, "little") + b"\x05\0\0\0"),  # an empty last block
        zstd_frame(0, b"\x58" + b"\x45\0\0" + bytes(8)),  # a last block that is said to be compressed
    ],
)
def test_a_damaged_zstd_stream_takes_no_memory_for_what_it_does_not_hold(data: bytes) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(RemoteProtocolError):
            decompress(compression.ZSTD, data, max_bytes=64 * MIB)
        assert tracemalloc.get_traced_memory()[1] < MIB
    finally:
        tracemalloc.stop()
