"""The outcome of a transaction's data, and who can say so."""

from enum import Enum, auto
from typing import Protocol


class Verdict(Enum):
    """Whether the data of one (producer id, epoch) are to be seen by a read_committed consumer."""

    COMMITTED = auto()
    ABORTED = auto()
    UNDECIDED = auto()
    """Hidden, and so is everything behind: here is the last stable offset."""


class Decisions(Protocol):
    """The knowledge of kproxy's transactions that a filter needs."""

    def verdict(self, producer_id: int, epoch: int) -> Verdict:
        """The verdict on an epoch of a producer id with both of kproxy's bits."""
        ...

    def is_other_copy(
        self, producer_id: int, epoch: int, topic: str, partition: int, base_sequence: int, base_offset: int
    ) -> bool:
        """Whether this batch of a committed epoch was sent more than once, and another copy counts."""
        ...

    def met(self, producer_id: int, topic: str, partition: int, offset: int) -> None:
        """A reader stops at a batch that is undecided; its offset."""
        ...


class NothingKnown:
    """``Decisions`` where no transaction log is read: nothing of kproxy's transactions is to be seen."""

    def verdict(self, producer_id: int, epoch: int) -> Verdict:
        """Undecided, for ever."""
        return Verdict.UNDECIDED

    def is_other_copy(
        self, producer_id: int, epoch: int, topic: str, partition: int, base_sequence: int, base_offset: int
    ) -> bool:
        """Never asked: nothing is committed."""
        return False

    def met(self, producer_id: int, topic: str, partition: int, offset: int) -> None:
        """Nobody can do anything about it."""
