"""The waiting of procedures of transactions (``procedures.outside.Time``), made of trio."""

from collections.abc import Callable

import trio


class TrioTime:
    """trio's clock, locks and scopes."""

    def __init__(self, wall: Callable[[], float]) -> None:
        """``wall``: seconds since 1970."""
        self._wall = wall

    def now(self) -> float:
        """Seconds."""
        return trio.current_time()

    def wall_ms(self) -> int:
        """Milliseconds since 1970."""
        return int(self._wall() * 1000)

    def lock(self) -> trio.Lock:
        """A lock that nobody has."""
        return trio.Lock()

    def event(self) -> trio.Event:
        """An event that has not happened."""
        return trio.Event()

    async def sleep(self, seconds: float) -> None:
        """Waits for so long."""
        await trio.sleep(seconds)

    def scope(self, seconds: float | None = None) -> trio.CancelScope:
        """A scope that is cancelled after so many seconds, if ever."""
        return trio.CancelScope() if seconds is None else trio.CancelScope(deadline=self.now() + seconds)
