"""Kafka's own classes of four releases as oracle: each side reads what the other wrote, and writes the same bytes."""

import random
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from kproxy.budget import UNLIMITED, RequestBudget
from kproxy.codec.batch import Record, build_batch, crc_ok, iter_records, read_header, stamp
from kproxy.codec.message_formats import from_v2, to_v2
from tests.codec.message_sets import entry, wrapper
from tests.support.java import JavaError, JavaLines, jars

pytestmark = pytest.mark.java

RELEASES = ("0.8.2.2", "0.10.2.2", "3.9.1", "4.4.0")
MODERN = ("3.9.1", "4.4.0")
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
OLD_CODECS = CODECS[:4]
# Which release writes which of the old formats.
OLD_WRITERS = [("0.8.2.2", 0), ("0.10.2.2", 0), ("0.10.2.2", 1), ("3.9.1", 0), ("3.9.1", 1)]
OLD_READERS = [*OLD_WRITERS, ("4.4.0", 0), ("4.4.0", 1)]
NOW = 1_700_000_000_000
MIB = 1 << 20


@pytest.fixture(scope="module")
def oracle() -> Iterator[JavaLines]:
    homes = [f"{release}={jars(f'org.apache.kafka:kafka-clients:{release}')}" for release in RELEASES]
    with JavaLines(Path(__file__).parent / "java_records" / "RecordsOracle.java", [], homes) as running:
        yield running


def samples(*, headers: bool = False, start: int = 0) -> list[Record]:
    """Short, long, empty and null; times that jump; more than the blocks of lz4 and snappy (64 and 32 KiB)."""
    noise = random.Random(11)
    values = [None, b"", b"x", bytes(63), bytes(64), b"abc" * 3000, noise.randbytes(70_000), bytes(150_000)]
    times = [NOW, NOW + 1, NOW - 5000, NOW, NOW + 10**9, NOW, NOW, NOW + 7]
    keys = [None, b"", b"key", None, bytes(200), b"k", None, None]
    extra = ((("name", b"value"), ("", None)), ()) if headers else ((), ())
    return [
        Record(start + number, time, key, value, extra[number % 2])
        for number, (time, key, value) in enumerate(zip(times, keys, values, strict=True))
    ]


def text(records: Sequence[Record]) -> str:
    """Records as the oracle takes and gives them."""

    def field(data: bytes | None) -> str:
        return "-" if data is None else data.hex()

    def one(record: Record) -> str:
        headers = ",".join(f"{name.encode().hex()}={field(value)}" for name, value in record.headers)
        return f"{record.offset}:{record.timestamp}:{field(record.key)}:{field(record.value)}:{headers}"

    return ";".join(map(one, records))


def read(data: bytes | bytearray) -> list[Record]:
    return list(iter_records(data, max_decompressed_bytes=16 * MIB))


def untimed(records: Sequence[Record], time: int = -1) -> list[Record]:
    return [record._replace(timestamp=time) for record in records]


def java_batch(
    oracle: JavaLines,
    release: str,
    magic: int,
    codec: str,
    records: Sequence[Record],
    *,
    time_type: str = "CreateTime",
    base: int = 0,
    producer: tuple[int, int, int] = (-1, -1, -1),
    transactional: bool = False,
) -> bytes:
    state = f"{producer[0]} {producer[1]} {producer[2]} {str(transactional).lower()}"
    line = f"write {release} {magic} {codec} {time_type} {base} {state} {text(records)}"
    return bytes.fromhex(oracle.ask(line))


@pytest.mark.parametrize("release", MODERN)
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("time_type", ["CreateTime", "LogAppendTime"])
def test_batches_of_magic_2_both_ways(oracle: JavaLines, release: str, codec: str, time_type: str) -> None:
    records = samples(headers=True, start=1000)
    theirs = java_batch(oracle, release, 2, codec, records, base=1000, time_type=time_type)
    expected = records if time_type == "CreateTime" else untimed(records, records[-1].timestamp)
    assert crc_ok(theirs, 0, len(theirs))
    assert read(theirs) == expected
    ours = build_batch(expected, codec=CODECS.index(codec), base_offset=1000, timestamp_type=time_type != "CreateTime")
    assert oracle.ask(f"read {release} {ours.hex()}") == text(expected)
    if codec == "none" and time_type == "CreateTime":
        assert ours.hex() == theirs.hex()


@pytest.mark.parametrize("release", MODERN)
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("size", [1, 8])
def test_a_stamped_batch_is_the_one_that_java_writes_for_that_producer(
    oracle: JavaLines, release: str, codec: str, size: int
) -> None:
    records = samples(headers=True)[:size]
    batch = bytearray(java_batch(oracle, release, 2, codec, records))
    for producer in ((1 << 62 | 4711, 0, 0), (9, 32767, (1 << 31) - 1)):
        stamp(batch, *producer)
        assert batch.hex() == java_batch(oracle, release, 2, codec, records, producer=producer).hex()
        assert oracle.ask(f"read {release} {batch.hex()}") == text(records)
    ours = build_batch(records, producer_id=9, producer_epoch=1, base_sequence=7, is_transactional=True)
    theirs = java_batch(oracle, release, 2, "none", records, producer=(9, 1, 7), transactional=True)
    assert ours.hex() == theirs.hex()


def test_the_oracle_refuses_what_was_damaged_before_the_stamp(oracle: JavaLines) -> None:
    batch = build_batch(samples())
    batch[-3] ^= 1
    stamp(batch, 1, 2, 3)
    with pytest.raises(JavaError, match="CorruptRecord"):
        oracle.ask(f"read 4.4.0 {batch.hex()}")


@pytest.mark.parametrize(("release", "magic"), OLD_WRITERS)
@pytest.mark.parametrize("codec", OLD_CODECS)
def test_what_old_producers_write_becomes_a_valid_batch(
    oracle: JavaLines, release: str, magic: int, codec: str
) -> None:
    records = samples()
    theirs = java_batch(oracle, release, magic, codec, records)
    assert read(theirs) == (records if magic else untimed(records))
    (batch,) = to_v2(theirs, arrival_ms=NOW, max_batch_bytes=MIB, budget=RequestBudget(0, MIB, UNLIMITED))
    expected = records if magic else untimed(records, NOW)
    assert read_header(batch.data).codec == CODECS.index(codec)
    for reader in MODERN:
        assert oracle.ask(f"read {reader} {batch.data.hex()}") == text(expected)
    if codec == "none":
        assert batch.data.hex() == java_batch(oracle, "4.4.0", 2, codec, expected).hex()
        plain = [entry(one.offset, one.key, one.value, magic=magic, timestamp=one.timestamp) for one in records]
        assert b"".join(plain).hex() == theirs.hex()


@pytest.mark.parametrize(("release", "magic"), OLD_READERS)
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("start", [0, 5000])
def test_what_old_consumers_get_is_what_was_stored(
    oracle: JavaLines, release: str, magic: int, codec: str, start: int
) -> None:
    # 0.8.2.2 takes a short read from the decompressor for a whole record, so it cannot read its own large ones.
    records = samples(start=start)[: 6 if release == "0.8.2.2" else None]
    stored = java_batch(oracle, "4.4.0", 2, codec, records, base=start)
    got = from_v2(stored, magic=magic, first_offset=0, max_decompressed_bytes=MIB, max_bytes=MIB)
    assert (got.next_offset, got.record_count) == (start + len(records), len(records))
    expected = records if magic else untimed(records)
    assert oracle.ask(f"read {release} {got.data.hex()}") == text(expected)
    assert read(got.data) == expected


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("time_type", ["CreateTime", "LogAppendTime"])
@pytest.mark.parametrize("codec", OLD_CODECS)
def test_converted_down_like_the_last_broker_that_did_it(
    oracle: JavaLines, magic: int, time_type: str, codec: str
) -> None:
    records = samples(headers=True, start=50)
    stored = java_batch(oracle, "3.9.1", 2, codec, records, base=50, time_type=time_type)
    theirs = bytes.fromhex(oracle.ask(f"down 3.9.1 {magic} {stored.hex()}"))
    ours = from_v2(stored, magic=magic, first_offset=0, max_decompressed_bytes=MIB, max_bytes=MIB).data
    assert read(ours) == read(theirs)
    if codec == "none":
        assert ours.hex() == theirs.hex()
    else:
        # Offset, magic, attributes and the timestamp of the wrapper; size, checksum and content depend on the codec.
        assert (ours[:8] + ours[16:26]).hex() == (theirs[:8] + theirs[16:26]).hex()


@pytest.mark.parametrize("release", MODERN)
def test_wrappers_numbered_from_zero_are_read_as_kafka_reads_them(oracle: JavaLines, release: str) -> None:
    inner = [entry(0, None, b"%d" % number, magic=1, timestamp=NOW) for number in range(3)]
    data = wrapper(1, inner, offset=2, timestamp=NOW)
    assert oracle.ask(f"read {release} {data.hex()}") == text(read(data))


@pytest.mark.parametrize("release", MODERN)
@pytest.mark.parametrize(
    "data",
    [
        wrapper(1, [wrapper(1, [entry(0, None, b"x")])]),
        entry(0, b"k", None, attributes=1),
    ],
    ids=["nested", "null"],
)
def test_the_oracle_refuses_the_same_wrappers(oracle: JavaLines, release: str, data: bytes) -> None:
    with pytest.raises(JavaError):
        oracle.ask(f"read {release} {data.hex()}")
