"""Acknowledged records that a log does not hold any more: after an unclean election, or in a topic made again.

No two batches have one offset. So a batch with an offset that another one was acknowledged with shows that the log was
cut. So does one that was taken after a success had been received, and has a lower offset than that.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, TypeAlias

from kproxy.codec.produce_layout import PartitionRef
from kproxy.dedup.lanes import Send

#: Partitions of which the end is remembered, each about 350 bytes and the name of its topic.
MOST_PARTITIONS: Final = 50_000


class Loss(NamedTuple):
    """Records that are missing on one partition, found when a producer wrote to it."""

    #: The topic's name or id, and the partition.
    key: PartitionRef
    producer_id: int
    #: At most so many: others may have written between them.
    records: int
    #: The offset after the last of them, as it was when they were acknowledged.
    end: int
    #: Where its next batch was written; -1: it was not, or nobody knows.
    start: int = -1


#: Counts and logs it.
ReportLoss: TypeAlias = Callable[[Loss], None]
TakeCut: TypeAlias = Callable[[PartitionRef, int], None]


class KnownEnds:
    """The ends of logs, as far as successes have shown them; shared by all connections of a process."""

    def __init__(
        self, report: ReportLoss = lambda _: None, most: int = MOST_PARTITIONS, cut: TakeCut = lambda _, __: None
    ) -> None:
        """``report`` receives each loss. ``most``: partitions; the oldest are forgotten.

        ``cut`` receives a partition and an offset: what was acknowledged with that or a later one is lost.
        """
        self._cut = cut
        self._report = report
        self._most = most
        #: The newest offsets that were acknowledged without a gap: the first, the one after the last, and when the
        #: last success was received, in seconds.
        self._ends: OrderedDict[PartitionRef, tuple[int, int, float]] = OrderedDict()

    def __len__(self) -> int:
        """Return the number of partitions."""
        return len(self._ends)

    def lost(self, loss: Loss) -> None:
        """Take a loss that was found without these ends.

        Successes that are known may be of batches that were written after the cut, and before the one that showed it.
        """
        self._report(loss)
        first, last, _ = self._ends.get(loss.key, (0, 0, 0.0))
        if first <= loss.start < last:
            self._cut(loss.key, loss.start)

    def written(self, sends: Iterable[Send], now: float) -> None:
        """Take the successes of batches, received at ``now`` (seconds). Once for each batch."""
        ends = self._ends
        for send in sends:  # one call for all of a response: it is on the way of every one
            key, start = send.track.key, send.base_offset
            first, last, told_at = ends.get(key, (start, start, now))
            if start < last:
                if start < first and send.taken_at <= told_at:
                    continue  # it may have been written before
                self._report(Loss(key, send.track.producer_id, last - start, last, start))
                self._cut(key, start)
            elif key not in ends and len(ends) >= self._most:
                ends.popitem(last=False)
            ends[key] = first if start == last else start, start + send.records, now
