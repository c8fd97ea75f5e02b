"""How much work is done between two looks of the loop, and whose turn comes when."""

import trio

from kproxy.budget import AT_ONCE_STEPS, FREE_STEPS
from kproxy.net.turns import Turns


async def test_what_fits_into_a_turn_is_done_at_once_and_what_is_short_always() -> None:
    turns = Turns()
    assert turns.fits(AT_ONCE_STEPS // 2)
    assert turns.fits(AT_ONCE_STEPS // 2)
    assert not turns.fits(FREE_STEPS + 1)
    assert turns.fits(FREE_STEPS)
    await turns.wait(FREE_STEPS + 1)
    assert turns.fits(AT_ONCE_STEPS // 2), "the loop has looked at its connections"


async def test_one_piece_of_work_is_done_however_large_it_is() -> None:
    turns = Turns()
    assert turns.fits(10 * AT_ONCE_STEPS)
    assert not turns.fits(10 * AT_ONCE_STEPS)


async def test_those_that_wait_continue_in_order_each_after_a_look_of_the_loop() -> None:
    turns, done = Turns(), list[str]()
    looks = Looks()

    async def work(name: str) -> None:
        await turns.wait(AT_ONCE_STEPS)
        done.append(f"{name} {looks.count}")

    trio.lowlevel.add_instrument(looks)
    async with trio.open_nursery() as nursery:
        for name in "abc":
            nursery.start_soon(work, name)
    names, counts = zip(*(row.split() for row in done), strict=True)
    assert sorted(names) == ["a", "b", "c"]
    assert len(set(counts)) == len(counts), "no two of them in one turn"


class Looks(trio.abc.Instrument):
    """Counts the turns of the loop."""

    count = 0

    def after_io_wait(self, timeout: float) -> None:
        self.count += 1
