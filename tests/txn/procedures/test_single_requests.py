"""``per.request``: each request of a client is a transaction, one after another, and is written whole or not at all."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
import trio
import trio.testing

from kproxy.codec.messages import ErrorCode
from kproxy.txn.ids import Producer
from kproxy.txn.procedures import single_requests
from kproxy.txn.procedures.single_requests import SingleRequests
from kproxy.txn.requests import ClientBatch, TxnRequest, Written
from kproxy.txn.txn_error import TxnError
from tests.txn.procedures.managed_scene import managed_by

TIMEOUT_MS = 60_000
PRODUCER = Producer(4000, 7)
WRITTEN = Written(0, 5, -1)
REFUSED = Written(ErrorCode.MESSAGE_TOO_LARGE, -1, -1)
BATCHES = [ClientBatch("t", index, memoryview(b"batch"), 1, 0) for index in (0, 1)]
NOT_ATTEMPTED = ErrorCode.OPERATION_NOT_ATTEMPTED


@dataclass
class Transactions:
    """A coordinator that grants everything, and notes in order what it was asked."""

    instance_id: str = "box"
    asked: list[str] = field(default_factory=list)
    #: The results of the next requests' batches; without one all are written.
    results: list[Sequence[Written]] = field(default_factory=list)
    #: Raised by the next ends.
    errors: list[ErrorCode] = field(default_factory=list)
    #: Batches are written when it is set.
    writes: trio.Event = field(default_factory=trio.Event)
    inits: list[tuple[Any, ...]] = field(default_factory=list)

    def renews_timestamps(self, client_id: str) -> bool:
        return False

    async def init_producer_id(self, *request: Any) -> Producer:
        self.asked.append("init")
        self.inits.append(request)
        return PRODUCER

    async def produce(
        self,
        request: TxnRequest,
        batches: Sequence[ClientBatch],
        *,
        implicit: bool,
        accepted: Callable[[], None],
        is_job: bool,
    ) -> Sequence[Written]:
        assert request.client == PRODUCER
        assert (implicit, is_job) == (True, True), "nobody has added partitions, and the write outlives its client"
        self.asked.append("produce")
        await self.writes.wait()
        return self.results.pop(0) if self.results else [WRITTEN] * len(batches)

    async def end(self, request: TxnRequest, *, committed: bool, bumps: bool, also: Any = None) -> Producer:
        assert not bumps, "the same epoch is used for the next one"
        self.asked.append("commit" if committed else "abort")
        if self.errors:
            raise TxnError(self.errors.pop(0), "as the test says")
        return PRODUCER


def made(*patterns: str, writes: bool = True) -> tuple[SingleRequests, Transactions]:
    transactions = Transactions()
    if writes:
        transactions.writes.set()
    return SingleRequests(managed_by(transactions), patterns, TIMEOUT_MS), transactions


async def write(requests: SingleRequests, client_id: str = "loader", *, refused: bool = False) -> Sequence[Written]:
    """What became of the two batches of a request."""
    client = requests.of(client_id)
    assert client is not None
    client.took(1, answered=True)
    try:
        return await client.write(BATCHES, refused=refused, accepted=lambda: None)
    finally:
        client.done()


async def test_the_patterns_choose_the_clients_and_each_has_an_id_of_its_own() -> None:
    requests, transactions = made("load*", "other")
    assert requests.of("reader") is None
    assert made()[0].of("loader") is None
    assert requests.of("loader") is requests.of("loader")
    for client_id in ("loader", "other"):
        await write(requests, client_id)
    assert [(asked[:2], asked[3]) for asked in transactions.inits] == [
        (("per-request-box-loader", TIMEOUT_MS), "loader"),
        (("per-request-box-other", TIMEOUT_MS), "other"),
    ]


async def test_each_request_is_committed_and_the_producer_is_kept() -> None:
    requests, transactions = made("*")
    for _ in range(2):
        assert await write(requests) == [WRITTEN, WRITTEN]
    assert transactions.asked == ["init", "produce", "commit", "produce", "commit"]


async def test_none_of_a_request_is_written_of_which_a_batch_is_not() -> None:
    requests, transactions = made("*")
    transactions.results = [[REFUSED, WRITTEN]]
    assert await write(requests) == [REFUSED, Written(NOT_ATTEMPTED, -1, -1)]
    assert await write(requests) == [WRITTEN, WRITTEN]
    assert transactions.asked == ["init", "produce", "abort", "produce", "commit"]


async def test_none_of_a_request_is_written_of_which_a_batch_was_refused_before() -> None:
    requests, transactions = made("*")
    with pytest.raises(TxnError) as caught:
        await write(requests, refused=True)
    assert caught.value.error_code is NOT_ATTEMPTED
    assert transactions.asked == []


async def test_after_an_error_the_id_is_initialized_again() -> None:
    """That aborts what may be open."""
    requests, transactions = made("*")
    transactions.errors = [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    with pytest.raises(TxnError, match="COORDINATOR_NOT_AVAILABLE"):
        await write(requests)
    assert await write(requests) == [WRITTEN, WRITTEN]
    assert transactions.asked == ["init", "produce", "commit", "init", "produce", "commit"]


@pytest.mark.parametrize("error", [ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH])
async def test_a_request_whose_id_was_taken_is_written_again_once(error: ErrorCode) -> None:
    """A request of a killed process may arrive late at the broker."""
    requests, transactions = made("*")
    transactions.errors = [error]
    assert await write(requests) == [WRITTEN, WRITTEN]
    assert transactions.asked == ["init", "produce", "commit"] * 2
    transactions.errors = [error] * 2
    with pytest.raises(TxnError, match=error.name):
        await write(requests)
    assert transactions.asked[6:] == ["produce", "commit", "init", "produce", "commit"]


async def test_requests_of_a_client_go_one_after_another_in_their_order() -> None:
    requests, transactions = made("*", writes=False)
    transactions.results = [[WRITTEN, WRITTEN], [REFUSED, REFUSED]]
    rows: list[Sequence[Written]] = []
    client = requests.of("loader")
    assert client is not None

    async def one() -> None:
        accepted = trio.Event()
        nursery.start_soon(kept, accepted)
        await accepted.wait()

    async def kept(accepted: trio.Event) -> None:
        rows.append(await client.write(BATCHES, refused=False, accepted=accepted.set))

    async with trio.open_nursery() as nursery:
        for _ in range(2):
            await one()  # the next request may begin before the first is written
        await trio.testing.wait_all_tasks_blocked()
        assert transactions.asked == ["init", "produce"]
        transactions.writes.set()
    assert rows == [[WRITTEN, WRITTEN], [REFUSED, REFUSED]]
    assert transactions.asked == ["init", "produce", "commit", "produce", "abort"]


async def test_a_request_is_never_the_repetition_of_another() -> None:
    requests, _ = made("*")
    client = requests.of("loader")
    assert client is not None
    await write(requests)
    for connection in (1, 2):
        client.came(connection, BATCHES, 0)
    client.failed("its connection ended")
    assert not client.takes_at_once(BATCHES)
    assert await write(requests) == [WRITTEN, WRITTEN]


async def test_of_many_clients_those_that_do_nothing_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(single_requests, "_MOST_CLIENTS", 2)
    requests, _ = made("*")
    busy, idle = requests.of("busy"), requests.of("idle")
    assert busy is not None
    assert requests.of("idle") is idle
    busy.took(1, answered=True)
    third = requests.of("third")
    assert requests.of("third") is third
    assert requests.of("busy") is busy
    assert requests.of("idle") is not idle
