"""The bytes that all connections hold together, and which connections wait when there are too many.

The older of two connections may always continue: otherwise connections that hold half of a frame could wait for each
other for ever. Connections that hold little may use a reserve: otherwise a few that read slowly, or never, would block
all others.
"""

from typing import Final

import trio

#: Who holds no more than this many bytes may use the reserve.
_LITTLE: Final = 65_536


class Budget:
    """Counts held bytes by owner. A soft limit: the reserve, one read, and the elder's frame may come on top."""

    def __init__(self, limit: int, reserve: int = 0) -> None:
        """``limit`` and, on top of it, ``reserve``: bytes."""
        self._limit = limit
        self._reserve = reserve
        self._held: dict[object, int] = {}
        self._elder: object | None = None
        self._lot = trio.lowlevel.ParkingLot()
        #: Long conversions of old record formats that run at a time.
        self.converting = trio.CapacityLimiter(1)
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
            if self._elder is owner:
                self._elder = None
                self._lot.unpark_all()
        self.used += more
        if self.used > self.peak:
            self.peak = self.used
        if more < 0 and self._lot:
            self._lot.unpark_all()

    @property
    def full(self) -> bool:
        """Whether the limit is reached."""
        return self.used >= self._limit

    async def admit(self, owner: object) -> None:
        """Waits until ``owner`` may hold more."""
        while self.used >= self._limit and not self._may_use_reserve(owner):
            if self._elder is None:
                self._elder = owner
            if self._elder is owner:
                return
            await self._lot.park()

    @property
    def crowded(self) -> bool:
        """Whether somebody waits."""
        return bool(self._lot)

    def _may_use_reserve(self, owner: object) -> bool:
        elder = self._held.get(self._elder, 0) if self._elder is not None else 0
        return self._held.get(owner, 0) <= _LITTLE and self.used - elder < self._limit + self._reserve


class Unfinished:
    """The bytes of incomplete requests, by sender; each sender has at most half of the memory for them.

    A sender is a principal, or the address of clients that have none. So one that begins many requests and ends none
    keeps only its own clients waiting.
    """

    def __init__(self, limit: int, reserve: int) -> None:
        """``limit`` and ``reserve`` of the whole, in bytes, as for ``Budget``."""
        self._limit = limit
        self._reserve = reserve
        self._budgets: dict[str, Budget] = {}

    def hold(self, sender: str, owner: object, count: int) -> None:
        """Sets what ``owner``, of this sender, holds now, in bytes."""
        budget = self._budgets.get(sender)
        if budget is None:
            if not count:
                return
            budget = self._budgets[sender] = Budget(self._limit // 2, self._reserve // 2)
        budget.hold(owner, count)
        if not budget.used and not budget.crowded:
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
        """What a sender holds, in bytes."""
        budget = self._budgets.get(sender)
        return 0 if budget is None else budget.used

    @property
    def crowded(self) -> bool:
        """Whether somebody waits."""
        return any(budget.crowded for budget in self._budgets.values())
