"""Retention and compaction, batch by batch."""

import pytest

from kproxy.codec.batch import Record, build_batch, iter_records, read_header
from kproxy.testing.fake_broker.log_cleaner import compacted, count_expired, is_compacted
from kproxy.testing.fake_broker.stored_batches import StoredBatch

DAY_MS = 86_400_000


def stored(offset: int, *pairs: tuple[bytes | None, bytes | None], at: int = 0, pid: int = -1) -> StoredBatch:
    """A batch that begins at this offset, its records one ms apart from ``at`` on."""
    records = [Record(number, at + number, key, value) for number, (key, value) in enumerate(pairs)]
    epoch, sequence = (0, 0) if pid >= 0 else (-1, -1)
    data = build_batch(
        records, base_offset=offset, producer_id=pid, producer_epoch=epoch, base_sequence=sequence, codec=1
    )
    return StoredBatch(offset + len(pairs) - 1, offset, 0, at + len(pairs) - 1, bytes(data))


OLD, MIDDLE, NEW = (stored(n, (b"k", b"v"), at=at) for n, at in enumerate((0, 50, 100)))
SIZE = len(OLD.data)


@pytest.mark.parametrize(
    ("config", "high_watermark", "count"),
    [
        ({}, 3, 0),
        ({"retention.ms": "50"}, 3, 1),
        ({"retention.ms": "49"}, 3, 2),
        ({"retention.ms": "0"}, 3, 2),
        ({"retention.ms": "0"}, 1, 1),
        ({"retention.ms": "-1"}, 3, 0),
        ({"retention.bytes": str(2 * SIZE)}, 3, 1),
        ({"retention.bytes": str(2 * SIZE + 1)}, 3, 0),
        ({"retention.bytes": "0"}, 3, 3),
        ({"retention.bytes": "0", "retention.ms": "50"}, 2, 2),
        ({"retention.ms": "0", "cleanup.policy": "compact"}, 3, 0),
        ({"retention.ms": "0", "cleanup.policy": "compact,delete"}, 3, 2),
    ],
)
def test_what_age_and_size_throw_away(config: dict[str, str], high_watermark: int, count: int) -> None:
    assert count_expired([OLD, MIDDLE, NEW], config, 100, high_watermark) == count


def test_a_young_batch_shields_those_after_it() -> None:
    assert count_expired([NEW, OLD], {"retention.ms": "0"}, 100, 3) == 0
    assert count_expired([OLD], {}, 8 * DAY_MS, 3) == 1


def test_the_policy_may_have_two_names() -> None:
    assert [is_compacted({"cleanup.policy": policy}) for policy in ("compact", "delete,compact", "delete")] == [
        True,
        True,
        False,
    ]
    assert not is_compacted({})


def test_compaction_keeps_the_last_of_each_key_at_its_offset() -> None:
    batches = [
        stored(0, (b"a", b"1"), (b"b", b"2"), (None, b"3"), at=10),
        stored(3, (b"a", b"4"), at=20),
        stored(4, (b"c", None), at=30),
    ]
    left = compacted(batches, lambda producer_id, last_offset: False)
    assert [(batch.base_offset, batch.last_offset, batch.max_timestamp) for batch in left] == [
        (0, 2, 11),
        (3, 3, 20),
        (4, 4, 30),
    ]
    assert left[1:] == batches[1:]
    records = iter_records(b"".join(batch.data for batch in left), max_decompressed_bytes=1000)
    assert [(record.offset, record.timestamp, record.value) for record in records] == [
        (1, 11, b"2"),
        (3, 20, b"4"),
        (4, 30, None),
    ]


def test_an_emptied_batch_stays_only_as_its_producers_newest() -> None:
    batches = [stored(0, (b"a", b"1"), pid=7), stored(1, (b"a", b"2"), pid=8), stored(2, (b"a", b"3"))]
    (header, last) = compacted(batches, lambda producer_id, last_offset: (producer_id, last_offset) == (8, 1))
    assert last == batches[2]
    bare = read_header(header.data)
    assert len(header.data) == bare.size == 61
    assert (bare.base_offset, bare.record_count, bare.producer_id, bare.codec) == (1, 0, 8, 0)
    assert (bare.base_timestamp, bare.max_timestamp) == (-1, 0)
