"""Claims."""

import trio
import trio.testing

from tests.verification.simulation.worlds import client
from verification.simulation.history import History, Sent, State


async def test_lines_bear_the_virtual_time(autojump_clock: trio.testing.MockClock) -> None:
    history = History()
    await trio.sleep(1.5)
    history.note("something")
    assert [line.split() for line in history.trace] == [["1.5000", "something"]]


async def test_identities_are_disturbed_together() -> None:
    history = History()
    history.disturb(client(number=3))
    assert set(history.disturbed) == {("c3", "10.0.0.4")}


async def test_with_a_kproxy_dies_what_it_knew_of_answers() -> None:
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
    history.crashed(1, 0.0)
    assert had.evident
    history.crashed(0, 0.0)
    assert (had.evident, waits.clear) == (False, False)
    history.begin(next_one)
    assert not next_one.clear


async def test_what_lay_far_back_when_its_kproxy_died_is_buried() -> None:
    for at, later, found in ((1.0, 5, {(0, b"0")}), (1.0, 4, set()), (3.5, 5, set())):
        history = History()
        plan = client(number=3)
        history.records += [
            Sent(plan, nth, 0, b"%d" % nth, state=State.OK, order=nth, told_at=at if nth == 0 else 4.5)
            for nth in range(later + 1)
        ]
        history.crashed(1, 5.0)
        assert not history.buried
        history.crashed(0, 5.0)
        assert history.buried == found
