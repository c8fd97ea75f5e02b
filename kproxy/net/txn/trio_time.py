"""What procedures of transactions wait with (``procedures.outside.Time``), made of trio."""

from typing import Final

import trio


class TrioTime:
    """trio's clock, locks and scopes."""

    def now(self) -> float:
        """Seconds."""
        return trio.current_time()

    def lock(self) -> trio.Lock:
        """A lock that nobody has."""
        return trio.Lock()

    def scope(self, seconds: float | None = None) -> trio.CancelScope:
        """A scope that is cancelled after so many seconds, if ever."""
        return trio.CancelScope() if seconds is None else trio.CancelScope(deadline=trio.current_time() + seconds)


#: It has no state.
TRIO_TIME: Final = TrioTime()
