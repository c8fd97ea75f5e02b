import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kproxy.codec.batch import build_batch
from kproxy.codec.batch_header import HEADER_SIZE, crc_ok, read_header, stamp
from kproxy.codec.batch_reader import end_of_first, entry_size, records_of, walk_batches
from kproxy.codec.records import CONTROL, CorruptRecord, DecompressionLimit, Record
from kproxy.errors import RemoteProtocolError
from tests.codec.message_sets import entry, wrapper
from tests.codec.record_lists import NOW, plain, record_lists, records_in


class TestReading:
    @settings(max_examples=80, deadline=None)
    @given(record_lists, st.sampled_from([0, 1, 2, 3, 4]), st.integers(0, 1 << 40))
    def test_round_trip(self, records: list[Record], codec: int, base: int) -> None:
        batch = build_batch(records, codec=codec, base_offset=base)
        assert crc_ok(batch, 0, len(batch))
        assert records_in(batch) == [record._replace(offset=base + record.offset) for record in records]

    def test_log_append_time_holds_for_all(self) -> None:
        batch = build_batch(plain(), timestamp_type=1)
        assert {record.timestamp for record in records_in(batch)} == {NOW + 2}

    def test_control_batches_only_when_asked_for(self) -> None:
        data = build_batch(plain(1)) + build_batch(plain(1), is_control=True, base_offset=1)
        assert [record.offset for record in records_in(data)] == [0]
        assert [record.offset for record in records_in(data, include_control=True)] == [0, 1]

    def test_all_formats_in_one_set(self) -> None:
        data = (
            entry(0, None, b"a", magic=0)
            + wrapper(1, [entry(1, b"k", b"b", magic=0), entry(2, None, None, magic=0)], offset=2, magic=0)
            + entry(3, b"", b"", timestamp=NOW)
            + wrapper(2, [entry(0, None, b"c", timestamp=4), entry(2, None, b"d", timestamp=5)], offset=6)
            + wrapper(3, [entry(0, None, b"e", timestamp=4)], offset=7, timestamp=NOW, attributes=8)
            + build_batch([Record(0, NOW, None, b"f", (("h", None),))], codec=4, base_offset=8)
        )
        expected = [
            Record(0, -1, None, b"a"),
            Record(1, -1, b"k", b"b"),
            Record(2, -1, None, None),
            Record(3, NOW, b"", b""),
            Record(4, 4, None, b"c"),
            Record(6, 5, None, b"d"),
            Record(7, NOW, None, b"e"),
            Record(8, NOW, None, b"f", (("h", None),)),
        ]
        assert records_in(data) == expected
        seen = set()
        for end in range(len(data)):
            got = records_in(data[:end])
            assert got == expected[: len(got)]
            seen.add(len(got))
        assert seen == {0, 1, 3, 4, 6, 7}

    def test_the_limit(self) -> None:
        batch = build_batch([Record(0, NOW, None, bytes(5000))], codec=1)
        assert len(records_in(batch, 5020)) == 1
        with pytest.raises(DecompressionLimit):
            records_in(batch, 5000)

    @pytest.mark.parametrize(
        "record",
        [
            b"",
            b"\x00",
            b"\x01",
            b"\x10\x00\x00\x00\x01\x01",
            b"\x0a\x00\x00\x00\x01\x01\x00",
            b"\x0c\x00\x00\x00\x03\x01\x00",
            b"\x0c\x00\x00\x00\x01\x08\x00",
            b"\x0c\x00\x00\x00\x01\x01\x01",
            b"\x0c\x00\x00\x00\x01\x01\x02",
            b"\x10\x00\x00\x00\x01\x01\x02\x01\x01",
            b"\x12\x00\x00\x00\x01\x01\x02\x02\xff\x01",
            b"\x0c\x00\x00\x00\x01\x01\x00\x00",
            b"\x1e\x00" + b"\xff" * 11 + b"\x00\x00\x00",
        ],
    )
    def test_malformed_records(self, record: bytes) -> None:
        batch = build_batch([Record(0, NOW, None, None)])[:HEADER_SIZE] + record
        struct.pack_into(">i", batch, 8, len(batch) - 12)
        with pytest.raises(RemoteProtocolError):
            records_in(batch)

    @pytest.mark.parametrize(
        "data",
        [
            struct.pack(">qii", 0, 13, 0) + b"\x00" + bytes(30),
            struct.pack(">qii", 0, 21, 0) + b"\x01" + bytes(30),
            struct.pack(">qii", 0, -1, 0) + b"\x02" + bytes(90),
            struct.pack(">qii", 0, 60, 0) + b"\x03" + bytes(90),
        ],
    )
    def test_impossible_sizes(self, data: bytes) -> None:
        with pytest.raises(CorruptRecord):
            records_in(data)

    @settings(max_examples=100, deadline=None)
    @given(st.sampled_from([0, 1, 2]), st.sampled_from([0, 1, 3]), st.data())
    def test_damage_raises_nothing_else(self, magic: int, codec: int, data: st.DataObject) -> None:
        if magic == 2:
            whole = bytes(
                build_batch([Record(0, NOW, b"k", b"v", (("h", b"x"),)), Record(1, NOW, None, None)], codec=codec)
            )
        else:
            inner = [entry(0, b"k", b"v", magic=magic), entry(1, None, b"w", magic=magic)]
            whole = wrapper(codec, inner, magic=magic, offset=1) if codec else b"".join(inner)
        damaged = bytearray(whole)
        for at, value in data.draw(
            st.lists(st.tuples(st.integers(0, len(whole) - 1), st.integers(0, 255)), max_size=4)
        ):
            damaged[at] = value
        try:
            records_in(damaged)
        except RemoteProtocolError:
            return


class TestEntrySize:
    @pytest.mark.parametrize(
        "whole", [entry(0, b"k", b"v", magic=0), entry(0, b"k", b"v"), bytes(build_batch(plain()))]
    )
    def test_the_magic_byte_is_all_it_waits_for(self, whole: bytes) -> None:
        for end in range(17):
            assert entry_size(memoryview(whole[:end]), 0) == 0
        for end in range(17, len(whole) + 1):
            assert entry_size(memoryview(whole[:end]), 0) == len(whole)
        assert entry_size(memoryview(b"###" + whole + b"###"), 3) == len(whole)


class TestRecordsOf:
    @pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
    def test_the_block_is_that_of_an_uncompressed_batch(self, codec: int) -> None:
        batch = build_batch(plain(), codec=codec)
        block = bytes(build_batch(plain())[HEADER_SIZE:])
        assert records_of(read_header(batch), memoryview(batch), len(block)) == block
        with pytest.raises(DecompressionLimit):
            records_of(read_header(batch), memoryview(batch), len(block) - 1)


class TestWalkBatches:
    def test_the_last_two_headers_and_the_end(self) -> None:
        one, two = build_batch(plain()), build_batch([Record(0, NOW, None, b"v")])
        assert walk_batches(b"", CONTROL, 1) == (-1, -1, 0)
        assert walk_batches(one, CONTROL, 1) == (-1, 0, len(one))
        assert walk_batches(one + two, CONTROL, 1) == (0, len(one), len(one) + len(two))

    def test_the_last_batch_may_be_cut(self) -> None:
        one = build_batch(plain())
        assert walk_batches(one + one[:HEADER_SIZE], CONTROL, 1) == (0, len(one), 2 * len(one))
        assert walk_batches(one + one[: HEADER_SIZE - 1], CONTROL, 1) == (-1, 0, len(one))

    def test_what_has_to_be_examined(self) -> None:
        batch = bytearray(build_batch(plain()))
        stamp(batch, 7, 0, 0)
        assert walk_batches(batch, CONTROL, 8) == (-1, 0, len(batch))
        assert walk_batches(batch, CONTROL, 7) is None
        for at, byte in ((16, 1), (22, CONTROL), (60, 0), (57, 0xFF), (8, 0xFF), (11, HEADER_SIZE - 13)):
            other = batch[:]
            other[at] = byte
            if at == 60:
                other[57:61] = bytes(4)
            if at == 11:
                other[8:11] = bytes(3)
            assert walk_batches(other, CONTROL, 8) is None


def test_the_end_of_the_first_batches_of_a_record_set() -> None:
    parts = [entry(0, None, b"a", magic=0), entry(1, b"k", None), bytes(build_batch(plain(), base_offset=2))]
    data = b"".join(parts)
    ends = [len(parts[0]), len(parts[0] + parts[1]), len(data), len(data)]
    assert [end_of_first(data, most) for most in (1, 2, 3, 4)] == ends
    assert end_of_first(memoryview(data), 0) == 0
    assert [end_of_first(data[:-1], most) for most in (2, 3)] == [ends[1], len(data) - 1], "the last one is cut off"
    assert end_of_first(bytes(8) + b"\xff" * 80, 5) == 88, "its reader finds out that it is none"
