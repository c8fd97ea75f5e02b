import struct

import cramjam
import pytest

from kproxy.codec import compression, snappy_frame
from kproxy.codec.compression import compress, decompress
from kproxy.codec.records import DecompressionLimit
from kproxy.errors import RemoteProtocolError
from tests.codec.compressible import TEXT, XERIAL


class TestSnappy:
    def test_a_raw_block_is_accepted(self) -> None:
        raw = bytes(cramjam.snappy.compress_raw(TEXT))
        assert bytes(decompress(compression.SNAPPY, raw, max_bytes=len(TEXT))) == TEXT
        with pytest.raises(DecompressionLimit):
            decompress(compression.SNAPPY, raw, max_bytes=len(TEXT) - 1)

    def test_xerial_framing_is_written_in_blocks_of_32_kib(self) -> None:
        packed = compress(compression.SNAPPY, TEXT[: (1 << 15) + 1])
        assert packed.startswith(XERIAL)
        (first,) = struct.unpack_from(">I", packed, 16)
        assert cramjam.snappy.decompress_raw_len(packed[20 : 20 + first]) == 1 << 15

    def test_concatenated_streams_count_as_one(self) -> None:
        packed = compress(compression.SNAPPY, b"abc") + compress(compression.SNAPPY, b"def")
        assert bytes(decompress(compression.SNAPPY, packed, max_bytes=6)) == b"abcdef"
        with pytest.raises(DecompressionLimit):
            decompress(compression.SNAPPY, packed, max_bytes=5)

    def test_a_lying_length_is_refused_before_anything_is_allocated(self) -> None:
        lie = b"\xff\xff\xff\xff\x0f" + b"abc"
        with pytest.raises(RemoteProtocolError, match="impossible"):
            decompress(compression.SNAPPY, lie, max_bytes=1 << 40)


@pytest.mark.parametrize("blocks", [0, 1, 3])
def test_a_stream_may_end_after_any_block(blocks: int) -> None:
    raw = bytes(cramjam.snappy.compress_raw(b"abc"))
    stream = XERIAL + (struct.pack(">I", len(raw)) + raw) * blocks
    assert bytes(snappy_frame.decompress(stream, max_bytes=3 * blocks)) == b"abc" * blocks


@pytest.mark.parametrize("length", [0, 4, 6, 1 << 31, (1 << 32) - 1])
def test_a_block_length_that_does_not_fit_is_refused(length: int) -> None:
    raw = bytes(cramjam.snappy.compress_raw(b"abc"))
    assert len(raw) == 5
    with pytest.raises(RemoteProtocolError):
        snappy_frame.decompress(XERIAL + struct.pack(">I", length) + raw, max_bytes=1000)
