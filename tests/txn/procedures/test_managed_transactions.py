"""All transactions that were begun by hand at one instance: one for each client, and how long."""

import math
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from kproxy.codec._generated.transaction_decision import TransactionDecision
from kproxy.codec._generated.transaction_expiry import TransactionExpiry
from kproxy.codec.messages import ErrorCode
from kproxy.txn.log_records import Entry
from kproxy.txn.procedures.managed_transactions import ManagedTransactions
from kproxy.txn.procedures.owner_policy import MANAGED
from kproxy.txn.txn_error import TxnError
from kproxy.txn.view_values import ASKED, DOOMED, HAND
from tests.txn.procedures.managed_scene import ME, begun, coordinated, made, managed_by


class TestAll:
    async def test_each_client_and_each_part_of_an_id_has_one(self) -> None:
        async with coordinated() as at:
            every, one, other = ManagedTransactions(managed_by(at)), made(at), made(at, "d")
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
            every = ManagedTransactions(managed_by(at))
            at.error, at.go = ErrorCode.COORDINATOR_NOT_AVAILABLE, trio.Event()

            async def let_go() -> None:
                await wait_all_tasks_blocked()
                assert every.of("c") is every.named("id") is not None
                at.go.set()

            async with trio.open_nursery() as nursery:
                nursery.start_soon(let_go)
                with pytest.raises(TxnError, match="COORDINATOR_NOT_AVAILABLE"):
                    await every.begin("id", "c", 5_000)
            assert (every.of("c"), list(every)) == (None, [])
            at.error = None
            assert await every.begin("id", "c", 5_000) is every.of("c")
            assert at.asked == [("init", "id", 5_000, None, "c", MANAGED)] * 2

    async def test_while_it_ends_its_client_writes_elsewhere(self) -> None:
        async with coordinated() as at:
            every, one = ManagedTransactions(managed_by(at)), made(at)
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
            every, one = ManagedTransactions(managed_by(at)), await begun(at)
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
            every, one, other = ManagedTransactions(managed_by(at)), await begun(at), await begun(at, "d", "id2")
            for each in (one, other):
                every.add(each)
                each.took(1, answered=True)
            every.closed(1, received_all=True)
            assert [one.doomed, other.doomed] == [None, None]
            every.closed(1, received_all=False)
            assert None not in (one.doomed, other.doomed)

    async def test_one_that_nobody_decides_is_doomed_and_later_let_go(self, autojump_clock: MockClock) -> None:
        async with coordinated() as at, trio.open_nursery() as nursery:
            every, ending = ManagedTransactions(managed_by(at)), await begun(at, "d", "id2")
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
