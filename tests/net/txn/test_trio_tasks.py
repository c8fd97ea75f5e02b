"""Procedures side by side: some at a time, and all have ended when the caller continues."""

from functools import partial

import pytest
import trio
import trio.testing

from kproxy.net.txn.trio_tasks import TrioTasks, together

pytestmark = pytest.mark.usefixtures("autojump_clock")


class Counting:
    """Procedures that take a second each."""

    def __init__(self) -> None:
        self.running = self.most = self.ended = 0

    async def one(self) -> None:
        self.running += 1
        self.most = max(self.most, self.running)
        await trio.sleep(1)
        self.running -= 1
        self.ended += 1

    async def placed(self, tasks: TrioTasks) -> None:
        async with tasks.place():
            await self.one()


async def test_so_many_are_performed_at_a_time() -> None:
    counting = Counting()
    await together(2)([counting.one] * 5)
    assert (counting.most, counting.ended) == (2, 5)


async def test_an_error_leaves_no_place_taken() -> None:
    async def fail() -> None:
        raise OSError("closed")

    perform = together(1)
    with pytest.raises(BaseExceptionGroup):
        await perform([fail])
    counting = Counting()
    await perform([counting.one])
    assert counting.ended == 1


async def test_places_are_shared_by_all_calls() -> None:
    tasks, counting = TrioTasks(2), Counting()
    async with trio.open_nursery() as nursery:
        for _ in range(2):
            nursery.start_soon(tasks.all, [partial(counting.placed, tasks)] * 3)
    assert (counting.most, counting.ended) == (2, 6)


async def test_what_was_begun_ends_with_the_block() -> None:
    tasks, counting = TrioTasks(8), Counting()
    async with tasks.open() as start:
        start(counting.one)
        start(counting.one)
    assert (counting.most, counting.ended) == (2, 2)
