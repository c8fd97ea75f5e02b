"""Pauses between attempts: twice as long each time, up to a limit."""

import trio
import trio.testing

from kproxy.config import Address, Config
from kproxy.net.brokers.backoff import Backoff


async def test_pauses_double_up_to_the_limit_and_begin_again(autojump_clock: trio.testing.MockClock) -> None:
    backoff = Backoff(Config(bootstrap_servers=(Address("b", 9092),), retry_backoff_ms=100, retry_backoff_max_ms=300))
    pauses: list[int] = []
    for attempt in range(6):
        if attempt == 4:
            backoff.reset()
        began = trio.current_time()
        await backoff.pause()
        pauses.append(round((trio.current_time() - began) * 1000))
    assert pauses == [100, 200, 300, 300, 100, 200]
