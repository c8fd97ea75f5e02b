"""What can wait until all tasks that can run now have run: done once for all of them, by one task."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Self

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
        #: Blocks of ``shortened`` that have begun.
        self._held = 0
        #: While it has nothing to do.
        self._waits: Task | None = None
        self._buffer: memoryview | None = None

    def buffer(self, size: int) -> memoryview:
        """Memory to read into, for all that reads and is done with it within a turn: always the same, of this size."""
        if self._buffer is None or len(self._buffer) != size:
            self._buffer = memoryview(bytearray(size))
        return self._buffer

    def call(self, work: Callable[[], None]) -> None:
        """Calls it once, when the tasks that can run now have run. It must not raise."""
        self._calls.append(work)
        if self._held:
            return
        if self._waits is not None:
            task, self._waits = self._waits, None
            trio.lowlevel.reschedule(task)
        elif not self._began:
            self._began = True
            self._nursery.start_soon(self._run)

    def shortened(self) -> Self:
        """The turn ends with the block, which waits for nothing: its task has all that is to be done together."""
        return self

    def __enter__(self) -> None:
        self._held += 1

    def __exit__(self, *_: object) -> None:
        self._held -= 1
        if not self._held:
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
