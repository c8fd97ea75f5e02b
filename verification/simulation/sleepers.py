"""Requests that wait although nothing keeps them: what they waited for has happened, and nobody woke them.

A client that sends more wakes them by that, and one that gives up sends them again, so no other invariant sees it.
For granted is taken that what a request waits for does not end by the mere passing of time.
"""

import inspect
from collections.abc import Callable
from typing import Any, Final

import trio

from kproxy.net.intake import Intake
from kproxy.net.retry_ledger_keeper import RetryLedgerKeeper

#: Virtual seconds after which a request that waits looks again.
_PATIENCE: Final = 2.0
_AT_ONCE: Final = 0.001


class Sleepers:
    """Has requests that wait for outcomes look again now and then: nothing must have changed for them."""

    def __init__(self, keeper: RetryLedgerKeeper, nursery: trio.Nursery, found: Callable[[], None]) -> None:
        """``found`` is called whenever one continues that nobody woke."""
        self._keeper, self._nursery, self._found = keeper, nursery, found
        self._wait = keeper.changed
        self._woken: set[trio.lowlevel.Task] = set()
        keeper.changed = self.changed  # type: ignore[method-assign]

    async def changed(self, seen: int) -> None:
        """Waits for a change; not for ever."""
        if seen != self._keeper.version:
            return
        task = trio.lowlevel.current_task()
        self._woken.discard(task)
        with trio.move_on_after(_PATIENCE):
            await self._wait(seen)
            return
        self._woken.add(task)
        self._nursery.start_soon(self._expect, task)

    async def _expect(self, task: trio.lowlevel.Task) -> None:
        await trio.sleep(_AT_ONCE)  # all that was ready has run by then
        if task in self._woken:
            self._woken.discard(task)
            if not _waits(task):
                self._found()


def _waits(task: trio.lowlevel.Task) -> bool:
    """Whether the request that a task has taken waits for something else now."""
    waits = Intake._wait_for.__code__
    running: Any = task.coro
    while running is not None and running.cr_code is not waits:
        running = running.cr_await if inspect.iscoroutine(running.cr_await) else None
    return running is not None
