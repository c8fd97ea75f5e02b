"""Procedures of transactions that run side by side (``procedures.outside.SideBySide``), as tasks of trio."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import trio

from kproxy.txn.procedures.outside import Together, Work


class TrioTasks:
    """Tasks, of which so many at a time have a place."""

    def __init__(self, places: int) -> None:
        """``places``: how many there are."""
        self._places = trio.Semaphore(places)

    async def all(self, works: Sequence[Work]) -> None:
        """Performs procedures, and returns when all have ended."""
        async with self.open() as start:
            for work in works:
                start(work)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Callable[[Work], None]]:
        """A function that begins procedures; they end with the block."""
        async with trio.open_nursery() as nursery:
            yield nursery.start_soon

    def place(self) -> AbstractAsyncContextManager[None]:
        """A place for the block, once there is one."""
        return self._places


def together(at_a_time: int) -> Together:
    """Performs procedures side by side, so many at a time in each call (``procedures.outside.Together``)."""

    async def perform(works: Sequence[Work]) -> None:
        limit = trio.Semaphore(at_a_time)

        async def do(work: Work) -> None:
            try:
                await work()
            finally:
                limit.release()

        async with trio.open_nursery() as nursery:
            for work in works:
                await limit.acquire()
                nursery.start_soon(do, work)

    return perform
