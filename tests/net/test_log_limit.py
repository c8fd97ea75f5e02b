import trio
import trio.testing

from kproxy.net.log_limit import LogLimit


async def test_20_events_in_10_seconds_are_logged(autojump_clock: trio.testing.MockClock) -> None:
    limit = LogLimit()
    assert [limit.take() for _ in range(23)] == [*range(20, -3, -1)]
    await trio.sleep(9.9)
    assert limit.take() < 0
    await trio.sleep(0.2)
    assert limit.take() == 20
