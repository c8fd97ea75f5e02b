"""The bytes that all connections hold together."""

import pytest
import trio
import trio.testing

from kproxy.net.budget import Budget, Unfinished


async def is_let_in(budget: Budget, owner: object) -> bool:
    with trio.move_on_after(1) as scope:
        await budget.admit(owner)
    return not scope.cancelled_caught


def test_it_counts_what_each_holds_now() -> None:
    budget = Budget(100)
    budget.hold("a", 60)
    budget.hold("b", 30)
    budget.hold("a", 20)
    budget.hold("c", 0)
    assert (budget.used, budget.full) == (50, False)
    budget.hold("b", 90)
    assert (budget.used, budget.full) == (110, True)
    budget.hold("a", 0)
    budget.hold("b", 0)
    assert budget.used == 0


async def test_all_may_continue_below_the_limit_and_only_the_elder_beyond(
    autojump_clock: trio.testing.MockClock,
) -> None:
    budget = Budget(1_000_000)
    budget.hold("a", 500_000)
    assert await is_let_in(budget, "b")
    budget.hold("b", 500_000)
    assert await is_let_in(budget, "b")  # the first who asks is the elder
    assert not await is_let_in(budget, "a")
    assert await is_let_in(budget, "b")


@pytest.mark.parametrize("left", [0, 40])
async def test_who_waits_is_let_in_when_bytes_are_freed(autojump_clock: trio.testing.MockClock, left: int) -> None:
    budget = Budget(100)
    budget.hold("a", 100)
    assert await is_let_in(budget, "a")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(budget.admit, "b")
        nursery.start_soon(budget.admit, "c")
        await trio.testing.wait_all_tasks_blocked()
        budget.hold("a", left)


async def test_an_elder_that_ends_makes_room_for_another(autojump_clock: trio.testing.MockClock) -> None:
    """Also one that held nothing: else the others, each with half a frame, would wait for ever."""
    budget = Budget(100)
    budget.hold("b", 100)
    assert await is_let_in(budget, "elder")
    with trio.fail_after(120):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(budget.admit, "b")
            await trio.testing.wait_all_tasks_blocked()
            budget.hold("elder", 0)


async def test_who_holds_little_may_use_the_reserve_until_it_is_used_up(autojump_clock: trio.testing.MockClock) -> None:
    """Else a few that read slowly, or never, would keep everybody waiting."""
    little, much = 65_536, 65_537
    budget = Budget(1_000_000, reserve=100_000)
    budget.hold("old", 900_000)
    budget.hold("elder", 100_000)
    assert await is_let_in(budget, "elder")
    budget.hold("old", 1_000_000)
    budget.hold("elder", 500_000)  # its frame may come on top, and takes nothing from the reserve
    assert await is_let_in(budget, "new")
    budget.hold("new", little)
    assert await is_let_in(budget, "new")
    budget.hold("new", much)
    assert not await is_let_in(budget, "new")
    assert await is_let_in(budget, "other")
    budget.hold("other", 100_000 - much)
    assert not await is_let_in(budget, "third")
    budget.hold("new", 0)
    assert await is_let_in(budget, "third")


async def test_a_sender_may_have_half_of_the_memory_in_unfinished_requests(
    autojump_clock: trio.testing.MockClock,
) -> None:
    whole = Budget(1_000_000)
    unfinished = Unfinished(1_000_000, 0, whole)
    unfinished.hold("one", "a", 300_000)
    assert not unfinished.full("one")
    unfinished.hold("one", "b", 300_000)
    assert (unfinished.full("one"), unfinished.full("two")) == (True, False)
    assert not whole.crowded
    with trio.fail_after(120):
        await unfinished.admit("two", "c")
        await unfinished.admit("one", "a")  # one of them may always continue
        async with trio.open_nursery() as nursery:
            nursery.start_soon(unfinished.admit, "one", "b")
            await trio.testing.wait_all_tasks_blocked()
            assert whole.crowded
            unfinished.hold("one", "a", 0)
    unfinished.hold("one", "b", 0)
    assert unfinished.used("one") == 0


def full() -> tuple[Budget, Unfinished]:
    """All of the memory is taken, and all that one sender may have."""
    whole = Budget(1_000_000)
    unfinished = Unfinished(1_000_000, 0, whole)
    for owner in ("elder of the sender", "elder"):
        whole.hold(owner, 600_000)
        unfinished.hold("sender", owner, 600_000)
    return whole, unfinished


async def test_the_elder_of_all_does_not_wait_for_the_elder_of_its_sender(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Which may wait for the elder of all: both would wait for ever."""
    whole, unfinished = full()
    with trio.fail_after(120):
        await unfinished.admit("sender", "elder of the sender")
        await whole.admit("elder")
        await unfinished.admit("sender", "elder")
    assert not await is_let_in(whole, "elder of the sender")


async def test_one_that_waits_for_a_part_is_let_in_when_it_becomes_the_elder_of_all(
    autojump_clock: trio.testing.MockClock,
) -> None:
    whole, unfinished = full()
    await unfinished.admit("sender", "elder of the sender")
    with trio.fail_after(120):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(unfinished.admit, "sender", "elder")
            await trio.testing.wait_all_tasks_blocked()
            await whole.admit("elder")
