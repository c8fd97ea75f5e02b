import random
import struct
import tracemalloc
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kproxy.codec import compression
from kproxy.codec.batch import Record, build_batch, crc_ok, read_header
from kproxy.codec.records import CorruptRecord, DecompressionLimit, UnsupportedCodec
from kproxy.errors import RemoteProtocolError
from tests.codec.conversions import ARRIVAL, MIB, NOW, numbered, read, records, up
from tests.codec.message_sets import Triple, entry, message_set, wrapper


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


def test_a_bomb_of_tiny_records_is_cut_into_few_parts_and_never_unpacked_as_a_whole() -> None:
    triples: list[Triple] = [(NOW, None, b"")] * 40_000
    data = message_set(triples, 0, 1)
    tracemalloc.start()
    batches = up(data, limit=5_000, unpacked=2 * MIB)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert sum(batch.record_count for batch in batches) == 40_000
    assert all(len(batch.data) <= 5_000 for batch in batches)
    assert all(len(batch.data) > 2_500 for batch in batches[:-1])
    assert peak < 6 * MIB


def test_incompressible_records_split_into_parts_that_fit() -> None:
    noise = random.Random(7)
    triples: list[Triple] = [(NOW, None, noise.randbytes(300)) for _ in range(40)]
    batches = up(message_set(triples, 1, 2), limit=4000)
    assert [record.value for batch in batches for record in read(batch.data)] == [value for _, _, value in triples]
    assert all(len(batch.data) <= 4000 for batch in batches)
