import random
import struct

import cramjam
import pytest
from xxhash import xxh32_intdigest

from kproxy.codec import compression, lz4_frame
from kproxy.codec.compression import compress, decompress
from kproxy.codec.records import DecompressionLimit
from kproxy.errors import RemoteProtocolError
from tests.codec.compressible import MIB, TEXT


class TestLz4:
    RIGHT = bytes.fromhex("04224d18604082")
    BROKEN = bytes.fromhex("04224d1860401a")

    def test_the_header_checksum_is_the_broken_one_in_magic_0_only(self) -> None:
        assert compress(compression.LZ4, TEXT, magic=0).startswith(self.BROKEN)
        assert compress(compression.LZ4, TEXT, magic=1).startswith(self.RIGHT)
        assert compress(compression.LZ4, TEXT).startswith(self.RIGHT)

    def test_both_header_checksums_are_read_and_no_third(self) -> None:
        frame = compress(compression.LZ4, TEXT)
        for header in (self.RIGHT, self.BROKEN):
            assert bytes(decompress(compression.LZ4, header + frame[7:], max_bytes=MIB)) == TEXT
        with pytest.raises(RemoteProtocolError, match="checksum"):
            decompress(compression.LZ4, self.RIGHT[:6] + b"\x00" + frame[7:], max_bytes=MIB)

    def test_what_does_not_compress_is_stored(self) -> None:
        noise = random.Random(1).randbytes(1 << 16)
        frame = compress(compression.LZ4, noise)
        assert len(frame) == len(noise) + 15
        assert bytes(decompress(compression.LZ4, frame, max_bytes=MIB)) == noise

    @pytest.mark.parametrize("linked", [False, True])
    @pytest.mark.parametrize("checksum", [False, True])
    def test_other_writers_frames(self, linked: bool, checksum: bool) -> None:
        writer = cramjam.lz4.Compressor(level=1, content_checksum=checksum, block_linked=linked)
        writer.compress(TEXT)
        frame = bytes(writer.finish())
        assert bytes(decompress(compression.LZ4, frame, max_bytes=len(TEXT))) == TEXT
        for damaged in (frame[:-1], frame + b"\x00"):
            with pytest.raises(RemoteProtocolError):
                decompress(compression.LZ4, damaged, max_bytes=MIB)

    def test_a_declared_content_size(self) -> None:
        descriptor = b"\x68\x40" + struct.pack("<Q", 3)
        plain = self.RIGHT[:4] + descriptor
        block = struct.pack("<I", 3 | 1 << 31) + b"abc" + bytes(4)
        for covered in (descriptor, plain):
            frame = plain + bytes([xxh32_intdigest(covered) >> 8 & 0xFF]) + block
            assert bytes(decompress(compression.LZ4, frame, max_bytes=3)) == b"abc"
            for end in range(len(frame)):
                with pytest.raises(RemoteProtocolError):
                    decompress(compression.LZ4, frame[:end], max_bytes=3)

    @pytest.mark.parametrize("flags", ["2040", "6140", "6240", "6030", "60c0", "6041"])
    def test_header_flags_that_nobody_may_set(self, flags: str) -> None:
        with pytest.raises(RemoteProtocolError, match="unsupported"):
            decompress(compression.LZ4, self.RIGHT[:4] + bytes.fromhex(flags) + bytes(5), max_bytes=MIB)


def test_content_of_several_blocks_within_exactly_the_limit() -> None:
    frame = lz4_frame.compress(TEXT)
    assert len(TEXT) > 3 << 16
    assert bytes(lz4_frame.decompress(frame, max_bytes=len(TEXT))) == TEXT
    with pytest.raises(DecompressionLimit):
        lz4_frame.decompress(frame, max_bytes=len(TEXT) - 1)
