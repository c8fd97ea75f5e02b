"""Claims."""

import trio
import trio.testing

from kproxy.testing.simulation.history import History
from tests.testing.simulation.worlds import client


async def test_lines_bear_the_virtual_time(autojump_clock: trio.testing.MockClock) -> None:
    history = History()
    await trio.sleep(1.5)
    history.note("something")
    assert [line.split() for line in history.trace] == [["1.5000", "something"]]


def test_identities_are_disturbed_together() -> None:
    history = History()
    history.disturb(client(number=3))
    assert history.disturbed == {("c3", "10.0.0.4")}
