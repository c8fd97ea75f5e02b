import struct
from itertools import accumulate

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kproxy.codec import compression
from kproxy.codec.batch import (
    HEADER_SIZE,
    BatchHeader,
    Record,
    build_batch,
    crc_ok,
    iter_records,
    read_header,
    stamp,
)
from kproxy.codec.records import CorruptRecord, DecompressionLimit, UnsupportedCodec
from kproxy.errors import LocalProtocolError, RemoteProtocolError
from tests.codec.message_sets import entry, wrapper

MIB = 1 << 20
NOW = 1_700_000_000_000

Headers = tuple[tuple[str, bytes | None], ...]

fields = st.none() | st.binary(max_size=200)
headers = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=3).map(tuple)


bodies = st.tuples(st.integers(1, 100), st.integers(-1, NOW), fields, fields, headers)


def rising(drawn: list[tuple[int, int, bytes | None, bytes | None, Headers]]) -> list[Record]:
    """Records with offsets from 0 on that leave gaps, as compaction does."""
    offsets = accumulate((step for step, *_ in drawn), initial=0)
    return [Record(offset, *rest) for offset, (_, *rest) in zip(offsets, drawn, strict=False)]  # type: ignore[arg-type]


record_lists = st.lists(bodies, min_size=1, max_size=20).map(rising)


def plain(count: int = 3) -> list[Record]:
    return [Record(number, NOW + number, b"key%d" % number, b"value") for number in range(count)]


def records_in(data: bytes | bytearray | memoryview, limit: int = MIB, **options: bool) -> list[Record]:
    return list(iter_records(data, max_decompressed_bytes=limit, **options))


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
        stamp(memoryview(surrounded), producer_id, epoch, sequence, 6)
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


class TestCrc:
    def test_right_and_wrong(self) -> None:
        batch = bytes(build_batch(plain()))
        assert crc_ok(b"x" + batch + b"y", 1, 1 + len(batch))
        assert not crc_ok(batch, 0, len(batch) - 1)
        assert not crc_ok(batch, 0, len(batch) + 1)
        assert not crc_ok(batch, -1, len(batch))
        assert not crc_ok(batch[:60], 0, 60)


class TestBuild:
    def test_relative_to_the_first_offset(self) -> None:
        records = [record._replace(offset=record.offset + 1000) for record in plain()]
        assert records_in(build_batch(records, base_offset=5)) == [
            record._replace(offset=record.offset - 995) for record in records
        ]

    @pytest.mark.parametrize("offsets", [[], [0, 0], [1, 0]])
    def test_what_no_batch_can_say(self, offsets: list[int]) -> None:
        with pytest.raises(LocalProtocolError):
            build_batch([Record(offset, NOW, None, None) for offset in offsets])

    def test_unknown_codec(self) -> None:
        with pytest.raises(LocalProtocolError):
            build_batch(plain(), codec=5)


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

    def test_an_empty_wrapper_holds_nothing(self) -> None:
        assert records_in(wrapper(1, [], offset=3)) == []

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
    def test_malformed_entries(self, data: bytes) -> None:
        with pytest.raises(CorruptRecord):
            records_in(data)

    def test_zstd_needs_magic_2(self) -> None:
        with pytest.raises(UnsupportedCodec):
            records_in(entry(0, None, compression.compress(4, b"x"), attributes=4))

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


def test_header_type_is_a_tuple_in_wire_order() -> None:
    assert BatchHeader._fields[:3] == ("base_offset", "length", "partition_leader_epoch")
