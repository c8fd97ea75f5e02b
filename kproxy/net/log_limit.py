"""So many lines of one kind of event in so much time: a peer that causes the events must not fill the disk."""

from typing import Final

import trio

_LINES: Final = 20
_SECONDS: Final = 10.0


class LogLimit:
    """20 events in 10 s may be logged; the metrics count the others."""

    def __init__(self) -> None:
        """None was logged yet."""
        self._until = -float("inf")
        self._left = 0

    def take(self) -> int:
        """How many more events may be logged in this period, this one included; 0: it is the first that may not be.

        Negative for those after it.
        """
        now = trio.current_time()
        if now >= self._until:
            self._until, self._left = now + _SECONDS, _LINES
        else:
            self._left -= 1
        return self._left
