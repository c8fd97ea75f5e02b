"""The bytes that all connections hold together, and which connections wait when there are too many.

The older of two connections may always continue: otherwise connections that hold half of a frame could wait for each
other for ever. The elder of all continues beyond the limit of a part, too: otherwise it and the elder of that part
could wait for each other. Connections that hold little may use a reserve: otherwise a few that read slowly, or never,
would block all others.
"""

from collections.abc import Callable
from typing import Final, TypeVar

import trio

from kproxy.net.long_work import beside
from kproxy.net.turns import Turns

T = TypeVar("T")

#: Who holds no more than this many bytes may use the reserve.
_LITTLE: Final = 65_536


class Budget:
    """Counts held bytes by owner. A soft limit: the reserve, one read, and the elder's frame may come on top."""

    def __init__(self, limit: int, reserve: int = 0, whole: "Budget | None" = None) -> None:
        """``limit`` and, on top of it, ``reserve``: bytes. ``whole``: that of which this is a part, if any."""
        self._whole = whole
        self._limit = limit
        self._reserve = reserve
        self._held: dict[object, int] = {}
        #: The owner that may always continue; None: the next that asks.
        self.elder: object | None = None
        #: Who waits, for the whole or for one of its parts.
        self.waiting: trio.lowlevel.ParkingLot = whole.waiting if whole is not None else trio.lowlevel.ParkingLot()
        #: What is done between two looks of the loop at all connections.
        self.turns = Turns()
        self.used = 0
        #: The most that was held since somebody last set this, in bytes.
        self.peak = 0

    def hold(self, owner: object, count: int) -> None:
        """Sets what ``owner`` holds now, in bytes."""
        if count:
            more = count - self._held.get(owner, 0)
            self._held[owner] = count
        else:
            more = -self._held.pop(owner, 0)
            if self.elder is owner:
                self.elder = None
                self.waiting.unpark_all()
        self.used += more
        if self.used > self.peak:
            self.peak = self.used
        if more < 0 and self.waiting:
            self.waiting.unpark_all()

    @property
    def full(self) -> bool:
        """Whether the limit is reached."""
        return self.used >= self._limit

    async def admit(self, owner: object) -> None:
        """Waits until ``owner`` may hold more."""
        while self.used >= self._limit and not self._may_use_reserve(owner):
            if self.elder is None:
                self.elder = owner
                self.waiting.unpark_all()  # it may wait for a part, in another task
            if self.elder is owner or (self._whole is not None and self._whole.elder is owner):
                return
            await self.waiting.park()

    async def beside(self, work: Callable[[], T], most_bytes: int) -> T:
        """Does long work on a message of a connection beside the loop, which may hold so many bytes meanwhile."""
        made = await beside(work)
        self.peak = max(self.peak, self.used + most_bytes)
        return made

    @property
    def crowded(self) -> bool:
        """Whether somebody waits, for the whole or for one of its parts."""
        return bool(self.waiting)

    def _may_use_reserve(self, owner: object) -> bool:
        elder = self._held.get(self.elder, 0) if self.elder is not None else 0
        return self._held.get(owner, 0) <= _LITTLE and self.used - elder < self._limit + self._reserve


class Unfinished:
    """The bytes of incomplete requests, by sender; each sender has at most half of the memory for them.

    A sender is a principal, or the address of clients that have none. So one that begins many requests and ends none
    keeps only its own clients waiting.
    """

    def __init__(self, limit: int, reserve: int, whole: Budget) -> None:
        """``limit`` and ``reserve`` of the whole, in bytes, as for ``Budget``."""
        self._limit = limit
        self._reserve = reserve
        self._whole = whole
        self._budgets: dict[str, Budget] = {}

    def hold(self, sender: str, owner: object, count: int) -> None:
        """Sets what ``owner``, of this sender, holds now, in bytes."""
        budget = self._budgets.get(sender)
        if budget is None:
            if not count:
                return
            budget = self._budgets[sender] = Budget(self._limit // 2, self._reserve // 2, self._whole)
        budget.hold(owner, count)
        if not budget.used:
            del self._budgets[sender]

    def full(self, sender: str) -> bool:
        """Whether a sender has no room left."""
        budget = self._budgets.get(sender)
        return budget is not None and budget.full

    async def admit(self, sender: str, owner: object) -> None:
        """Waits until ``owner`` may hold more."""
        budget = self._budgets.get(sender)
        if budget is not None:
            await budget.admit(owner)

    def used(self, sender: str) -> int:
        """The bytes that a sender holds."""
        budget = self._budgets.get(sender)
        return 0 if budget is None else budget.used
