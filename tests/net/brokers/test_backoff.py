"""Pauses between attempts: twice as long each time, up to a limit, and different in each instance."""

import trio
import trio.testing

from kproxy.config import Address, Config
from kproxy.net.brokers.backoff import CHANCE, Backoff

CONFIG = Config(bootstrap_servers=(Address("b", 9092),), retry_backoff_ms=100, retry_backoff_max_ms=300)


async def pauses(attempts: int, reset_before: int = -1) -> list[float]:
    """In ms."""
    backoff, found = Backoff(CONFIG), list[float]()
    for attempt in range(attempts):
        if attempt == reset_before:
            backoff.reset()
        began = trio.current_time()
        await backoff.pause()
        found.append((trio.current_time() - began) * 1000)
    return found


async def test_pauses_double_up_to_the_limit_and_begin_again(autojump_clock: trio.testing.MockClock) -> None:
    for _ in range(20):
        found = await pauses(6, 4)
        for pause, longest in zip(found, (100, 200, 300, 300, 100, 200), strict=True):
            assert longest / 2 - 0.001 <= pause <= longest + 0.001


async def test_pauses_differ_and_follow_a_seed(autojump_clock: trio.testing.MockClock) -> None:
    state = CHANCE.getstate()
    try:
        first, second = await pauses(3), await pauses(3)
        assert first != second
        CHANCE.setstate(state)
        assert [round(pause, 3) for pause in await pauses(3)] == [round(pause, 3) for pause in first]
    finally:
        CHANCE.setstate(state)
