"""Unconfirmed batches whose offsets are known, read back from the logs together."""

from collections.abc import Callable

from kproxy.codec.topic_partition import TopicPartition
from kproxy.dedup.unconfirmed import UnconfirmedBatch
from kproxy.errors import RemoteProtocolError
from kproxy.net.broker_log import Batch, BrokerLog, Failures
from kproxy.net.log_reading import LogReading


class ReadBacks:
    """Entries by partition; what was read is forgotten here, and what remains may be tried again."""

    def __init__(self, broker_log: BrokerLog, reading: LogReading, fail: Callable[[str, int], None]) -> None:
        """``fail`` is called with a reason and the count of entries."""
        self._broker_log = broker_log
        self._reading = reading
        self._fail = fail
        self._left: dict[TopicPartition, dict[int, list[UnconfirmedBatch]]] = {}

    def __len__(self) -> int:
        """How many were not read yet, and may still be."""
        return sum(len(entries) for spots in self._left.values() for entries in spots.values())

    def add(self, place: TopicPartition, entry: UnconfirmedBatch) -> None:
        """Wants the batch of an entry."""
        self._left.setdefault(place, {}).setdefault(entry.stamp.base_offset, []).append(entry)

    async def read(self) -> None:
        """Reads once. OSError: some leaders could not be asked, or not everything could be read yet."""
        failed: Failures = {}
        try:
            await self._broker_log.read_at(self._left, self._take, failed, self._reading.finish)
        finally:
            await self._reading.finish()  # what was taken of a round that failed is not read again
        again = {place: error for place, error in failed.items() if not isinstance(error, RemoteProtocolError)}
        for place in self._left.keys() - again.keys():
            lost = sum(map(len, self._left.pop(place).values()))
            if lost:
                self._fail("unreadable" if place in failed else "gone", lost)
        for error in again.values():
            raise error

    def _take(self, place: TopicPartition, batch: Batch) -> None:
        for entry in self._left[place].pop(batch.header.base_offset, ()):
            if is_of(batch, entry):
                self._reading.take(batch.data, entry.recall)
            else:
                self._fail("gone", 1)


def is_of(batch: Batch, entry: UnconfirmedBatch) -> bool:
    """Whether a batch in the log is that of an entry."""
    header, stamp = batch.header, entry.stamp
    found = header.producer_id, header.producer_epoch, header.base_sequence
    return found == (stamp.producer_id, stamp.epoch, stamp.sequence)
