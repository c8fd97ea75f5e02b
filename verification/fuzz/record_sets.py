"""Record sets: batches of format v2, old message sets, and the conversions between them."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

from kproxy.budget import CONVERTED_RECORD_STEPS, RequestBudget
from kproxy.codec import compression
from kproxy.codec.batch import (
    HEADER_SIZE,
    Record,
    build_batch,
    crc_ok,
    iter_raw_records,
    iter_records,
    read_header,
    set_transactional,
    stamp,
)
from kproxy.codec.batch_reader import end_of_first, least_timestamp, walk_batches
from kproxy.codec.message_formats import from_v2, to_v2
from kproxy.codec.recode import has_codec, recode
from kproxy.codec.records import MAGIC_OFFSET
from kproxy.errors import RemoteProtocolError
from kproxy.txn.visibility import entries
from verification.fuzz.choices import Choices
from verification.fuzz.record_parts import (
    COMPRESSED,
    NOW,
    batch_piece,
    entry_piece,
    packed_piece,
    raw_piece,
    record_set,
    sample_records,
)
from verification.fuzz.target import MOST_DECOMPRESSED, Bound, Target, expect

_ARRIVAL: Final = NOW + 17
_MOST_BATCH_BYTES: Final = (80, 300, 1 << 20)
_MOST_RECORDS: Final = 500
_INT32: Final = range(-(1 << 31), 1 << 31)
_INT64: Final = range(-(1 << 63), 1 << 63)


def check_batches(data: bytes) -> None:
    """Batches of format v2, and whatever else is in their place."""
    said = Choices(data)
    first_offset, flags = said.number(8, signed=True), said.number()
    found = record_set(said)
    _walk(found)
    records = _records(found)
    if records is not None:
        _written_again(records)
    _recoded(found, flags)
    for magic in (0, 1):
        _to_old(found, magic, first_offset, 300 if flags & 0x80 else 1 << 20)


def _records(found: bytes | bytearray) -> list[Record] | None:
    try:
        return list(iter_records(found, max_decompressed_bytes=MOST_DECOMPRESSED))
    except RemoteProtocolError:
        return None


def _walk(found: bytes) -> None:
    end = end_of_first(found, 2)
    expect(0 <= end <= len(found), "the first batches end after their record set")
    walk_batches(found, 0x20, 1 << 62)
    for codec in range(8):
        has_codec(found, codec)
    try:
        for entry in entries(found):
            if entry[MAGIC_OFFSET] == 2:
                _batch(bytes(entry))
    except RemoteProtocolError:
        pass


def _batch(batch: bytes) -> None:
    """What is done to single batches."""
    sound = crc_ok(batch, 0, len(batch))
    stamped = bytearray(batch)
    stamp(stamped, 1, 2, 3)
    expect(crc_ok(stamped, 0, len(stamped)) == sound, "a stamp made a checksum right or wrong")
    expect(read_header(stamped)[9:12] == (1, 2, 3), "a stamp is not in its place")
    for wanted in (True, False):
        set_transactional(stamped, wanted)
        expect(read_header(stamped).is_transactional == wanted, "a batch is not transactional as it was set")
        expect(crc_ok(stamped, 0, len(stamped)) == sound, "the transactional bit made a checksum right or wrong")
    header = read_header(batch)
    try:
        raw = list(iter_raw_records(header, batch, MOST_DECOMPRESSED))
    except RemoteProtocolError:
        raw = None
    try:
        least = least_timestamp(memoryview(batch), MOST_DECOMPRESSED)
    except RemoteProtocolError:
        expect(raw is None, "records were read of a batch that has no least timestamp")
        return
    if raw and not header.is_log_append_time:
        expect(least == min(header.base_timestamp, *(each.timestamp for each in raw)), "not the least timestamp")


def _written_again(records: Sequence[Record]) -> None:
    """What was read, as one batch, is read again as the same, where one batch can hold it."""
    if not records or any(two.offset <= one.offset for one, two in pairwise(records)):
        return
    times = [record.timestamp for record in records]
    if records[-1].offset - records[0].offset not in _INT32 or any(
        value not in _INT64 for value in (*times, max(times) - records[0].timestamp, min(times) - records[0].timestamp)
    ):
        return
    again = _records(build_batch(records, base_offset=0))
    first = records[0].offset
    wanted = [record._replace(offset=record.offset - first) for record in records]
    expect(again == wanted, "records changed when they were written and read")


def _recoded(found: bytes, flags: int) -> None:
    """In another compression there are the same records."""
    codec = flags % 5
    before = _records(found)
    try:
        pieces = recode(
            memoryview(found),
            {each: codec for each in range(8) if each != codec},
            max_decompressed_bytes=MOST_DECOMPRESSED,
        )
    except RemoteProtocolError:
        return
    if before is not None:
        expect(_records(b"".join(pieces)) == before, "records changed with their compression")


def _to_old(found: bytes, magic: int, first_offset: int, max_bytes: int) -> None:
    try:
        old = from_v2(
            found,
            magic=magic,
            first_offset=first_offset,
            max_decompressed_bytes=MOST_DECOMPRESSED,
            max_bytes=max_bytes,
        )
    except RemoteProtocolError:
        return
    read = list(iter_records(old.data, max_decompressed_bytes=4 * MOST_DECOMPRESSED))
    expect(old.next_offset >= first_offset, "the next offset is before the first")
    wanted = [record for record in read if record.offset >= first_offset]
    expect(len(wanted) == old.record_count, f"{old.record_count} records were converted, {len(wanted)} can be read")


def check_old_sets(data: bytes) -> None:
    """Old message sets, as producers send them and as brokers keep them."""
    said = Choices(data)
    first_offset, flags = said.number(8, signed=True), said.number()
    found = record_set(said)
    for magic in (0, 1):
        _to_old(found, magic, first_offset, 300 if flags & 0x80 else 1 << 20)
    most_batch_bytes = _MOST_BATCH_BYTES[flags % len(_MOST_BATCH_BYTES)]
    budget = RequestBudget(0, MOST_DECOMPRESSED, _MOST_RECORDS * CONVERTED_RECORD_STEPS)
    try:
        batches = to_v2(found, arrival_ms=_ARRIVAL, max_batch_bytes=most_batch_bytes, budget=budget)
    except RemoteProtocolError:
        return
    expect(budget.bytes >= 0 and budget.steps >= 0, "wrappers took more than their budget")
    _converted([bytes(batch.data) for batch in batches], [batch.record_count for batch in batches], found)
    for batch in batches:
        fits = len(batch.data) <= most_batch_bytes or batch.record_count == 1
        expect(fits, f"a batch of {len(batch.data)} bytes where {most_batch_bytes} are allowed")


def _converted(batches: Sequence[bytes], counts: Sequence[int], found: bytes) -> None:
    """The batches hold what the set held: keys, values, and times that there were."""
    made: list[Record] = []
    for batch, count in zip(batches, counts, strict=True):
        expect(crc_ok(batch, 0, len(batch)), "a converted batch has a wrong checksum")
        records = list(iter_records(batch, max_decompressed_bytes=4 * MOST_DECOMPRESSED))
        expect([record.offset for record in records] == list(range(count)), "a converted batch is not numbered from 0")
        expect(read_header(batch).max_timestamp == max(record.timestamp for record in records), "another max timestamp")
        made += records
    sent = list(iter_records(found, max_decompressed_bytes=MOST_DECOMPRESSED))
    expect([each[2:4] for each in made] == [each[2:4] for each in sent], "records changed when they were converted")
    times = [record.timestamp if record.timestamp >= 0 else _ARRIVAL for record in sent]
    expect([record.timestamp for record in made] == times, "timestamps changed when they were converted")


_START: Final = bytes(8) + b"\1"


def _batch_seeds() -> Iterator[bytes]:
    for codec in range(6):
        whole = batch_piece(codec, sample_records())
        yield _START + whole
        yield _START + whole + batch_piece(0, sample_records(5), base_offset=10, producer_id=1 << 62, base_sequence=4)
    control = [Record(0, NOW, bytes(4), bytes(6))]
    yield _START + batch_piece(0, control, is_control=True, is_transactional=True, producer_id=9)
    yield _START + batch_piece(1, sample_records(), timestamp_type=1)
    for codec in range(5):
        raw = bytes(build_batch(sample_records(9), codec=codec))
        yield _START + raw_piece(raw)
        yield _START + packed_piece(codec, sample_records(30))
        yield _START + raw_piece(raw * 2 + raw[: HEADER_SIZE + 3])
    yield _START


def _old_seeds() -> Iterator[bytes]:
    for magic in (0, 1):
        plain = [entry_piece(magic, 0, index, NOW, b"k" if index % 2 else None, b"v" * index) for index in range(4)]
        yield _START + b"".join(plain)
        for codec in range(1, 5):
            inner = compression.compress(
                codec, record_set(Choices(b"".join(plain))), magic=magic if codec < compression.ZSTD else 2
            )
            yield _START + entry_piece(magic, codec | COMPRESSED, 3, NOW, None, inner)
            wrapper = entry_piece(magic, codec, 3, NOW, None, b"".join(plain))
            yield _START + wrapper
            yield _START + plain[0] + wrapper + plain[1] + wrapper
    yield _START + entry_piece(1, 0, 0, -1, None, b"no time") + batch_piece(0, sample_records(), base_offset=5)


_COVERS: Final = (
    "kproxy.codec.batch",
    "kproxy.codec.batch_header",
    "kproxy.codec.batch_reader",
    "kproxy.codec.compression",
    "kproxy.codec.downconvert",
    "kproxy.codec.lz4_frame",
    "kproxy.codec.message_set",
    "kproxy.codec.recode",
    "kproxy.codec.snappy_frame",
    "kproxy.codec.upconvert",
    "kproxy.codec.varint",
    "kproxy.codec.zstd_frame",
)
#: What is compressed may hold ``MOST_DECOMPRESSED`` bytes of records, however short it is.
_BOUND: Final = Bound(steps=5_000_000, steps_of_byte=600, memory=1_000_000, memory_of_byte=500)
BATCHES_TARGET: Final = Target("batches", check_batches, _batch_seeds, _BOUND, _COVERS)
OLD_SETS_TARGET: Final = Target("old-sets", check_old_sets, _old_seeds, _BOUND, _COVERS)
