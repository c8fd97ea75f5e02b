"""Work that is done once for all that asked before it began."""

import pytest
import trio

from kproxy.single_flight import SingleFlight


async def test_one_piece_of_work_serves_all_who_asked_before_it_began(autojump_clock: trio.testing.MockClock) -> None:
    done: list[float] = []

    async def work() -> None:
        await trio.sleep(1)
        done.append(trio.current_time())

    together = SingleFlight(work)
    ended: dict[int, float] = {}

    async def ask(number: int, at: float) -> None:
        await trio.sleep(at)
        await together()
        ended[number] = trio.current_time()

    start = trio.current_time()
    async with trio.open_nursery() as nursery:
        for number, at in enumerate((0, 0.2, 0.4, 1.5)):
            nursery.start_soon(ask, number, at)
    assert [time - start for time in done] == [1, 2, 3]
    assert [ended[number] - start for number in range(4)] == [1, 2, 2, 3]


async def test_if_it_fails_another_one_tries() -> None:
    tries = []

    async def work() -> None:
        tries.append(1)
        await trio.lowlevel.checkpoint()
        if len(tries) == 1:
            raise OSError("once")

    together, failed = SingleFlight(work), []

    async def ask() -> None:
        try:
            await together()
        except OSError:
            failed.append(1)

    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(ask)
    assert len(failed) == 1
    await together()
    with pytest.raises(trio.TooSlowError):
        with trio.fail_after(0):
            await together()
