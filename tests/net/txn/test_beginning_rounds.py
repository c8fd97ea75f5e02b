"""When a partition of the log whose first records were deleted is stated again, or continued without them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from kproxy.net.txn.beginning_rounds import BeginningRounds

#: Of the two partitions, the one that loses its beginning.
LOSER = 1


class Log:
    """A log of two partitions, and what was done about it, when. The snapshot of a partition states all before 5."""

    def __init__(self) -> None:
        self.foreign: set[int] = set()
        self.known: set[int] = set()
        self.unread: set[int] = set()
        self.partitions = 2
        self.loaders = [SimpleNamespace(is_sure=True, up_to=5) for _ in range(2)]
        self.starts = [5, 5]
        self.restarts = [0, 0]
        self.done: list[tuple[str, int, float]] = []

    def _note(self, what: str, partition: int) -> None:
        self.done.append((what, partition, trio.current_time()))

    def knows(self, partition: int) -> bool:
        return partition in self.known

    def loader(self, partition: int) -> Any:
        return self.loaders[partition]

    def is_read(self, partition: int) -> bool:
        return partition not in self.unread

    def readings(self, partition: int) -> int:
        return self.restarts[partition]

    def log_start(self, partition: int) -> int:
        return self.starts[partition]

    def lost(self, partition: int, reason: str) -> None:
        assert reason == "beginning"
        self._note("lost", partition)

    async def take(self, partition: int) -> None:
        self._note("stated", partition)
        self.starts[partition] = 5

    def begin_without(self, partition: int) -> None:
        self._note("continued", partition)
        self.loaders[partition] = SimpleNamespace(is_sure=True, up_to=9)


@asynccontextmanager
async def watched() -> AsyncIterator[Log]:
    log: Any = Log()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(BeginningRounds(log, log, log, log.begin_without).run)
        yield log
        nursery.cancel_scope.cancel()


async def test_a_partition_whose_beginning_is_stated_is_left_alone(autojump_clock: MockClock) -> None:
    async with watched() as log:
        await trio.sleep(200)
        assert log.done == []


@pytest.mark.parametrize("is_sure", [False, True])
async def test_one_that_nobody_states_continues_after_a_minute(autojump_clock: MockClock, *, is_sure: bool) -> None:
    async with watched() as log:
        if is_sure:
            log.starts[LOSER] = 6
        else:
            log.loaders[LOSER].is_sure = False
        await trio.sleep(200)
        assert log.done == [("continued", LOSER, 65.0), ("lost", LOSER, 65.0)]


async def test_who_has_read_the_beginning_states_it_soon(autojump_clock: MockClock) -> None:
    async with watched() as log:
        log.known.add(LOSER)
        log.starts[LOSER] = 6
        await trio.sleep(200)
        assert log.done == [("lost", LOSER, 10.0), ("stated", LOSER, 10.0)]


async def test_the_minute_begins_again_with_each_reading(autojump_clock: MockClock) -> None:
    async with watched() as log:
        log.starts[LOSER] = 6
        await trio.sleep_until(33)
        log.restarts[LOSER] = 1
        await trio.sleep_until(200)
        assert log.done == [("continued", LOSER, 95.0), ("lost", LOSER, 95.0)]


async def test_the_minute_begins_again_after_it_was_stated(autojump_clock: MockClock) -> None:
    async with watched() as log:
        log.starts[LOSER] = 6
        await trio.sleep_until(33)
        log.starts[LOSER] = 5
        await trio.sleep_until(43)
        log.starts[LOSER] = 6
        await trio.sleep_until(200)
        assert log.done == [("continued", LOSER, 105.0), ("lost", LOSER, 105.0)]


@pytest.mark.parametrize("why", ["foreign", "unread"])
async def test_what_is_not_understood_or_not_read_yet_is_left_alone(autojump_clock: MockClock, why: str) -> None:
    async with watched() as log:
        log.starts[LOSER] = 6
        getattr(log, why).add(LOSER)
        await trio.sleep(200)
        assert log.done == []
