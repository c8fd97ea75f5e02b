"""What can wait until all tasks that can run now have run: done once for all of them, by one task."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import trio
import trio.lowlevel

if TYPE_CHECKING:
    from trio.lowlevel import Abort, RaiseCancelT, Task


class EndOfTurn:
    """Calls functions at the end of a turn of the event loop.

    To begin a task for each would cost more than most of what is done there. To wake one that waits is cheaper.
    """

    def __init__(self, nursery: trio.Nursery) -> None:
        """Its task begins in ``nursery`` with the first call; once that is cancelled nothing is called any more."""
        self._nursery = nursery
        self._calls: list[Callable[[], None]] = []
        self._began = False
        self._is_held = False
        #: While it has nothing to do.
        self._waits: Task | None = None

    def call(self, work: Callable[[], None]) -> None:
        """Calls it once, when the tasks that can run now have run. It must not raise."""
        self._calls.append(work)
        if self._is_held:
            return
        if self._waits is not None:
            task, self._waits = self._waits, None
            trio.lowlevel.reschedule(task)
        elif not self._began:
            self._began = True
            self._nursery.start_soon(self._run)

    @contextmanager
    def shortened(self) -> Iterator[None]:
        """The turn ends with the block, which waits for nothing: its task has all that is to be done together."""
        held, self._is_held = self._is_held, True
        try:
            yield
        finally:
            self._is_held = held
            if not held:
                self._call_all()

    def _call_all(self) -> None:
        calls, self._calls = self._calls, []
        for work in calls:
            work()

    async def _run(self) -> None:
        while True:
            self._call_all()
            if self._calls:  # of the next turn
                await trio.lowlevel.checkpoint()
            else:
                self._waits = trio.lowlevel.current_task()
                await trio.lowlevel.wait_task_rescheduled(self._cancelled)

    def _cancelled(self, _: "RaiseCancelT") -> "Abort":
        self._waits = None
        return trio.lowlevel.Abort.SUCCEEDED
