"""Requests that nobody wakes are found; those that still wait are not."""

from typing import TYPE_CHECKING, cast

import pytest
import trio
import trio.testing

from verification.simulation.sleepers import Sleepers

if TYPE_CHECKING:
    from kproxy.net.retry_ledger_keeper import RetryLedgerKeeper


class Keeper:
    """Wakes those that wait only when a test says so."""

    def __init__(self) -> None:
        self.version = 0
        self._lot = trio.lowlevel.ParkingLot()

    async def changed(self, seen: int) -> None:
        if self.version == seen:
            await self._lot.park()

    def change(self) -> None:
        self.version += 1
        self._lot.unpark_all()


async def found(keeper: Keeper, *, looks: int, changes: bool = False) -> int:
    """How many requests were found that nobody woke, where one looks so often before it continues."""
    count = 0

    def slept() -> None:
        nonlocal count
        count += 1

    async with trio.open_nursery() as nursery:
        Sleepers(cast("RetryLedgerKeeper", keeper), nursery, slept)
        with trio.move_on_after(60):
            for _ in range(looks):
                if changes:
                    nursery.start_soon(_change, keeper)
                await keeper.changed(keeper.version)
        await trio.sleep(1)
    return count


async def _change(keeper: Keeper) -> None:
    await trio.sleep(0.5)
    keeper.change()


@pytest.mark.parametrize("looks", [1, 5])
async def test_a_request_that_continues_unasked_is_found(autojump_clock: trio.testing.MockClock, looks: int) -> None:
    assert await found(Keeper(), looks=looks) == 1


async def test_one_that_is_woken_is_not(autojump_clock: trio.testing.MockClock) -> None:
    assert await found(Keeper(), looks=3, changes=True) == 0
