"""Where groups stand."""

from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from kproxy.codec._generated.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from kproxy.codec._generated.offset_fetch import (
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from kproxy.codec.messages import ErrorCode, Message
from tests.verification.simulation.transactions.peers import ADDRESS, Peer
from verification.simulation.transactions import invariants
from verification.simulation.transactions.group_watch import GroupWatch
from verification.simulation.transactions.history import TransactionHistory


class Group:
    """A coordinator that says these positions one after the other; an error is said first."""

    def __init__(self, nursery: trio.Nursery, *positions: int, error: int = 0) -> None:
        self._left = [(-1, error)] * bool(error) + [(position, 0) for position in positions]
        self.peer = Peer(nursery, self._answer, silent=False)
        self.history = TransactionHistory()
        self.watch = GroupWatch(self.peer.calls(), self.history)

    def _answer(self, request: Any, _: int) -> Message:
        if isinstance(request, FindCoordinatorRequest):
            return FindCoordinatorResponse(host=ADDRESS[0], port=ADDRESS[1])
        assert request.require_stable
        position, error = self._left.pop(0)
        row = OffsetFetchResponsePartition(0, position, error_code=error)
        return OffsetFetchResponse(topics=[OffsetFetchResponseTopic("t", [row])])

    def moved(self, *, asked: bool = True, told: bool | None = True) -> None:
        claimed = self.history.open("a", 0, "id")
        claimed.asked, claimed.told, claimed.input = asked, told, self.history.next_input("g")

    async def broken(self) -> str | None:
        """What breaks when all positions were reported."""
        while self._left:
            await self.watch.position("g")
        return self.history.broken[0] if self.history.broken else None


async def test_a_position_is_asked_for_until_it_is_returned(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    group = Group(nursery, 1, error=ErrorCode.UNSTABLE_OFFSET_COMMIT)
    group.moved(told=None)
    assert await group.watch.position("g") == 1
    assert group.history.broken is None


async def test_a_group_that_was_never_moved_stands_nowhere(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    assert await Group(nursery, -1).watch.position("g") == 0


async def test_what_was_committed_before_the_question_is_in_the_answer(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    group = Group(nursery, 0)
    group.moved()
    assert await group.broken() == invariants.MOVED


async def test_a_position_never_falls(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    group = Group(nursery, 1, 0)
    group.moved(told=None)
    assert await group.broken() == invariants.MOVED


@pytest.mark.parametrize(("asked", "told"), [(False, None), (True, False)])
async def test_a_position_that_nobody_has_committed_is_told_to_nobody(
    nursery: trio.Nursery, asked: bool, told: bool | None, autojump_clock: MockClock
) -> None:
    group = Group(nursery, 1)
    group.moved(asked=asked, told=told)
    assert await group.broken() == invariants.MOVED
