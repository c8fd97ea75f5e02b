"""The virtual clock of a run: time passes only when every task waits; then what is in flight arrives."""

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from math import inf

import trio.testing
from trio._core._run import GLOBAL_RUN_CONTEXT


class VirtualClock:
    """A schedule of actions, and the clock that calls them, in one pass of trio's loop and without a task.

    Half of what happens in a run is a delivery. As a task's work each would cost trio two passes and a cancel scope.
    """

    def __init__(self, trio_clock: trio.testing.MockClock) -> None:
        """Leads trio's clock, which jumps by itself. It cannot be subclassed, so what it does then is replaced."""
        self.trio_clock = trio_clock
        self._now = trio_clock.current_time()
        trio_clock.current_time = self._current_time  # type: ignore[method-assign]
        trio_clock._autojump = self._jump  # type: ignore[method-assign]
        self._due: list[tuple[float, int, int, Callable[[], None]]] = []
        self._counter = count()

    def at(self, time: float, number: int, action: Callable[[], None]) -> None:
        """Calls ``action`` at ``time``, before tasks whose sleep ends then; ``number`` orders actions of one time.

        What is due at once is called when every task waits. An action may wake tasks, and must not raise.
        """
        heappush(self._due, (time, number, next(self._counter), action))

    def _current_time(self) -> float:
        return self._now

    def _jump(self) -> None:
        """Trio's loop calls this when every task waits: to the next deadline or action."""
        deadlines = GLOBAL_RUN_CONTEXT.runner.deadlines
        deadline = deadlines.next_deadline()
        time = min(deadline, self._due[0][0] if self._due else inf)
        if time == inf:
            return
        self._now = now = max(self._now, time)
        while self._due and self._due[0][0] <= now:
            heappop(self._due)[3]()
        if deadline <= now:
            deadlines.expire(now)
