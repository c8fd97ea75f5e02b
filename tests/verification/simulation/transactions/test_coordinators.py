"""Questions to coordinators."""

from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from kproxy.codec._generated.add_partitions_to_txn import (
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResponseAddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponseAddPartitionsToTxnTopicResult,
)
from kproxy.codec._generated.end_txn import EndTxnRequest, EndTxnResponse
from kproxy.codec._generated.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from kproxy.codec.messages import ApiKey, ErrorCode, Message
from tests.verification.simulation.transactions.peers import ADDRESS, Peer, rng
from verification.simulation.transactions.coordinators import Coordinators, Fatal, error_of

VERSIONS = {ApiKey.END_TXN: 3}
REQUEST = EndTxnRequest("id", 1, 0, True)


class Asked:
    """A peer that coordinates, and says these errors one after the other; None: nothing."""

    def __init__(self, nursery: trio.Nursery, *errors: int | None) -> None:
        self._errors = list(errors)
        self.said: list[str] = []
        self.peer = Peer(nursery, self._answer, silent=False)
        self.coordinators = Coordinators(self.peer.calls(), VERSIONS, rng(), self.said.append)

    def _answer(self, request: Any, _: int) -> Message | None:
        if isinstance(request, FindCoordinatorRequest):
            return FindCoordinatorResponse(node_id=1, host=ADDRESS[0], port=ADDRESS[1])
        error = self._errors.pop(0) if len(self._errors) > 1 else self._errors[0]
        return None if error is None else EndTxnResponse(error_code=error)

    def count(self, kind: type[Message]) -> int:
        return sum(isinstance(request, kind) for _, request in self.peer.asked)


async def test_a_coordinator_is_found_once_and_asked_until_it_is_definite(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    asked = Asked(nursery, ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 0)
    answer = await asked.coordinators.ask(REQUEST, "id")
    assert not answer.error_code
    assert (asked.count(EndTxnRequest), asked.count(FindCoordinatorRequest)) == (3, 1)


async def test_a_coordinator_that_has_moved_is_found_again(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    asked = Asked(nursery, ErrorCode.NOT_COORDINATOR, 0)
    await asked.coordinators.ask(REQUEST, "id")
    assert asked.count(FindCoordinatorRequest) == 2


async def test_an_error_that_is_definite_is_the_answer(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    asked = Asked(nursery, ErrorCode.PRODUCER_FENCED)
    answer = await asked.coordinators.ask(REQUEST, "id")
    assert answer.error_code == ErrorCode.PRODUCER_FENCED


async def test_who_asks_hears_that_a_request_may_still_come(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    asked = Asked(nursery, None, None, 0)
    lost: list[int] = []
    await asked.coordinators.ask(REQUEST, "id", lost=lambda: lost.append(1))
    assert len(lost) == 2
    assert any("no answer to EndTxnRequest" in text for text in asked.said)


async def test_who_asks_hears_of_each_further_request(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    asked = Asked(nursery, None, ErrorCode.CONCURRENT_TRANSACTIONS, 0)
    again: list[int] = []
    await asked.coordinators.ask(REQUEST, "id", again=lambda: again.append(asked.count(EndTxnRequest)))
    assert again == [1, 2]
    await asked.coordinators.ask(REQUEST, "id", again=lambda: again.append(0))
    assert again == [1, 2]


async def test_max_block_ms_ends_the_asking(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    asked = Asked(nursery, ErrorCode.CONCURRENT_TRANSACTIONS)
    began = trio.current_time()
    with pytest.raises(Fatal):
        await asked.coordinators.ask(REQUEST, "id")
    assert trio.current_time() - began == pytest.approx(30.0, abs=1.0)


def test_of_many_errors_the_first_counts() -> None:
    rows = [AddPartitionsToTxnResponseAddPartitionsToTxnPartitionResult(n, code) for n, code in enumerate((0, 3, 5))]
    topic = AddPartitionsToTxnResponseAddPartitionsToTxnTopicResult("t", rows)
    assert error_of(AddPartitionsToTxnResponse(results_by_topic_v3_and_below=[topic])) == 3
    assert error_of(EndTxnResponse(error_code=7)) == 7
