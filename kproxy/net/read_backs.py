"""Unconfirmed batches whose offsets are known, read back from the logs together."""

from collections.abc import Callable
from typing import Final

import trio

from kproxy.codec.topic_partition import TopicPartition
from kproxy.dedup.lanes import TrackKey
from kproxy.dedup.unconfirmed import UnconfirmedBatch
from kproxy.errors import RemoteProtocolError
from kproxy.net.broker_log import Batch, BrokerLog, Failures
from kproxy.net.broker_log_reads import ShortLog
from kproxy.net.log_reading import LogReading

#: A log that has been too short for so long was cut. A broker that no longer leads knows it by then, or has been fenced
#: off (broker.session.timeout.ms is 9 s).
_CUT_SECONDS: Final = 10.0


class ReadBacks:
    """Entries by partition; what was read is forgotten here, and what remains may be tried again."""

    def __init__(
        self,
        broker_log: BrokerLog,
        reading: LogReading,
        fail: Callable[[str, int], None],
        cut: Callable[[TrackKey, int], None],
    ) -> None:
        """``fail`` is called with a reason and the count of entries.

        ``cut`` is called with a partition whose log was cut, and an offset from which on nothing is left of before.
        """
        self._cut = cut
        #: Since when a log is too short, by trio's clock.
        self._short: dict[TopicPartition, float] = {}
        self._broker_log = broker_log
        self._reading = reading
        self._fail = fail
        self._left: dict[TopicPartition, dict[int, list[UnconfirmedBatch]]] = {}

    def __len__(self) -> int:
        """The number of those that were not read yet, and may still be."""
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
        was_cut = {place for place, error in failed.items() if self._was_cut(place, error)}
        for place in was_cut:
            spots = self._left.pop(place)
            self._fail("gone", sum(map(len, spots.values())))
            for key in {entry.key for entries in spots.values() for entry in entries}:
                self._cut(key, min(spots))
        again = {
            place: error
            for place, error in failed.items()
            if place not in was_cut and not isinstance(error, RemoteProtocolError)
        }
        for place in self._left.keys() - again.keys():
            lost = sum(map(len, self._left.pop(place).values()))
            if lost:
                self._fail("unreadable" if place in failed else "gone", lost)
        for error in again.values():
            raise error

    def _was_cut(self, place: TopicPartition, error: Exception) -> bool:
        if not isinstance(error, ShortLog):
            self._short.pop(place, None)
            return False
        now = trio.current_time()
        return now - self._short.setdefault(place, now) >= _CUT_SECONDS

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
