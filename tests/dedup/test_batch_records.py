"""What two copies of a record have in common, as a batch that holds them is read."""

from crc32c import crc32c

from kproxy.codec.batch import Record, build_batch
from kproxy.codec.records import LOG_APPEND_TIME
from kproxy.dedup.batch_records import read_batch
from kproxy.dedup.digest import UNTIMED, Digest

LIMIT = 1 << 20


def digest(record: Record, *, arrival_ms: int | None = None, codec: int = 0) -> Digest:
    batch = build_batch([record], codec=codec)
    (found,) = read_batch(batch, arrival_ms=arrival_ms, max_decompressed_bytes=LIMIT).digests
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


def test_a_time_that_the_broker_put_there_is_not_the_clients() -> None:
    """With message.timestamp.type=LogAppendTime the header says so, and its CRC is the broker's."""
    data = bytearray(build_batch([Record(0, 5, b"k", b"v", ())]))
    data[22] |= LOG_APPEND_TIME  # the low byte of the attributes
    data[17:21] = crc32c(bytes(data[21:])).to_bytes(4, "big")
    (found,) = read_batch(data, max_decompressed_bytes=LIMIT).digests
    assert found.timestamp_ms == UNTIMED
    (found,) = read_batch(data, max_decompressed_bytes=LIMIT, as_sent=True).digests
    assert found.timestamp_ms == 5


def test_what_is_damaged_has_no_records() -> None:
    for at in (-1, -2):  # the number of headers; the value, which any byte may be
        data = bytearray(build_batch([Record(0, 5, b"k", b"v", ())]))
        data[at] ^= 1
        assert len(read_batch(data, max_decompressed_bytes=LIMIT)) == 0
    assert len(read_batch(b"", max_decompressed_bytes=LIMIT)) == 0
