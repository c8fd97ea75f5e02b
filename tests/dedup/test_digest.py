"""What two copies of a record have in common."""

from kproxy.codec.batch import Record, build_batch
from kproxy.dedup.digest import UNTIMED, Digest, read_batch

LIMIT = 1 << 20


def digest(record: Record, *, arrival_ms: int | None = None, codec: int = 0) -> Digest:
    ((found, _),) = read_batch(build_batch([record], codec=codec), arrival_ms=arrival_ms, max_decompressed_bytes=LIMIT)
    return found


def test_copies_are_equal_whatever_they_are_compressed_with() -> None:
    record = Record(0, 5, b"k", b"v", (("h", b"x"),))
    assert digest(record) == digest(record, codec=1)
    assert digest(record).timestamp_ms == 5


def test_each_field_counts_and_none_is_not_empty() -> None:
    records = [
        Record(0, 5, b"k", b"v", ()),
        Record(0, 5, b"kv", b"", ()),
        Record(0, 5, b"kv", None, ()),
        Record(0, 5, None, b"kv", ()),
        Record(0, 5, b"k", b"v", (("h", b""),)),
        Record(0, 5, b"k", b"v", (("h", None),)),
        Record(0, 5, b"k", b"v", (("", b"h"),)),
    ]
    assert len({digest(record).content for record in records}) == len(records)


def test_the_time_of_arrival_is_not_the_clients() -> None:
    assert digest(Record(0, 5, b"k", b"v", ()), arrival_ms=5).timestamp_ms == UNTIMED


def test_what_is_damaged_has_no_records() -> None:
    data = bytearray(build_batch([Record(0, 5, b"k", b"v", ())]))
    data[-1] ^= 1
    assert read_batch(data, arrival_ms=None, max_decompressed_bytes=LIMIT) == []
    assert read_batch(b"", arrival_ms=None, max_decompressed_bytes=LIMIT) == []
