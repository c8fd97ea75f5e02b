import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kproxy.codec import compression
from kproxy.codec.batch import HEADER_SIZE, Record, build_batch
from kproxy.codec.downconvert import from_v2
from kproxy.codec.records import CorruptRecord
from kproxy.errors import LocalProtocolError, RemoteProtocolError
from tests.codec.conversions import MIB, NOW, down, read, records
from tests.codec.message_sets import Triple, entry, message_set, wrapper


class TestFromV2:
    @settings(max_examples=100, deadline=None)
    @given(records, st.integers(0, 1), st.sampled_from([0, 1, 2, 3, 4]), st.integers(0, 25), st.integers(0, 1))
    def test_same_records_from_the_first_offset_on(
        self, triples: list[Triple], magic: int, codec: int, first: int, time_type: int
    ) -> None:
        stored = [Record(n, max(time, 0), k, v, (("h", b"x"),)) for n, (time, k, v) in enumerate(triples)]
        batch = build_batch(stored, codec=codec, base_offset=100, timestamp_type=time_type)
        got = down(batch, magic=magic, first=100 + first)
        kept = [record._replace(headers=()) for record in read(batch) if record.offset >= 100 + first]
        assert read(got.data) == (kept if magic else [record._replace(timestamp=-1) for record in kept])
        assert got.record_count == len(kept)
        assert got.next_offset == 100 + max(len(triples), first)

    @settings(max_examples=100, deadline=None)
    @given(records, st.integers(0, 1))
    def test_byte_for_byte_uncompressed(self, triples: list[Triple], magic: int) -> None:
        batch = build_batch([Record(n, time, k, v) for n, (time, k, v) in enumerate(triples)])
        assert down(batch, magic=magic).data == message_set(triples, magic, 0)

    def test_offsets_inside_and_on_a_wrapper(self) -> None:
        stored = [Record(offset, NOW - offset, None, b"x") for offset in (0, 2, 5)]
        batch = build_batch(stored, codec=1, base_offset=40)
        inner = [entry(offset, None, b"x", timestamp=NOW - offset) for offset in (0, 2, 5)]
        assert down(batch, magic=1).data == wrapper(1, inner, offset=45, timestamp=NOW)
        inner = [entry(offset, None, b"x", magic=0) for offset in (42, 45)]
        assert down(batch, magic=0, first=41).data == wrapper(1, inner, offset=45, magic=0)

    def test_log_append_time_is_carried(self) -> None:
        batch = build_batch([Record(0, NOW, None, b"x")], codec=1, timestamp_type=1)
        inner = [entry(0, None, b"x", timestamp=NOW, attributes=8)]
        assert down(batch, magic=1).data == wrapper(1, inner, timestamp=NOW, attributes=8)

    @pytest.mark.parametrize("magic", [0, 1])
    def test_zstd_becomes_gzip_and_other_wishes_are_met(self, magic: int) -> None:
        batch = build_batch([Record(0, NOW, None, bytes(100))], codec=4)
        assert down(batch, magic=magic).data[17] == compression.GZIP
        options = {"magic": magic, "first_offset": 0, "max_decompressed_bytes": MIB, "max_bytes": MIB}
        assert from_v2(batch, **options, transcode={4: 0}).data == message_set([(NOW, None, bytes(100))], magic, 0)
        lz4 = build_batch([Record(0, NOW, None, bytes(100))], codec=3)
        assert from_v2(lz4, **options, transcode={3: 2}).data[17] == compression.SNAPPY
        with pytest.raises(LocalProtocolError):
            from_v2(batch, **options, transcode={})

    def test_control_and_empty_batches_move_the_offset_only(self) -> None:
        marker = build_batch([Record(0, NOW, b"\0\0\0\0", b"")], is_control=True, base_offset=7)
        empty = build_batch([Record(0, NOW, None, b""), Record(9, NOW, None, b"")], base_offset=8)[:HEADER_SIZE]
        struct.pack_into(">i", empty, 8, HEADER_SIZE - 12)
        struct.pack_into(">i", empty, 57, 0)
        assert down(marker, magic=1, first=7) == (b"", 8, 0)
        assert down(marker + empty, magic=1, first=7) == (b"", 18, 0)
        data = build_batch([Record(0, NOW, None, b"x")], base_offset=18)
        got = down(marker + empty + data, magic=1, first=7)
        assert (got.next_offset, got.record_count) == (19, 1)

    def test_batches_below_the_first_offset_are_not_opened(self) -> None:
        broken = build_batch([Record(0, NOW, None, b"x")], codec=1)
        broken[HEADER_SIZE:] = b"?" * len(broken[HEADER_SIZE:])
        assert down(broken, magic=1, first=1) == (b"", 1, 0)
        with pytest.raises(RemoteProtocolError):
            down(broken, magic=1)

    @pytest.mark.parametrize("magic", [0, 1])
    def test_cut_anywhere_leaves_whole_batches(self, magic: int) -> None:
        batches = [
            build_batch([Record(0, NOW, None, b"x" * 30)] * 1, codec=codec, base_offset=codec * 10)
            for codec in range(5)
        ]
        data, wholes = b"".join(batches), [down(b"".join(batches[:n]), magic=magic) for n in range(6)]
        for end in range(len(data) + 1):
            whole = sum(end >= sum(map(len, batches[:n])) for n in range(1, 6))
            assert down(data[:end], magic=magic) == wholes[whole]

    def test_stops_before_the_batch_that_would_exceed(self) -> None:
        data = b"".join(build_batch([Record(0, NOW, None, bytes(66))], base_offset=n) for n in range(5))
        assert down(data, magic=1, limit=1)[1:] == (1, 1)
        assert down(data, magic=1, limit=199)[1:] == (1, 1)
        assert down(data, magic=1, limit=200)[1:] == (2, 2)
        assert down(data, magic=1, limit=499)[1:] == (4, 4)
        assert down(data, magic=1, first=3, limit=100)[1:] == (4, 1)

    @pytest.mark.parametrize(
        "absurd", [b"\x0a\x00", b"\x0c\x00\x00\x00\x01\x01\x00\x00", b"\x0c\x00\x00\x00\x03\x01\x00"]
    )
    def test_malformed_records(self, absurd: bytes) -> None:
        batch = build_batch([Record(0, NOW, None, None)])[:HEADER_SIZE] + absurd
        struct.pack_into(">i", batch, 8, len(batch) - 12)
        with pytest.raises(CorruptRecord):
            down(batch, magic=1)

    def test_a_time_beyond_64_bits(self) -> None:
        batch = build_batch([Record(0, 5, None, None), Record(1, (1 << 63) - 1, None, None)])
        struct.pack_into(">q", batch, 27, 1 << 62)
        with pytest.raises(CorruptRecord):
            down(batch, magic=1)

    @settings(max_examples=100, deadline=None)
    @given(st.integers(0, 1), st.sampled_from([0, 1]), st.data())
    def test_damage_raises_nothing_else(self, magic: int, codec: int, data: st.DataObject) -> None:
        damaged = build_batch(
            [Record(0, NOW, b"k", b"v", (("h", b"x"),)), Record(1, NOW, None, b"w" * 70)], codec=codec
        )
        places = st.tuples(st.integers(0, len(damaged) - 1), st.integers(0, 255))
        for at, value in data.draw(st.lists(places, min_size=1, max_size=4)):
            damaged[at] = value
        try:
            got = down(damaged, magic=magic)
            assert len(read(got.data)) == got.record_count
        except RemoteProtocolError:
            return


class TestOldSegments:
    """Brokers may still hold what was written in an old format."""

    def test_an_old_enough_format_is_passed_on_untouched(self) -> None:
        for magic in (0, 1):
            data = message_set([(NOW, None, b"a"), (NOW, b"k", None)], magic, 0, start=5)
            data += wrapper(
                1, [entry(0, None, b"b", magic=magic), entry(1, None, b"c", magic=magic)], magic=magic, offset=8
            )
            assert down(data, magic=1) == (data, 9, 4)
            assert down(data[:-1], magic=1).next_offset == 7
        assert down(data, magic=1, first=6).data == data[len(message_set([(NOW, None, b"a")], 1, 0)) :]

    @pytest.mark.parametrize("codec", [0, 1, 2, 3])
    def test_magic_1_for_a_reader_of_magic_0(self, codec: int) -> None:
        triples: list[Triple] = [(NOW, None, b"a"), (NOW, b"k", None)]
        entries = [entry(number, key, value, timestamp=time) for number, (time, key, value) in enumerate(triples)]
        data = wrapper(codec, entries, offset=8) if codec else b"".join(entries)
        got = down(data, magic=0)
        base = 7 if codec else 0
        assert got.data == message_set(triples, 0, codec, start=base)
        assert (got.next_offset, got.record_count) == (base + 2, 2)

    def test_a_codec_to_be_replaced(self) -> None:
        data = wrapper(3, [entry(4, None, b"a", magic=0), entry(5, None, b"b", magic=0)], magic=0, offset=5)
        got = from_v2(
            data, magic=0, first_offset=5, max_decompressed_bytes=MIB, max_bytes=MIB, transcode={3: compression.NONE}
        )
        assert got == (entry(5, None, b"b", magic=0), 6, 1)

    def test_a_wrapper_whose_offsets_are_too_far_apart_is_corrupt(self) -> None:
        with pytest.raises(CorruptRecord):
            down(wrapper(1, [entry(0, None, b"a"), entry(1 << 31, None, b"b")], offset=1 << 31), magic=0)

    @pytest.mark.parametrize("magic", [0, 1])
    def test_a_batch_whose_offsets_are_beyond_64_bits_is_corrupt(self, magic: int) -> None:
        batch = build_batch([Record(n, NOW, None, b"x") for n in range(2)], codec=1, base_offset=(1 << 63) - 1)
        with pytest.raises(CorruptRecord):
            down(batch, magic=magic)

    def test_an_empty_wrapper_only_moves_the_offset(self) -> None:
        assert down(wrapper(1, [], offset=8), magic=0) == (b"", 9, 0)

    def test_offsets_that_do_not_rise_cannot_be_converted(self) -> None:
        with pytest.raises(CorruptRecord):
            down(wrapper(1, [entry(5, None, b"a"), entry(5, None, b"b")], offset=8), magic=0)
