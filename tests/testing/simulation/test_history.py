"""Claims."""

import trio
import trio.testing

from kproxy.testing.simulation.history import History, Sent, State
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


def test_with_a_kproxy_dies_what_it_knew_of_answers() -> None:
    history = History()
    plan = client(number=3)
    had, waits, next_one = (
        Sent(plan, nth, 0, b"a", state=state) for nth, state in enumerate((State.OK, State.OPEN, State.NEW))
    )
    history.records += had, waits
    had.evident = True
    for sent in had, waits:
        history.begin(sent)
    assert waits.clear
    history.crashed(1)
    assert had.evident
    history.crashed(0)
    assert (had.evident, waits.clear) == (False, False)
    history.begin(next_one)
    assert not next_one.clear
