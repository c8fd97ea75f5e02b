"""Transactions of clients that know nothing of them: what goes in, what dooms them, and how they end."""

import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from kproxy.codec._generated.transaction_decision import TransactionDecision
from kproxy.codec._generated.transaction_expiry import TransactionExpiry
from kproxy.codec.messages import ErrorCode
from kproxy.net.txn.managed_transactions import ManagedTransaction, ManagedTransactions
from kproxy.txn.ids import Producer
from kproxy.txn.log_records import Entry
from kproxy.txn.prepared_parts import ALONE, DecisionScope
from kproxy.txn.procedures.owner_policy import MANAGED
from kproxy.txn.requests import TxnRequest, Written
from kproxy.txn.txn_error import TxnError
from kproxy.txn.view_values import ASKED, DOOMED, HAND
from tests.net.txn.member_scene import batch

ME, P0 = Producer(4000, 7), ("t", 0)
BY_ITSELF = DecisionScope(reason=DOOMED)
DONE = [Written(0, 5, -1)]


class FakeCoordinator:
    """Does at once what it is asked, or fails as a test says."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self.asked: list[Any] = []
        self.rows = DONE
        self.takes = True
        self.renews = False
        self.error: ErrorCode | None = None
        #: An end, or a prepare, waits for it.
        self.go = trio.Event()
        self.go.set()
        self._in_flight: set[str] = set()
        self._nursery = nursery

    def renews_timestamps(self, client_id: str) -> bool:
        return self.renews

    def start(self, work: Any) -> None:
        self._nursery.start_soon(work)

    async def init_producer_id(self, *what: Any) -> Producer:
        self.asked.append(("init", *what))
        return ME

    async def produce(self, request: TxnRequest, batches: Any, *, implicit: bool, accepted: Any, is_job: bool) -> Any:
        self.asked.append(("produce", request, len(batches), implicit, is_job))
        accepted()
        return self.rows

    def takes_at_once(self, transactional_id: str, batches: Any) -> bool:
        return self.takes

    def produce_at_once(self, request: TxnRequest, batches: Any, written: Any, *, implicit: bool) -> None:
        self.asked.append(("at once", request, len(batches), implicit))
        written(self.rows)

    async def end(self, request: TxnRequest, *, committed: bool, bumps: bool, also: DecisionScope) -> None:
        assert request.client == ME
        assert not bumps
        await self._decide(request.transactional_id, "commit" if committed else "abort", also)

    async def prepare(self, request: TxnRequest, batch_id: str | None) -> None:
        await self._decide(request.transactional_id, "prepare", request)

    async def _decide(self, name: str, *what: Any) -> None:
        self.asked.append(what)
        assert name not in self._in_flight
        self._in_flight.add(name)
        await self.go.wait()
        self._in_flight.discard(name)
        if self.error is not None:
            raise TxnError(self.error, "as the test says")


@asynccontextmanager
async def coordinated() -> AsyncIterator[FakeCoordinator]:
    async with trio.open_nursery() as nursery:
        yield FakeCoordinator(nursery)


def made(at: FakeCoordinator, client_id: str = "c", name: str = "id", timeout_ms: int = 5_000) -> ManagedTransaction:
    coordinator: Any = at
    return ManagedTransaction(coordinator, name, client_id, timeout_ms)


async def begun(at: FakeCoordinator, client_id: str = "c", name: str = "id") -> ManagedTransaction:
    """One whose id is taken; what was asked for that is forgotten."""
    one = made(at, client_id, name)
    await one.initialize()
    at.asked.clear()
    return one


async def write(one: ManagedTransaction, records: int = 1, *, refused: bool = False) -> Any:
    return await one.write([batch("1", P0)._replace(records=records)], refused=refused, accepted=lambda: None)


class TestWriting:
    async def test_kproxy_is_its_producer(self) -> None:
        async with coordinated() as at:
            one = made(at)
            await one.initialize()
            assert at.asked == [("init", "id", 5_000, None, "c", MANAGED)]
            assert await write(one) == DONE
            assert at.asked[1:] == [("produce", TxnRequest("id", ME, 0, "c"), 1, True, True)]
            assert one.doomed is None

    async def test_a_refused_batch_dooms_it(self) -> None:
        async with coordinated() as at:
            one = await begun(at)
            for _ in range(2):
                with pytest.raises(TxnError, match="TRANSACTION_ABORTABLE: a batch of the client was refused"):
                    await write(one, refused=True)
            await wait_all_tasks_blocked()
            assert at.asked == [("abort", BY_ITSELF)]

    async def test_so_does_one_that_is_not_written(self) -> None:
        async with coordinated() as at:
            for at_once in (False, True):
                one = await begun(at, name=f"id-{at_once}")
                at.rows = [*DONE, Written(3, -1, -1)]
                if at_once:
                    one.write_at_once([batch("1", P0)] * 2, lambda _: None)
                else:
                    await write(one)
                assert one.doomed == "a batch of the client was not written: error 3"
                with pytest.raises(TxnError, match="TRANSACTION_ABORTABLE: a batch of the client was not written"):
                    await write(one)

    async def test_what_is_taken_at_once_is_answered(self) -> None:
        async with coordinated() as at:
            one, answers = made(at), list[Any]()
            assert not one.takes_at_once([]), "its id is not taken"
            one = await begun(at)
            assert one.takes_at_once([])
            one.write_at_once([batch("1", P0)], answers.append)
            assert answers == [DONE]
            assert at.asked == [("at once", one.request, 1, True)]
            at.takes = False
            assert not one.takes_at_once([])
            at.takes = True
            one.failed("a test")
            assert not one.takes_at_once([])
            with pytest.raises(TxnError, match="TRANSACTION_ABORTABLE: a test"):
                one.write_at_once([batch("1", P0)], answers.append)

    @pytest.mark.parametrize(("connection", "dooms"), [(1, False), (2, True)])
    async def test_records_repeated_over_another_connection_doom_it(self, connection: int, *, dooms: bool) -> None:
        async with coordinated() as at:
            one = await begun(at)
            one.came(1, [batch("1", P0)], 1_000)
            one.came(connection, [batch("1", P0)], 1_500)
            why = "records of the client came again over another connection"
            assert one.doomed == (why if dooms else None)

    async def test_a_connection_that_may_not_have_had_every_response_dooms_it(self) -> None:
        async with coordinated() as at:
            one = await begun(at)
            one.took(1, answered=True)
            one.took(2, answered=False)
            assert set(one.parties) == {1}
            one.closed(2, received_all=False)
            one.closed(1, received_all=True)
            assert one.doomed is None
            one.closed(1, received_all=False)
            assert one.doomed == "a connection of the client ended, which may not have had every answer"


class TestEnding:
    async def test_a_commit_waits_for_what_is_in_flight(self) -> None:
        async with coordinated() as at, trio.open_nursery() as nursery:
            one, also = await begun(at), DecisionScope("1")
            for _ in range(2):
                one.took(1, answered=True)
            nursery.start_soon(one.commit, also)
            for _ in range(2):
                await wait_all_tasks_blocked()
                assert at.asked == []
                one.done()
            await wait_all_tasks_blocked()
            assert at.asked == [("commit", also)]

    async def test_one_that_is_doomed_is_aborted_instead(self) -> None:
        async with coordinated() as at:
            one = await begun(at)
            one.failed("a test")
            await wait_all_tasks_blocked()
            at.asked.clear()
            with pytest.raises(TxnError, match="TRANSACTION_ABORTABLE: a test"):
                await one.commit()
            assert at.asked == [("abort", BY_ITSELF)] * 2

    async def test_it_is_too_late_to_doom_it_while_its_decision_is_in_flight(self) -> None:
        async with coordinated() as at, trio.open_nursery() as nursery:
            one, at.go = await begun(at), trio.Event()
            nursery.start_soon(one.commit)
            await wait_all_tasks_blocked()
            one.failed("too late")
            assert one.doomed is None
            at.go.set()
            await wait_all_tasks_blocked()
            assert at.asked == [("commit", ALONE)]

    async def test_a_decision_that_fails_leaves_it_open(self) -> None:
        async with coordinated() as at:
            one, at.error = await begun(at), ErrorCode.COORDINATOR_NOT_AVAILABLE
            with pytest.raises(TxnError, match="COORDINATOR_NOT_AVAILABLE"):
                await one.commit()
            at.error = None
            one.failed("a test")
            assert one.doomed == "a test"

    @pytest.mark.parametrize(("records", "is_whole"), [(None, True), (5, True), (4, False), (6, False)])
    async def test_it_is_prepared_with_all_records_of_its_client(self, records: int | None, *, is_whole: bool) -> None:
        async with coordinated() as at:
            one = await begun(at)
            for some in (2, 3):
                await write(one, some)
            at.asked.clear()
            if is_whole:
                await one.prepare(records)
                assert at.asked == [("prepare", one.request)]
            else:
                with pytest.raises(TxnError, match=f"has written {records} records, and kproxy received 5 of them"):
                    await one.prepare(records)
                assert {row[0] for row in at.asked} == {"abort"}

    async def test_records_of_requests_in_flight_are_counted(self) -> None:
        async with coordinated() as at, trio.open_nursery() as nursery:
            one = await begun(at)
            one.took(1, answered=True)
            nursery.start_soon(one.prepare, 1)
            await wait_all_tasks_blocked()
            await write(one)
            one.done()
            await wait_all_tasks_blocked()
            assert at.asked[-1] == ("prepare", one.request)

    @pytest.mark.parametrize("why", [None, "a test"])
    async def test_an_abort_is_repeated_after_what_was_in_flight(self, why: str | None) -> None:
        async with coordinated() as at, trio.open_nursery() as nursery:
            one = await begun(at)
            one.doomed = why
            one.took(1, answered=True)
            nursery.start_soon(one.abort, DecisionScope(None, ["m"], every=True))
            await wait_all_tasks_blocked()
            assert at.asked == [("abort", DecisionScope(None, ["m"], every=True))]
            one.done()
            await wait_all_tasks_blocked()
            assert at.asked[1:] == [("abort", DecisionScope(None, None, every=False))]
            assert one.doomed == (why or "it was aborted")

    @pytest.mark.parametrize("error", [ErrorCode.INVALID_TXN_STATE, ErrorCode.COORDINATOR_NOT_AVAILABLE])
    async def test_where_nothing_is_open_an_abort_succeeds(self, error: ErrorCode) -> None:
        async with coordinated() as at:
            await made(at).abort()
            assert at.asked == []
            one, at.error = await begun(at), error
            if error is ErrorCode.INVALID_TXN_STATE:
                await one.abort()
            else:
                with pytest.raises(TxnError, match="COORDINATOR_NOT_AVAILABLE"):
                    await one.abort()

    async def test_one_abort_is_in_flight_at_a_time(self) -> None:
        async with coordinated() as at, trio.open_nursery() as nursery:
            one, at.go = await begun(at), trio.Event()
            one.failed("a test")
            await wait_all_tasks_blocked()
            nursery.start_soon(one.abort)
            await wait_all_tasks_blocked()
            assert at.asked == [("abort", BY_ITSELF)]
            at.go.set()
            await wait_all_tasks_blocked()
            assert len(at.asked) == 3


class TestAll:
    async def test_each_client_and_each_part_of_an_id_has_one(self) -> None:
        async with coordinated() as at:
            every, one, other = ManagedTransactions(), made(at), made(at, "d")
            other.member = "m"
            every.add(one)
            every.add(other)
            assert (every.of("c"), every.of("d"), every.of("e")) == (one, other, None)
            assert (every.named("id"), every.named("id", "m"), every.named("id", "n")) == (one, other, None)
            assert list(every) == list(every.open()) == [one, other]
            for again, why in (
                (made(at, "c", "id2"), "id has an open transaction, of client.id c$"),
                (made(at, "d", "id2"), "id has an open transaction, of client.id d, member m$"),
                (made(at, "e", "id"), "id has an open transaction, of client.id c$"),
            ):
                with pytest.raises(TxnError, match=why) as caught:
                    every.add(again)
                assert caught.value.error_code is ErrorCode.CONCURRENT_TRANSACTIONS
                every.remove(again)
            assert list(every) == [one, other]
            every.remove(one)
            assert (every.of("c"), every.named("id"), list(every)) == (None, None, [other])

    async def test_one_that_can_not_begin_is_removed(self) -> None:
        async with coordinated() as at:
            every = ManagedTransactions()
            with pytest.raises(OSError, match="gone"), every.beginning(made(at)):
                assert every.of("c") is not None
                raise OSError("gone")
            assert (every.of("c"), list(every)) == (None, [])
            with every.beginning(made(at)):
                pass
            assert every.of("c") is not None

    async def test_while_it_ends_its_client_writes_elsewhere(self) -> None:
        async with coordinated() as at:
            every, one = ManagedTransactions(), made(at)
            every.add(one)
            with every.ending(one):
                assert (every.of("c"), every.named("id")) == (None, one)
                with pytest.raises(TxnError, match="CONCURRENT_TRANSACTIONS: id is being decided"), every.ending(one):
                    pass
                assert every.named("id") is one
                every.add(made(at, "c", "id2"))
            assert every.named("id") is None
            assert every.of("c") is every.named("id2")

    @pytest.mark.parametrize(
        ("change", "is_ended"),
        [
            ({"reason": ASKED}, True),
            ({"reason": HAND}, True),
            ({"reason": DOOMED}, False),
            ({"committed": True}, False),
            ({"next_client_epoch": 8}, False),
            ({"next_client_epoch": 6}, False),
        ],
    )
    async def test_what_is_aborted_by_hand_at_another_kproxy_has_ended(
        self, change: dict[str, Any], *, is_ended: bool
    ) -> None:
        async with coordinated() as at:
            every, one = ManagedTransactions(), await begun(at)
            every.add(one)
            given: dict[str, Any] = {
                "nonce": b"n" * 16,
                "producer_id": 1,
                "epoch": 0,
                "committed": False,
                "next_client_producer_id": ME.producer_id,
                "next_client_epoch": ME.epoch,
                "batch_id": None,
                "reason": ASKED,
                "parts": [],
            }
            every.view_changed(Entry("id", TransactionExpiry(b"n" * 16)))
            every.view_changed(Entry("other", TransactionDecision(**given)))
            one.ends = True
            every.view_changed(Entry("id", TransactionDecision(**given)))
            one.ends = False
            assert one.doomed is None
            every.view_changed(Entry("id", TransactionDecision(**{**given, **change})))
            assert one.doomed == ("it was aborted at another kproxy" if is_ended else None)
            assert every.named("id") is (None if is_ended else one)

    async def test_each_hears_of_the_end_of_a_connection(self) -> None:
        async with coordinated() as at:
            every, one, other = ManagedTransactions(), await begun(at), await begun(at, "d", "id2")
            for each in (one, other):
                every.add(each)
                each.took(1, answered=True)
            every.closed(1, received_all=True)
            assert [one.doomed, other.doomed] == [None, None]
            every.closed(1, received_all=False)
            assert None not in (one.doomed, other.doomed)

    async def test_one_that_nobody_decides_is_doomed_and_later_let_go(self, autojump_clock: MockClock) -> None:
        async with coordinated() as at, trio.open_nursery() as nursery:
            every, ending = ManagedTransactions(), await begun(at, "d", "id2")
            nursery.start_soon(every.run)
            await trio.sleep(50)
            one, first = await begun(at), await begun(at, "e", "id3")
            ending = await begun(at, "d", "id2")
            for each in (first, one, ending):
                every.add(each)
            every.remove(first)
            ending.ends = True
            await trio.sleep_until(54.5)
            assert [one.doomed, ending.doomed] == [None, None]
            await trio.sleep_until(55.5)
            assert one.doomed == ending.doomed == "it took longer than its 5000 ms"
            assert first.doomed is None
            await trio.sleep_until(59.5)
            assert every.of("c") is one
            await trio.sleep_until(60.5)
            assert (every.of("c"), every.of("d")) == (None, ending)
            every.remove(ending)
            await trio.sleep_until(62.5)
            assert trio.lowlevel.current_statistics().seconds_to_next_deadline == math.inf, "none is open"
            again = await begun(at)
            every.add(again)
            await trio.sleep_until(68)
            assert again.doomed is not None
            nursery.cancel_scope.cancel()
