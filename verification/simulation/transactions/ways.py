"""The ways of clients to write in transactions, and the steps of a process of any of them."""

from enum import Enum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from verification.simulation.transactions.history import Claimed


class Way(Enum):
    """The way of one producer."""

    KIP_98 = "KIP-98's requests"
    BY_HAND = "by hand"
    """Somebody says by the control API where its transactions begin and end."""
    ON_OFFSET_COMMIT = "on.offset.commit"
    PER_REQUEST = "per.request"


class Steps(Protocol):
    """One life of a producer, step by step; all steps may raise ``Abortable`` and ``Fatal``."""

    def say(self, text: str) -> None:
        """Notes what it does."""
        ...

    async def initialize(self, *, again: bool = False) -> None:
        """Prepares for transactions; ``again``: after one that failed."""
        ...

    def begin(self, nth: int) -> "Claimed":
        """A new transaction."""
        ...

    async def write(self, claimed: "Claimed", batches: "Sequence[tuple[int, int]]") -> None:
        """Writes so many records each to some partitions."""
        ...

    async def end(self, claimed: "Claimed", *, committed: bool) -> None:
        """Has it committed, or aborted."""
        ...

    def killed(self) -> None:
        """The process has ended; what it has sent may still arrive."""
        ...

    def close(self) -> None:
        """Closes its connections."""
        ...
