import pytest

from kproxy.codec.batch import HEADER_SIZE, Record, build_batch, crc_ok, iter_records, read_header
from kproxy.codec.batch_header import assemble
from kproxy.codec.recode import has_codec, recode
from kproxy.codec.records import DecompressionLimit
from kproxy.errors import RemoteProtocolError
from tests.codec.message_sets import entry, wrapper

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
MIB = 1 << 20
NOW = 1_700_000_000_000
TO_GZIP = {ZSTD: GZIP}
RECORDS = [
    Record(100, NOW, b"key", b"value" * 50, (("name", b"1"), ("name", None))),
    Record(101, NOW - 5, None, b"", ()),
    Record(107, NOW + 5, b"", None, (("", b""),)),
]


def batch(codec: int, base_offset: int = 100, **options: int) -> bytearray:
    return build_batch(
        RECORDS,
        codec=codec,
        base_offset=base_offset,
        producer_id=1 << 62,
        producer_epoch=3,
        base_sequence=77,
        partition_leader_epoch=9,
        **options,  # type: ignore[arg-type]
    )


def recoded(record_set: bytes, transcode: dict[int, int], limit: int = MIB) -> bytes:
    return b"".join(recode(memoryview(record_set), transcode, max_decompressed_bytes=limit))


def records(data: bytes) -> list[Record]:
    return list(iter_records(data, max_decompressed_bytes=MIB))


@pytest.mark.parametrize("source", [GZIP, SNAPPY, LZ4, ZSTD])
@pytest.mark.parametrize("target", [NONE, GZIP, SNAPPY, LZ4, ZSTD])
@pytest.mark.parametrize("timestamp_type", [0, 1])
def test_only_codec_length_and_crc_change(source: int, target: int, timestamp_type: int) -> None:
    before = bytes(batch(source, timestamp_type=timestamp_type, is_transactional=True))
    after = recoded(before, {source: target})
    old, new = read_header(before), read_header(after)
    assert new.codec == target
    assert crc_ok(after, 0, len(after))
    assert new == old._replace(length=len(after) - 12, crc=new.crc, attributes=old.attributes & ~7 | target)
    assert records(after) == records(before)


def test_other_batches_are_the_same_bytes() -> None:
    plain, zstd, lz4 = bytes(batch(NONE)), bytes(batch(ZSTD, 200)), bytes(batch(LZ4, 300))
    pieces = recode(memoryview(plain + zstd + lz4), TO_GZIP, max_decompressed_bytes=MIB)
    assert bytes(pieces[0]) == plain
    assert bytes(pieces[2]) == lz4
    assert read_header(pieces[1]).codec == GZIP
    assert [record.offset for record in records(b"".join(pieces))] == [
        base + delta for base in (100, 200, 300) for delta in (0, 1, 7)
    ]


def test_old_formats_stay() -> None:
    old = entry(1, b"k", b"v", magic=0) + wrapper(GZIP, [entry(0, b"k", b"v" * 40)], offset=2)
    assert recoded(old + bytes(batch(ZSTD)), TO_GZIP).startswith(old)
    assert recoded(old, {GZIP: NONE}) == old


@pytest.mark.parametrize("kept", [1, 11, 12, 16, 17, 60, 61, 62, 90])
def test_a_batch_that_is_cut_off_at_the_end_stays(kept: int) -> None:
    first, second = bytes(batch(ZSTD)), bytes(batch(ZSTD, 200))
    after = recoded(first + second[:kept], TO_GZIP)
    assert after.endswith(second[:kept])
    assert after[: -kept or None] == recoded(first, TO_GZIP)


def test_nothing_is_nothing() -> None:
    assert recoded(b"", TO_GZIP) == b""


@pytest.mark.parametrize("codec", [NONE, ZSTD])
def test_a_batch_that_compaction_left_empty_stays(codec: int) -> None:
    empty = bytearray(batch(NONE)[:HEADER_SIZE])
    empty[8:12] = (HEADER_SIZE - 12).to_bytes(4, "big")
    empty[57:61] = bytes(4)
    empty[22] = codec
    assert recoded(bytes(empty + batch(ZSTD, 200)), TO_GZIP) == empty + recoded(bytes(batch(ZSTD, 200)), TO_GZIP)


def test_a_damaged_batch_is_not_made_to_look_whole() -> None:
    before = batch(ZSTD)
    before[30] ^= 1
    assert recoded(bytes(before), TO_GZIP) == before


@pytest.mark.parametrize("size", [-(1 << 31), -1, 0, 1, 2, 3, 4, 5, 30, 48])
def test_impossible_sizes_are_refused(size: int) -> None:
    data = batch(ZSTD)
    data[8:12] = size.to_bytes(4, "big", signed=True)
    with pytest.raises(RemoteProtocolError):
        recoded(bytes(data), TO_GZIP)


def test_a_bomb_is_refused() -> None:
    bomb = build_batch([Record(0, NOW, None, bytes(MIB))], codec=ZSTD)
    with pytest.raises(DecompressionLimit):
        recoded(bytes(bomb), TO_GZIP, 100_000)


def test_records_that_do_not_decompress_are_refused() -> None:
    header = read_header(bytes(batch(ZSTD)))
    with pytest.raises(RemoteProtocolError):
        recoded(bytes(assemble(header, b"no zstd frame" * 9)), TO_GZIP)


def test_whether_a_codec_is_in_a_record_set() -> None:
    data = bytes(batch(NONE) + batch(ZSTD, 200) + batch(LZ4, 300))
    assert [has_codec(data, codec) for codec in range(5)] == [True, False, False, True, True]
    assert not has_codec(b"", NONE)
    assert not has_codec(wrapper(GZIP, [entry(0, b"k", b"v" * 80)]), GZIP)
    assert not has_codec(bytes(100), ZSTD)


@pytest.mark.parametrize("used", [NONE, GZIP, SNAPPY, LZ4, ZSTD])
def test_a_codec_is_not_taken_for_another_one_whose_number_has_the_same_bits(used: int) -> None:
    data = bytes(batch(used) + batch(used, 200))
    assert [codec for codec in range(5) if has_codec(data, codec)] == [used]
