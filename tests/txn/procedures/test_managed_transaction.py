"""Transactions of clients that know nothing of them: what goes in, what dooms them, and how they end."""

from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from kproxy.codec.messages import ErrorCode
from kproxy.txn.prepared_parts import ALONE, DecisionScope
from kproxy.txn.procedures.managed_transaction import ManagedTransaction
from kproxy.txn.procedures.owner_policy import MANAGED
from kproxy.txn.requests import TxnRequest, Written
from kproxy.txn.txn_error import TxnError
from kproxy.txn.view_values import DOOMED
from tests.net.txn.member_scene import batch
from tests.txn.procedures.managed_scene import DONE, ME, begun, coordinated, made

P0 = ("t", 0)
BY_ITSELF = DecisionScope(reason=DOOMED)


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
