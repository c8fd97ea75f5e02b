"""The progress in one partition of the transaction log, and the tasks that wait for more."""

from collections.abc import Sequence
from typing import Final, Protocol

import trio

from kproxy.net.txn.log_batches import LogBatch
from kproxy.proxy.routing import Address

NOTHING: Final = -1
"""The position of a partition whose start is not known yet."""


class LogSink(Protocol):
    """The receiver of the transaction log's records, in the order of each partition."""

    def restart(self, partition: int, start: int) -> None:
        """All that was reported of the partition is void: it is read again from its log start ``start`` on."""

    def apply(
        self,
        partition: int,
        offset: int,
        timestamp_ms: int,
        producer_id: int,
        epoch: int,
        key: bytes | None,
        value: bytes | None,
    ) -> None:
        """A record. Producer id and epoch are those of its batch, -1 if it has none."""

    def advanced(self, partition: int, end: int) -> None:
        """All that lies before ``end`` has been applied, markers and gaps included."""


class LogPartition:
    """One partition as it is followed."""

    def __init__(self, index: int, sink: LogSink) -> None:
        """Nothing is read yet."""
        self.index = index
        self._sink = sink
        #: The broker that is asked; None while that is not known.
        self.leader: Address | None = None
        #: Of the leader, as the cluster told it: one that has become a follower, or does not know yet, says so.
        self.leader_epoch = -1
        #: All that lies before has been applied.
        self.position = NOTHING
        #: The log's end when its leader was asked last.
        self.end = 0
        #: The leader epoch of the batch before ``position``; -1 if unknown.
        self.fetched_epoch = -1
        #: It has to be read again from its start.
        self.stale = True
        #: The number of times that it was read from its start.
        self.restarts = 0
        #: The log's start when its leader was asked last.
        self.log_start = 0
        #: When it last had records, as a number that rises over all partitions.
        self.fed = 0
        #: When it was last known to be read to its end, by trio's clock.
        self.current_at = 0.0
        #: A damaged batch at this position was reported.
        self.damaged_at: int | None = None
        self._waiting: dict[trio.Event, int] = {}

    @property
    def lag(self) -> int:
        """The number of offsets between what has been applied and the log's end, as far as that is known."""
        return max(0, self.end - max(0, self.position))

    def ask(self, leader: Address | None, epoch: int) -> None:
        """Sets the leader, and the epoch in which it leads."""
        self.leader, self.leader_epoch = leader, epoch

    def restart(self, start: int) -> None:
        """Begins at the log's start."""
        self.stale, self.position, self.fetched_epoch = False, start, -1
        self.restarts += 1
        self._sink.restart(self.index, start)
        for event in self._waiting:
            event.set()

    def apply(self, batches: Sequence[LogBatch]) -> None:
        """Takes batches that follow each other."""
        for header, records in batches:
            for row in records:
                self._sink.apply(
                    self.index,
                    row.offset,
                    row.timestamp,
                    header.producer_id,
                    header.producer_epoch,
                    row.key,
                    row.value,
                )
        self.position = batches[-1].next_offset
        self.fetched_epoch = batches[-1].header.partition_leader_epoch
        self._sink.advanced(self.index, self.position)
        for event, offset in self._waiting.items():
            if offset <= self.position:
                event.set()

    def has(self, offset: int) -> bool:
        """Whether all that lies before ``offset`` has been applied."""
        return not self.stale and self.position >= offset

    def answered(self) -> None:
        """Records that the leader has just said where the log ends (``end``)."""
        if self.has(self.end):
            self.current_at = trio.current_time()

    async def wait(self, offset: int) -> None:
        """Sleeps until ``position`` is ``offset`` or beyond, or the partition is read again."""
        event = trio.Event()
        self._waiting[event] = offset
        try:
            await event.wait()
        finally:
            del self._waiting[event]
