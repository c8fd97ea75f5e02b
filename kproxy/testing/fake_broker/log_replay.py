"""What is known of producers from their batches in a log alone, as after a restart or on another replica."""

from collections.abc import Iterable
from typing import Final

from kproxy.codec.batch import read_header
from kproxy.testing.fake_broker.producers import ProducerStates, SentBatch, advance
from kproxy.testing.fake_broker.stored_batches import StoredBatch

_COORDINATOR_EPOCH: Final = slice(-5, -1)
"""Where a marker's only record has the epoch of the coordinator that wrote it."""


def replay(batches: Iterable[StoredBatch], producers: ProducerStates) -> None:
    """Add these batches to ``producers``."""
    for batch in batches:
        header = read_header(batch.data)
        if header.is_control:
            coordinator_epoch = int.from_bytes(batch.data[_COORDINATOR_EPOCH], "big", signed=True)
            producers.marker(
                header.producer_id, header.producer_epoch, coordinator_epoch, batch.max_timestamp, batch.last_offset
            )
        elif header.producer_id >= 0:
            append_time = batch.max_timestamp if header.is_log_append_time else -1
            last = advance(header.base_sequence, header.last_offset_delta)
            sent = SentBatch(header.base_sequence, last, batch.base_offset, batch.last_offset, append_time)
            producers.record(header.producer_id, header.producer_epoch, sent, batch.max_timestamp)
