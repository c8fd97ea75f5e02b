import struct

import pytest

from kproxy.codec import compression
from kproxy.codec.message_set import MessageEntry, iter_entry, read_entry, unwrap
from kproxy.codec.records import CorruptRecord, DecompressionLimit, Record, UnsupportedCodec
from tests.codec.message_sets import entry, wrapper
from tests.codec.record_lists import NOW, records_in


class TestReadEntry:
    @pytest.mark.parametrize(("magic", "timestamp"), [(0, -1), (1, NOW)])
    def test_fields_after_other_bytes(self, magic: int, timestamp: int) -> None:
        data = entry(9, b"key", b"value", magic=magic, timestamp=NOW, attributes=8)
        read = read_entry(memoryview(b"before" + data + b"behind"), 6)
        assert read == MessageEntry(9, len(data), magic, 8, timestamp, memoryview(b"key"), memoryview(b"value"))
        assert (read.codec, read.is_log_append_time) == (0, True)

    @pytest.mark.parametrize("magic", [0, 1])
    def test_null_is_not_empty(self, magic: int) -> None:
        for field in (None, b""):
            read = read_entry(memoryview(entry(0, field, field, magic=magic)), 0)
            assert read[-2:] == (field, field)

    @pytest.mark.parametrize("magic", [0, 1])
    def test_cut_anywhere_is_corrupt(self, magic: int) -> None:
        data = entry(0, b"key", b"value", magic=magic)
        for end in range(len(data)):
            with pytest.raises(CorruptRecord):
                read_entry(memoryview(data[:end]), 0, check_crc=False)

    @pytest.mark.parametrize("magic", [0, 1])
    def test_the_checksum_covers_all_after_it_and_may_go_unchecked(self, magic: int) -> None:
        data = entry(5, b"key", b"value", magic=magic)
        for at in range(16, len(data)):
            damaged = bytearray(data)
            damaged[at] ^= 0x20
            with pytest.raises(CorruptRecord):
                read_entry(memoryview(damaged), 0)
        assert read_entry(memoryview(damaged), 0, check_crc=False).value == b"valuE"


class TestUnwrap:
    def test_the_set_inside_within_exactly_the_limit(self) -> None:
        inner = entry(0, None, b"a") + entry(1, b"k", None)
        outer = read_entry(memoryview(wrapper(1, [inner])), 0)
        assert outer.codec == compression.GZIP
        assert unwrap(outer, len(inner)) == inner
        with pytest.raises(DecompressionLimit):
            unwrap(outer, len(inner) - 1)

    @pytest.mark.parametrize("value", [None, b"", b"no gzip"])
    def test_what_is_no_set_is_corrupt(self, value: bytes | None) -> None:
        with pytest.raises(CorruptRecord):
            unwrap(read_entry(memoryview(entry(0, None, value, attributes=1)), 0), 1000)


def test_log_append_time_of_a_wrapper_holds_inside() -> None:
    inner = [entry(0, None, b"a", timestamp=5), entry(1, None, b"b", timestamp=6)]
    records = iter_entry(memoryview(wrapper(2, inner, offset=31, timestamp=NOW, attributes=8)), 1000)
    assert list(records) == [Record(30, NOW, None, b"a"), Record(31, NOW, None, b"b")]


def test_an_empty_wrapper_holds_nothing() -> None:
    assert records_in(wrapper(1, [], offset=3)) == []


@pytest.mark.parametrize(
    "data",
    [
        entry(0, None, b"")[:-4] + struct.pack(">i", 5),
        entry(0, None, b"")[:-4] + struct.pack(">i", -2),
        entry(0, None, b"a")[:-5] + struct.pack(">i", 0) + b"a",
        entry(0, None, None, attributes=1),
        wrapper(1, [wrapper(1, [entry(0, None, b"x")])]),
        wrapper(1, [entry(0, None, b"x", magic=0)]),
        wrapper(1, [entry(0, None, b"x")[:-1]]),
        wrapper(1, [b"\x00"]),
        entry(0, b"abcdefgh", None)[:26] + struct.pack(">i", 12) + bytes(12),
        entry(0, None, b"no gzip", attributes=1),
    ],
)
def test_malformed_entries(data: bytes) -> None:
    with pytest.raises(CorruptRecord):
        records_in(data)


def test_zstd_needs_magic_2() -> None:
    with pytest.raises(UnsupportedCodec):
        records_in(entry(0, None, compression.compress(4, b"x"), attributes=4))
