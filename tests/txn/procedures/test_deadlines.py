"""Warnings of what is prepared, and what the broker will abort."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import pytest
import trio
import trio.testing
from structlog.testing import capture_logs

from kproxy.codec.messages import Message
from kproxy.net.txn.reports import report
from kproxy.proxy.transaction_stats import TransactionStats
from kproxy.txn.ids import Producer
from kproxy.txn.procedures.deadlines import Deadlines
from kproxy.txn.view import IdView, LogPosition
from kproxy.txn.view_values import BrokerTransaction
from tests.txn.bodies import claim, decision, member, native_member, prepare, producer

P0 = producer(100, 0)
M, N, L = producer(200, 0), producer(201, 0), producer(202, 0)
SOON, LATER = (BrokerTransaction("slot", Producer(300, 0), level=2, timeout_ms=ms) for ms in (1_000, 4_000))


@dataclass
class Scene:
    """Views as a log gives them, and a clock that stands; each record came at 0 ms."""

    found: list[IdView]
    now: float = 0.0

    def __post_init__(self) -> None:
        self.stats, self.views = TransactionStats(), self
        self.deadlines = Deadlines(cast(Any, self), self.stats, lambda: self.now * 1000, report)

    def unsettled(self) -> Sequence[IdView]:
        return self.found

    async def pause(self, seconds: float) -> None:
        await trio.sleep(seconds)
        self.now += seconds

    def look(self, now: float) -> list[str]:
        """The members that are warned of."""
        self.now = now
        with capture_logs() as lines:
            self.deadlines.look()
        return [line["member"] for line in lines]


def scene(*records: Message) -> Scene:
    view = IdView("id")
    for offset, body in enumerate(records):
        assert view.apply(body, LogPosition(offset, 0))
    return Scene([view])


@pytest.fixture
def two() -> Scene:
    return scene(
        claim(1, P0),
        native_member(1, P0, M, 5, "m", SOON),
        native_member(1, P0, N, 6, "n", LATER),
        member(1, P0, L, 7, "own"),
        prepare(5, M),
        prepare(6, N),
        prepare(7, L),
    )


def test_each_is_warned_of_once_in_its_last_quarter(two: Scene) -> None:
    assert [two.look(now) for now in (0.0, 0.75, 0.76, 0.9, 3.0, 3.1, 9.0)] == [[], [], ["m"], [], [], ["n"], []]


def test_one_that_has_more_time_than_was_thought_is_warned_of_again_when_it_is_near(two: Scene) -> None:
    assert [two.look(now) for now in (0.9, 0.1, 0.8)] == [["m"], [], ["m"]]


async def test_they_are_checked_again_and_again(two: Scene, autojump_clock: trio.testing.MockClock) -> None:
    with capture_logs() as lines, trio.move_on_after(10):
        await two.deadlines.run()
    assert [line["member"] for line in lines] == ["m", "n"]


def test_the_next_to_be_aborted_is_returned_until_it_is_decided(two: Scene) -> None:
    two.look(0.0)
    assert two.stats.prepared_until == 1.0
    (view,) = two.found
    assert view.apply(decision(1, P0, False, [P0, M]), LogPosition(9, 0))
    two.look(0.0)
    assert two.stats.prepared_until == 4.0


def test_what_kproxy_keeps_itself_waits_for_ever() -> None:
    alone = scene(claim(1, P0), member(1, P0, L, 7, "own"), prepare(7, L), prepare(1, P0))
    assert alone.look(1e9) == []
    assert alone.stats.prepared_until is None


def test_what_is_open_is_not_prepared() -> None:
    open_one = scene(claim(1, P0), native_member(1, P0, M, 5, "m", SOON))
    assert open_one.look(1e9) == []
    assert open_one.stats.prepared_until is None
