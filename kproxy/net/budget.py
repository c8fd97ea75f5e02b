"""The bytes that all connections hold together, and who has to wait when there are too many.

One connection, the elder, may always go on: else those that hold half of a frame could wait for each other for ever.
Those that hold little may use a reserve: else a few that read slowly, or never, would keep everybody waiting.
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
        self.used = 0

    def hold(self, owner: object, count: int) -> None:
        """Sets what ``owner`` holds now, in bytes."""
        had = self._held.get(owner, 0)
        if not count and self._elder is owner:
            self._elder = None
            self._lot.unpark_all()
        if count == had:
            return
        if count:
            self._held[owner] = count
        else:
            del self._held[owner]
        self.used += count - had
        if count < had and self._lot:
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

    def _may_use_reserve(self, owner: object) -> bool:
        elder = self._held.get(self._elder, 0) if self._elder is not None else 0
        return self._held.get(owner, 0) <= _LITTLE and self.used - elder < self._limit + self._reserve
