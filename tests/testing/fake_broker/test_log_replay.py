"""Producers rebuilt from the batches of a log."""

from kproxy.codec.batch import Record, build_batch
from kproxy.testing.fake_broker.log_replay import replay
from kproxy.testing.fake_broker.producers import ProducerStates
from kproxy.testing.fake_broker.stored_batches import StoredBatch, marker_batch


def stored(data: bytearray, offset: int, count: int = 1) -> StoredBatch:
    return StoredBatch(offset + count - 1, offset, 0, 50, bytes(data))


def test_batches_and_markers_are_noted_and_plain_records_are_nobodys() -> None:
    rows = [Record(at, 50, None, b"v") for at in range(2)]
    known = ProducerStates()
    replay(
        [
            stored(build_batch(rows), 0, 2),
            stored(build_batch(rows, producer_id=7, producer_epoch=1, base_sequence=4), 2, 2),
            stored(build_batch(rows, producer_id=8, producer_epoch=0, base_sequence=0), 4, 2),
            stored(marker_batch(8, 3, False, 9, 50), 6),
        ],
        known,
    )
    told = [(pid, row.epoch, row.last_sequence, row.last_offset, row.coordinator_epoch) for pid, row in known.items()]
    assert told == [(7, 1, 5, 3, -1), (8, 3, -1, 6, 9)]
