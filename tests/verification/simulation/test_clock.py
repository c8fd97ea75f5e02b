"""The clock of a run, and what it calls."""

import pytest
import trio
from trio.testing import MockClock

from verification.simulation.clock import VirtualClock


@pytest.fixture
def clock(autojump_clock: MockClock) -> VirtualClock:
    return VirtualClock(autojump_clock)


async def test_actions_are_called_in_order_of_time_then_number_then_call(
    clock: VirtualClock, autojump_clock: MockClock
) -> None:
    called: list[tuple[str, float]] = []

    def at(time: float, number: int, name: str) -> None:
        clock.at(time, number, lambda: called.append((name, trio.current_time())))

    at(2.0, 0, "later")
    at(1.0, 7, "second")
    at(1.0, 1, "first")
    at(1.0, 7, "third")
    await trio.sleep(3.0)
    assert called == [("first", 1.0), ("second", 1.0), ("third", 1.0), ("later", 2.0)]
    assert trio.current_time() == 3.0


async def test_an_action_comes_before_a_task_that_wakes_at_its_time(
    clock: VirtualClock, autojump_clock: MockClock
) -> None:
    called: list[int] = []
    clock.at(1.0, 0, lambda: called.append(1))
    await trio.sleep(1.0)
    assert called == [1]


async def test_what_is_due_at_once_waits_until_every_task_waits(clock: VirtualClock, autojump_clock: MockClock) -> None:
    await trio.sleep(5.0)
    called: list[float] = []
    clock.at(4.0, 0, lambda: called.append(trio.current_time()))
    await trio.lowlevel.checkpoint()
    assert not called
    await trio.sleep(0.1)
    assert called == [5.0]


async def test_an_action_wakes_a_task_without_a_deadline(clock: VirtualClock, autojump_clock: MockClock) -> None:
    done = trio.Event()
    clock.at(1.5, 0, done.set)
    await done.wait()
    assert trio.current_time() == 1.5
