"""Does something once for all that asked for it before it began."""

from collections.abc import Awaitable, Callable

import trio


class SingleFlight:
    """Does something once for all tasks that asked before it began."""

    def __init__(self, work: Callable[[], Awaitable[None]]) -> None:
        """``work`` is done by one of the tasks that ask. If it fails, that task gets the error, another one tries."""
        self._work = work
        self._begun = self._done = 0
        self._busy = False
        self._lot = trio.lowlevel.ParkingLot()

    async def __call__(self) -> None:
        """Returns when a piece of work that began after this call is done."""
        due = self._begun + 1
        while self._done < due:
            if self._busy:
                await self._lot.park()
                continue
            self._begun += 1
            turn, self._busy = self._begun, True
            try:
                await self._work()
                self._done = turn
            finally:
                self._busy = False
                self._lot.unpark_all()
