import random
import resource
import struct
import tracemalloc
import zlib
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kproxy.codec import compression
from kproxy.codec.batch import HEADER_SIZE, Record, build_batch, crc_ok, iter_records, read_header
from kproxy.codec.legacy import ConvertedBatch, Downconverted, from_v2, to_v2
from kproxy.codec.records import CorruptRecord, DecompressionLimit, UnsupportedCodec
from kproxy.errors import LocalProtocolError, RemoteProtocolError
from tests.codec.message_sets import entry, wrapper

MIB = 1 << 20
NOW = 1_700_000_000_000
ARRIVAL = NOW + 999

fields = st.none() | st.binary(max_size=100) | st.integers(0, 300).map(lambda size: bytes(size))
records = st.lists(st.tuples(st.integers(-1, NOW), fields, fields), min_size=1, max_size=20)
Triple = tuple[int, bytes | None, bytes | None]


def up(data: bytes | memoryview, *, limit: int = MIB, unpacked: int = MIB) -> list[ConvertedBatch]:
    return to_v2(data, arrival_ms=ARRIVAL, max_batch_bytes=limit, max_decompressed_bytes=unpacked)


def down(
    data: bytes | bytearray, *, magic: int, first: int = 0, limit: int = MIB, unpacked: int = MIB
) -> Downconverted:
    return from_v2(data, magic=magic, first_offset=first, max_decompressed_bytes=unpacked, max_bytes=limit)


def read(data: bytes | bytearray) -> list[Record]:
    return list(iter_records(data, max_decompressed_bytes=16 * MIB))


def message_set(triples: Sequence[Triple], magic: int, codec: int, start: int = 0) -> bytes:
    entries = [
        entry(start + number, key, value, magic=magic, timestamp=time)
        for number, (time, key, value) in enumerate(triples)
    ]
    if codec == compression.NONE:
        return b"".join(entries)
    return wrapper(codec, entries, magic=magic, offset=start + len(entries) - 1)


def numbered(triples: Sequence[Triple], *, magic: int) -> list[Record]:
    return [
        Record(number, ARRIVAL if magic == 0 or time < 0 else time, key, value)
        for number, (time, key, value) in enumerate(triples)
    ]


class TestToV2:
    @settings(max_examples=100, deadline=None)
    @given(records, st.integers(0, 1), st.sampled_from([0, 1, 2, 3]))
    def test_same_records_in_one_valid_batch(self, triples: list[Triple], magic: int, codec: int) -> None:
        (batch,) = up(message_set(triples, magic, codec))
        assert crc_ok(batch.data, 0, len(batch.data))
        header = read_header(batch.data)
        assert header.size == len(batch.data)
        assert header.codec == codec
        assert batch.record_count == header.record_count == header.last_offset_delta + 1 == len(triples)
        assert (header.base_offset, header.producer_id, header.producer_epoch, header.base_sequence) == (0, -1, -1, -1)
        expected = numbered(triples, magic=magic)
        assert header.max_timestamp == max(record.timestamp for record in expected)
        assert header.base_timestamp == expected[0].timestamp
        assert read(batch.data) == expected

    @settings(max_examples=100, deadline=None)
    @given(records, st.integers(0, 1))
    def test_byte_for_byte_what_the_plain_writer_makes(self, triples: list[Triple], magic: int) -> None:
        assert up(message_set(triples, magic, 0))[0].data == build_batch(numbered(triples, magic=magic))

    def test_an_empty_set_is_no_batch(self) -> None:
        assert up(b"") == []
        assert up(wrapper(1, [])) == []

    @pytest.mark.parametrize("magic", [0, 1])
    @pytest.mark.parametrize("offsets", [[0, 0, 0], [7, 5, 90], [-1, -1, -1]])
    def test_offsets_are_never_looked_at(self, magic: int, offsets: list[int]) -> None:
        inner = [entry(offset, None, b"%d" % number, magic=magic) for number, offset in enumerate(offsets)]
        for data in (b"".join(inner), wrapper(2, inner, magic=magic)):
            (batch,) = up(data)
            assert [(record.offset, record.value) for record in read(batch.data)] == [(0, b"0"), (1, b"1"), (2, b"2")]

    def test_several_wrappers_and_entries_become_one_batch(self) -> None:
        data = (
            entry(0, None, b"a", timestamp=5)
            + wrapper(3, [entry(0, None, b"b"), entry(0, None, b"c", timestamp=7)])
            + wrapper(1, [entry(0, None, b"d", timestamp=6)])
            + entry(0, None, b"e", magic=0)
        )
        (batch,) = up(memoryview(data))
        assert read_header(batch.data).codec == compression.LZ4
        times = [(record.timestamp, record.value) for record in read(batch.data)]
        assert times == [(5, b"a"), (ARRIVAL, b"b"), (7, b"c"), (6, b"d"), (ARRIVAL, b"e")]

    def test_the_time_of_a_log_append_time_wrapper_holds_inside(self) -> None:
        inner = [entry(0, None, b"a", timestamp=5), entry(1, None, b"b")]
        (batch,) = up(wrapper(1, inner, timestamp=NOW, attributes=8))
        assert [record.timestamp for record in read(batch.data)] == [NOW, NOW]
        assert not read_header(batch.data).is_log_append_time

    @pytest.mark.parametrize("magic", [0, 1])
    def test_both_lz4_header_checksums(self, magic: int) -> None:
        inner = entry(0, None, b"a", magic=magic)
        for written_as in (0, 1):
            value = compression.compress(3, inner, magic=written_as)
            assert up(entry(0, None, value, magic=magic, attributes=3))[0].record_count == 1

    @pytest.mark.parametrize("magic", [0, 1])
    @pytest.mark.parametrize("codec", [0, 1])
    def test_cut_anywhere_is_corrupt_and_damage_too(self, magic: int, codec: int) -> None:
        triples: list[Triple] = [(NOW, b"k", b"some value"), (NOW, None, b"w"), (NOW, b"", None)]
        data = message_set(triples, magic, codec)
        ends = {0, *([] if codec else [len(message_set(triples[:n], magic, 0)) for n in (1, 2)])}
        for end in set(range(len(data))) - ends:
            with pytest.raises(CorruptRecord):
                up(data[:end])
        for at in range(12, len(data)):
            damaged = bytearray(data)
            damaged[at] ^= 0x55
            # Offsets carry no checksum and are not looked at.
            try:
                assert read(up(memoryview(damaged))[0].data) == numbered(triples, magic=magic)
            except RemoteProtocolError:
                continue
        with pytest.raises(CorruptRecord):
            up(data + b"\x00")

    def test_a_bad_inner_crc_is_not_laundered(self) -> None:
        inner = bytearray(entry(0, None, b"good") + entry(1, None, b"bad"))
        inner[-1] ^= 1
        with pytest.raises(CorruptRecord):
            up(wrapper(1, [bytes(inner)]))

    @pytest.mark.parametrize(
        "data",
        [
            wrapper(1, [wrapper(1, [entry(0, None, b"x")])]),
            wrapper(1, [entry(0, None, b"x"), wrapper(2, [entry(0, None, b"x")])]),
            wrapper(1, [entry(0, None, b"x", magic=0)]),
            wrapper(1, [entry(0, None, b"x"), entry(0, None, b"x")[:-1]]),
            wrapper(1, [b"\x00"]),
            entry(0, b"k", None, attributes=1),
            entry(0, None, b"no gzip", attributes=1),
            entry(0, None, b"x", magic=2) + bytes(60),
            bytes(build_batch([Record(0, NOW, None, b"x")])),
        ],
    )
    def test_malformed_sets_with_right_checksums(self, data: bytes) -> None:
        with pytest.raises(CorruptRecord):
            up(data)

    @pytest.mark.parametrize("magic", [0, 1])
    @pytest.mark.parametrize(
        "lengths",
        [
            struct.pack(">ii", -2, 1) + b"x",
            struct.pack(">ii", -1, 2) + b"x",
            struct.pack(">ii", -1, 0) + b"x",
            struct.pack(">ii", -1, -1) + b"x",
            struct.pack(">ii", -1, -5),
            struct.pack(">ii", 5, 0),
            struct.pack(">ii", 1 << 30, 0),
            struct.pack(">i", 4),
        ],
    )
    def test_contradicting_lengths_with_right_checksums(self, magic: int, lengths: bytes) -> None:
        body = struct.pack(">bb", magic, 0) + bytes(8 * magic) + lengths
        data = struct.pack(">qiI", 0, len(body) + 4, zlib.crc32(body)) + body
        with pytest.raises(CorruptRecord):
            up(data)
        with pytest.raises(CorruptRecord):
            up(data + entry(1, None, b"next", magic=magic))

    @pytest.mark.parametrize("codec", [4, 5, 7])
    def test_codecs_that_came_later(self, codec: int) -> None:
        with pytest.raises(UnsupportedCodec):
            up(entry(0, None, b"x", attributes=codec))

    def test_the_limit_holds_for_all_wrappers_together(self) -> None:
        one = wrapper(1, [entry(0, None, bytes(1000))])
        assert up(one * 3, unpacked=3 * 1034)[0].record_count == 3
        with pytest.raises(DecompressionLimit):
            up(one * 3, unpacked=3 * 1034 - 1)

    @settings(max_examples=100, deadline=None)
    @given(st.binary(max_size=200), st.integers(0, 2))
    def test_garbage_raises_nothing_else(self, garbage: bytes, magic: int) -> None:
        for data in (garbage, garbage[:16] + bytes([magic]) + garbage[16:], wrapper(2, [garbage])):
            try:
                up(data)
            except RemoteProtocolError:
                continue


class TestSplitting:
    @settings(max_examples=60, deadline=None)
    @given(records, st.sampled_from([0, 1, 2, 3]), st.integers(62, 1500))
    def test_never_above_the_limit_unless_one_record_is(self, triples: list[Triple], codec: int, limit: int) -> None:
        whole = up(message_set(triples, 1, codec))[0]
        batches = up(message_set(triples, 1, codec), limit=limit)
        assert (len(batches) == 1) == (len(whole.data) <= limit or len(triples) == 1)
        assert all(len(batch.data) <= limit or batch.record_count == 1 for batch in batches)
        assert all(crc_ok(batch.data, 0, len(batch.data)) for batch in batches)
        got = [record for batch in batches for record in read(batch.data)]
        assert [record[1:] for record in got] == [record[1:] for record in numbered(triples, magic=1)]
        assert [record.offset for record in got] == [n for batch in batches for n in range(batch.record_count)]

    def test_an_uncompressed_set_fills_each_batch(self) -> None:
        triples: list[Triple] = [(NOW, None, bytes(100))] * 1000
        batches = up(message_set(triples, 0, 0), limit=10_000)
        assert sum(batch.record_count for batch in batches) == 1000
        assert all(len(batch.data) > 9_880 for batch in batches[:-1])

    def test_a_large_compressed_set_stays_one_batch(self) -> None:
        triples: list[Triple] = [(NOW, None, bytes(100))] * 30_000
        (batch,) = up(message_set(triples, 1, 1), unpacked=8 * MIB)
        assert read(batch.data) == numbered(triples, magic=1)

    def test_records_larger_than_the_chunks_in_which_memory_is_kept_low(self) -> None:
        triples: list[Triple] = [(NOW, None, bytes(size)) for size in (10, 3 * MIB, 10, 2 * MIB, MIB, 5)]
        (batch,) = up(message_set(triples, 1, 2), unpacked=8 * MIB)
        assert read(batch.data) == numbered(triples, magic=1)


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

    def test_an_empty_wrapper_only_moves_the_offset(self) -> None:
        assert down(wrapper(1, [], offset=8), magic=0) == (b"", 9, 0)

    def test_offsets_that_do_not_rise_cannot_be_converted(self) -> None:
        with pytest.raises(CorruptRecord):
            down(wrapper(1, [entry(5, None, b"a"), entry(5, None, b"b")], offset=8), magic=0)


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


def test_incompressible_records_split_into_halves_that_fit() -> None:
    noise = random.Random(7)
    triples: list[Triple] = [(NOW, None, noise.randbytes(300)) for _ in range(40)]
    batches = up(message_set(triples, 1, 2), limit=4000)
    assert [record.value for batch in batches for record in read(batch.data)] == [value for _, _, value in triples]
    assert all(len(batch.data) <= 4000 for batch in batches)
