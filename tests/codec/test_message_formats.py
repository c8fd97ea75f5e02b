import resource
import struct
import tracemalloc

import pytest

from kproxy.codec import compression
from kproxy.codec.batch import HEADER_SIZE, Record, build_batch
from kproxy.codec.records import DecompressionLimit
from tests.codec.conversions import MIB, NOW, down, up
from tests.codec.message_sets import entry, wrapper


class TestMemory:
    """Many tiny records cost the most objects for each byte."""

    LIMIT = 8 * MIB

    def peak(self, convert: str, data: bytes) -> int:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        tracemalloc.start()
        try:
            if convert == "up":
                up(data, unpacked=self.LIMIT)
            else:
                down(data, magic=1, unpacked=self.LIMIT)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
            assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 128 * 1024  # KiB

    def test_up(self) -> None:
        assert self.peak("up", wrapper(1, [entry(0, None, None, magic=0)] * 60_000, magic=0)) < 8 * MIB

    def test_down(self) -> None:
        batch = build_batch([Record(0, NOW, None, None)], codec=1)
        payload = b"\x0c\x00\x00\x00\x01\x01\x00" * 60_000
        struct.pack_into(">i", batch, 23, 59_999)
        struct.pack_into(">i", batch, 57, 60_000)
        batch[HEADER_SIZE:] = compression.compress(1, payload)
        struct.pack_into(">i", batch, 8, len(batch) - 12)
        assert self.peak("down", bytes(batch)) < 8 * MIB

    @pytest.mark.parametrize("codec", [1, 2, 3])
    def test_bombs(self, codec: int) -> None:
        bomb = wrapper(codec, [entry(0, None, bytes(16 * MIB))])
        with pytest.raises(DecompressionLimit):
            self.peak("up", bomb)
        batch = build_batch([Record(0, NOW, None, bytes(16 * MIB))], codec=codec)
        with pytest.raises(DecompressionLimit):
            self.peak("down", bytes(batch))
