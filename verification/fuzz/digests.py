"""What kproxy compares records by: their digests, and the check that does without most of them."""

from collections.abc import Iterator
from math import inf
from typing import Final

from xxhash import xxh3_128_digest

from kproxy.codec.batch import Record, crc_ok, iter_raw_records, read_header
from kproxy.codec.records import DecompressionLimit
from kproxy.dedup.batch_records import BatchRecords, first_content, read_batch
from kproxy.dedup.digest import UNTIMED
from kproxy.dedup.quick_check import QuickCheck
from verification.fuzz.choices import Choices
from verification.fuzz.record_parts import NOW, batch_piece, raw_piece, record_set, sample_records
from verification.fuzz.target import MOST_DECOMPRESSED, Bound, Target, expect


def check_digests(data: bytes) -> None:
    """One batch, and a check for records of a time and for contents of its own."""
    said = Choices(data)
    flags, oldest, span = said.number(), said.number(8, signed=True), said.number(2)
    batch = record_set(said)
    arrival_ms = NOW if flags & 1 else None
    try:
        found = read_batch(batch, arrival_ms=arrival_ms, max_decompressed_bytes=MOST_DECOMPRESSED)
    except DecompressionLimit:
        found = BatchRecords()
    _same_by_all_ways(batch, found)
    contents = list(found.digests.contents())
    all_, first = frozenset(contents if flags & 2 else ()), frozenset(contents[:1] if flags & 4 else ())
    check = QuickCheck(oldest, oldest + span, all_, first, bool(flags & 8), inf)
    cleared = check.clears(memoryview(batch), arrival_ms)
    if cleared and found:
        _cleared(check, batch, found, arrival_ms)


def _same_by_all_ways(batch: bytes, found: BatchRecords) -> None:
    """Each function that reads a batch reads the same."""
    if not found:
        return
    contents = list(found.digests.contents())
    expect(first_content(batch, MOST_DECOMPRESSED) == contents[0], "the first content is another one")
    raw = list(iter_raw_records(read_header(batch), batch, MOST_DECOMPRESSED))
    expect(found.size == sum(len(record.body) for record in raw), "their size is another one")
    near = max(abs(number) for record in raw for number in record[:2]) < 1 << 63
    expect(not near or found.raw(range(len(found))) == raw, "records are other ones than those of the batch")
    expect(contents == [xxh3_128_digest(record.body) for record in raw], "the contents of other records")
    expect(crc_ok(batch, 0, len(batch)), "digests of a damaged batch")


def _cleared(check: QuickCheck, batch: bytes, found: BatchRecords, arrival_ms: int | None) -> None:
    """A batch that is cleared repeats nothing, as far as its header says what is true of its records."""
    header, times = read_header(batch), [record.timestamp for record in found.raw(range(len(found)))]
    timed = not header.is_log_append_time and header.base_timestamp not in (UNTIMED, arrival_ms)
    contents = (check.at_any_time if timed else check.untimed) or ()
    expect(found.digests[0].content not in contents, "cleared although its first content is unconfirmed")
    if timed and check.thorough and header.max_timestamp == max(times) and header.base_timestamp == times[0]:
        same = [time for time in found.digests.times if check.oldest_ms <= time <= check.newest_ms]
        expect(not same, "cleared although a record has the time of an unconfirmed one")


def _seeds() -> Iterator[bytes]:
    for flags in range(16):
        start = bytes([flags]) + (NOW - flags).to_bytes(8, "big") + b"\0\2"
        yield start + batch_piece(flags % 6, sample_records(4))
        yield start + batch_piece(0, sample_records(4), timestamp_type=1)
        yield start + batch_piece(0, [record._replace(timestamp=-1) for record in sample_records(4)])
    yield bytes(11) + raw_piece(b"\0" * 100)
    falling = [Record(index, NOW - 5 * index, None, b"v") for index in range(4)]
    yield b"\x08" + (NOW - 12).to_bytes(8, "big") + b"\0\1" + batch_piece(1, falling)


DIGESTS_TARGET: Final = Target(
    "digests",
    check_digests,
    _seeds,
    Bound(steps=1_000_000, steps_of_byte=500, memory=3_000_000, memory_of_byte=500),
    ("kproxy.dedup.batch_records", "kproxy.dedup.digest", "kproxy.dedup.quick_check"),
)
