"""What is known of parts that are prepared, and of who has an id."""

import trio
import trio.testing
from trio.testing import MockClock

from verification.simulation.transactions.control_calls import Request
from verification.simulation.transactions.history import TransactionHistory
from verification.simulation.transactions.member_history import MemberHistory


def request() -> Request:
    return Request(lambda control: control.describe("id"))


async def test_a_part_waits_until_a_decision_is_asked_for(autojump_clock: MockClock) -> None:
    history = MemberHistory(TransactionHistory())
    for name in ("a", "b"):
        history.prepared("id", name, trio.current_time())
    assert history.waits("id") == {"a", "b"}
    history.decides("id", {"a"})
    assert history.waits("id") == {"b"}
    history.sweeps("id")
    assert history.waits("id") == set()
    assert history.ids() == {"id"}


async def test_what_a_sweep_may_have_met_is_not_sure_to_wait(autojump_clock: MockClock) -> None:
    history, sweep = MemberHistory(TransactionHistory()), request()
    history.sweeps("id").append(sweep)
    history.prepared("id", "a", trio.current_time())
    assert history.waits("id") == set()
    sweep.over_at = trio.current_time()
    await trio.sleep(1)
    history.prepared("id", "b", trio.current_time())
    assert history.waits("id") == {"b"}


async def test_an_owner_may_be_replaced_by_a_request_that_ended_after_its_own(autojump_clock: MockClock) -> None:
    history, early = MemberHistory(TransactionHistory()), request()
    history.takes("id").append(early)
    await trio.sleep(1)
    mine = request()
    history.takes("id").append(mine)
    assert history.is_replaced("id", mine)
    early.over_at = mine.sent_at - 0.5
    assert not history.is_replaced("id", mine)
    history.takes("id").append(request())
    assert history.is_replaced("id", mine)
