import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kproxy.codec.batch import build_batch
from kproxy.codec.batch_header import (
    HEADER_SIZE,
    BatchHeader,
    assemble,
    crc_ok,
    extend,
    read_header,
    set_transactional,
    stamp,
)
from kproxy.codec.records import Record
from kproxy.errors import RemoteProtocolError
from tests.codec.record_lists import MIB, NOW, plain, record_lists, records_in


def reference_stamp(batch: bytes, producer_id: int, epoch: int, sequence: int) -> bytes:
    return bytes(
        build_batch(
            records_in(batch, 2 * MIB),
            codec=read_header(batch).codec,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
        )
    )


class TestHeader:
    def test_fields_in_wire_order(self) -> None:
        batch = build_batch(
            [Record(0, NOW, None, b"a"), Record(4, NOW - 5, None, b"b")],
            base_offset=100,
            producer_id=1 << 62,
            producer_epoch=3,
            base_sequence=7,
            is_transactional=True,
            partition_leader_epoch=9,
        )
        header = read_header(b"junk" + batch, 4)
        crc = struct.unpack_from(">I", batch, 17)[0]
        assert tuple(header) == (100, len(batch) - 12, 9, 2, crc, 0x10, 4, NOW, NOW, 1 << 62, 3, 7, 2)
        assert (header.size, header.codec) == (len(batch), 0)
        assert (header.is_transactional, header.is_control, header.is_log_append_time) == (True, False, False)

    def test_flags(self) -> None:
        header = read_header(build_batch(plain(), codec=3, timestamp_type=1, is_control=True))
        assert header.attributes == 0x2B
        assert (header.codec, header.is_control, header.is_log_append_time) == (3, True, True)

    def test_a_header_is_enough(self) -> None:
        batch = build_batch(plain())
        assert read_header(batch[:HEADER_SIZE]).size == len(batch)
        for end in range(HEADER_SIZE):
            with pytest.raises(RemoteProtocolError):
                read_header(batch[:end])
        with pytest.raises(RemoteProtocolError):
            read_header(batch, -1)

    @pytest.mark.parametrize(
        ("at", "layout", "value"),
        [
            (16, "b", 1),
            (16, "b", 3),
            (8, "i", 48),
            (8, "i", -1),
            (57, "i", -1),
            (57, "i", 4),
            (23, "i", 1),
            (23, "i", -1),
        ],
    )
    def test_absurd_figures(self, at: int, layout: str, value: int) -> None:
        batch = build_batch(plain())
        struct.pack_into(f">{layout}", batch, at, value)
        with pytest.raises(RemoteProtocolError):
            read_header(batch)


class TestStamp:
    @settings(max_examples=60, deadline=None)
    @given(
        record_lists,
        st.sampled_from([0, 1, 2, 3, 4]),
        st.integers(-1, (1 << 63) - 1),
        st.integers(-1, 32767),
        st.integers(-1, (1 << 31) - 1),
    )
    def test_equals_a_batch_written_so(
        self, records: list[Record], codec: int, producer_id: int, epoch: int, sequence: int
    ) -> None:
        batch = build_batch(records, codec=codec)
        surrounded = bytearray(b"before" + batch + b"behind")
        stamp(memoryview(surrounded)[6:], producer_id, epoch, sequence)
        expected = reference_stamp(bytes(batch), producer_id, epoch, sequence)
        assert bytes(surrounded) == b"before" + expected + b"behind"

    @pytest.mark.parametrize("size", [0, 4000, 4096, 16_384, 1_100_000])
    def test_any_length_and_again(self, size: int) -> None:
        batch = build_batch([Record(0, NOW, None, bytes(size))])
        stamp(batch, 1, 2, 3)
        assert crc_ok(batch, 0, len(batch))
        stamp(batch, 1 << 62 | 99, 32767, (1 << 31) - 1)
        assert bytes(batch) == reference_stamp(bytes(batch), 1 << 62 | 99, 32767, (1 << 31) - 1)

    def test_damage_stays_damage(self) -> None:
        batch = build_batch(plain())
        for at in [*range(17, 43), *range(57, len(batch))]:
            damaged = bytearray(batch)
            damaged[at] ^= 0x40
            stamp(damaged, 5, 6, 7)
            assert not crc_ok(damaged, 0, len(damaged))

    def test_only_whole_batches_of_magic_2(self) -> None:
        batch = build_batch(plain())
        for end in range(len(batch)):
            cut = batch[:end]
            with pytest.raises(RemoteProtocolError):
                stamp(cut, 1, 2, 3)
            assert cut == batch[:end]
        for at, value in ((16, 1), (8, 0xFF), (11, 48)):
            bad = bytearray(batch)
            bad[at] = value
            with pytest.raises(RemoteProtocolError):
                stamp(bad, 1, 2, 3)


class TestClearTransactional:
    @settings(max_examples=60, deadline=None)
    @given(record_lists, st.sampled_from([0, 1, 2, 3, 4]), st.booleans())
    def test_equals_a_batch_written_so(self, records: list[Record], codec: int, was_set: bool) -> None:
        batch = build_batch(records, codec=codec, producer_id=7, is_transactional=was_set)
        surrounded = bytearray(b"before" + batch + b"behind")
        set_transactional(memoryview(surrounded), False, 6)
        assert bytes(surrounded) == b"before" + build_batch(records, codec=codec, producer_id=7) + b"behind"

    def test_damage_stays_damage(self) -> None:
        batch = build_batch(plain(), is_transactional=True)
        for at in [*range(17, 21), *range(23, len(batch))]:
            damaged = bytearray(batch)
            damaged[at] ^= 0x40
            set_transactional(damaged, False)
            assert not crc_ok(damaged, 0, len(damaged))

    def test_only_whole_batches_of_magic_2(self) -> None:
        batch = build_batch(plain(), is_transactional=True)
        for end in range(len(batch)):
            cut = batch[:end]
            with pytest.raises(RemoteProtocolError):
                set_transactional(cut, False)
            assert cut == batch[:end]
        for at, value in ((16, 1), (8, 0xFF), (11, 48)):
            bad = bytearray(batch)
            bad[at] = value
            with pytest.raises(RemoteProtocolError):
                set_transactional(bad, False)
        with pytest.raises(RemoteProtocolError):
            set_transactional(batch, False, -1)


class TestCrc:
    def test_right_and_wrong(self) -> None:
        batch = bytes(build_batch(plain()))
        assert crc_ok(b"x" + batch + b"y", 1, 1 + len(batch))
        assert not crc_ok(batch, 0, len(batch) - 1)
        assert not crc_ok(batch, 0, len(batch) + 1)
        assert not crc_ok(batch, -1, len(batch))
        assert not crc_ok(batch[:60], 0, 60)


class TestAssemble:
    def test_a_batch_taken_apart_and_joined_again_is_the_same(self) -> None:
        batch = build_batch(plain(), codec=1, base_offset=7, producer_id=5, producer_epoch=6, base_sequence=8)
        assert assemble(read_header(batch), batch[HEADER_SIZE:]) == batch

    def test_length_magic_and_checksum_are_filled_in(self) -> None:
        batch = build_batch(plain())
        false = read_header(batch)._replace(length=0, magic=1, crc=0)
        assert assemble(false, batch[HEADER_SIZE:]) == batch


def test_header_type_is_a_tuple_in_wire_order() -> None:
    assert BatchHeader._fields[:3] == ("base_offset", "length", "partition_leader_epoch")


class TestExtend:
    @settings(max_examples=100, deadline=None)
    @given(record_lists, st.integers(0, 4), st.integers(1, 1 << 20))
    def test_later_offsets_same_records_right_checksum(self, records: list[Record], codec: int, more: int) -> None:
        batch = bytes(build_batch(records, codec=codec, base_offset=100))
        behind = 100 + records[-1].offset + 1
        longer = b"".join(extend(memoryview(batch), behind + more, 3))
        assert crc_ok(longer, 0, len(longer))
        header = read_header(longer)
        assert header.base_offset + header.last_offset_delta + 1 == behind + more
        assert header.partition_leader_epoch == 3
        assert records_in(longer) == records_in(batch)

    def test_no_further_than_31_bits_allow(self) -> None:
        batch = b"".join(extend(memoryview(build_batch(plain(), base_offset=7)), 1 << 40, 3))
        assert read_header(batch).last_offset_delta == 2**31 - 1
        assert crc_ok(batch, 0, len(batch))

    def test_damage_stays_visible(self) -> None:
        damaged = build_batch(plain())
        damaged[-1] ^= 1
        assert not crc_ok(b"".join(extend(memoryview(damaged), 50, 3)), 0, len(damaged))
