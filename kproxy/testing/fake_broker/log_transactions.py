"""The transactions in one partition's log: which are open, how far all is decided, which were aborted.

As in Kafka's ``ProducerStateManager`` and ``TransactionIndex`` (KIP-98): a transaction begins with its producer's first
transactional batch after the last marker, and ends with the next marker.
"""

from typing import NamedTuple


class EndedTransaction(NamedTuple):
    """A producer's transaction between its first batch and its marker, both offsets included."""

    producer_id: int
    epoch: int
    first_offset: int
    last_offset: int
    committed: bool


class LogTransactions:
    """What a partition knows of them."""

    def __init__(self) -> None:
        self._open: dict[int, tuple[int, int]] = {}
        """Epoch and first offset, by producer id."""
        self._ended: list[EndedTransaction] = []
        """In the order of their markers."""

    def began(self, producer_id: int, epoch: int, offset: int) -> None:
        """Note a transactional batch; the first one begins the transaction."""
        self._open.setdefault(producer_id, (epoch, offset))

    def ended(self, producer_id: int, offset: int, committed: bool) -> None:
        """Note the marker at ``offset``; one that ends nothing changes nothing."""
        if producer_id in self._open:
            ended = EndedTransaction(producer_id, *self._open.pop(producer_id), offset, committed)
            self._ended.append(ended)

    def is_open(self, producer_id: int, epoch: int) -> bool:
        """Tell whether a producer has an open transaction of this epoch."""
        return self._open.get(producer_id, (-1, -1))[0] == epoch

    def first_offset(self, producer_id: int) -> int:
        """Return where a producer's open transaction begins; -1 without one."""
        return self._open.get(producer_id, (-1, -1))[1]

    def stable_offset(self, high_watermark: int) -> int:
        """Return the last stable offset: all below it is decided, and the decisions are replicated."""
        undecided = [first for _, first in self._open.values()]
        for ended in reversed(self._ended):
            if ended.last_offset < high_watermark:
                break
            undecided.append(ended.first_offset)
        return min([high_watermark, *undecided])

    def aborted(self, start: int, end: int) -> list[EndedTransaction]:
        """Return the aborted transactions that have something in ``start`` to ``end`` (excluded)."""
        return [
            ended
            for ended in self._ended
            if not ended.committed and ended.last_offset >= start and ended.first_offset < end
        ]

    def is_aborted(self, producer_id: int, offset: int) -> bool:
        """Tell whether what a producer has at ``offset`` was aborted."""
        return any(ended.producer_id == producer_id for ended in self.aborted(offset, offset + 1))

    def truncate(self, end: int) -> None:
        """Forget what lies from ``end`` on; a transaction that has lost its marker is open again."""
        for ended in reversed(self._ended):
            if ended.last_offset >= end:
                self._open[ended.producer_id] = (ended.epoch, ended.first_offset)
        self._ended = [ended for ended in self._ended if ended.last_offset < end]
        self._open = {owner: begun for owner, begun in self._open.items() if begun[1] < end}
