"""Transactions by hand that the broker decides."""

from typing import Any

import pytest
import trio

from kproxy.codec.messages import ErrorCode
from kproxy.net.txn.managed_tools import managed_tools
from kproxy.net.txn.trio_time import TrioTime
from kproxy.txn.described import Described
from kproxy.txn.ids import Producer
from kproxy.txn.procedures.batch_decisions import BatchDecision
from kproxy.txn.procedures.broker_control import BrokerControl
from kproxy.txn.procedures.hand_control import not_here
from kproxy.txn.procedures.managed_transaction import ManagedTransaction
from kproxy.txn.procedures.managed_transactions import ManagedTransactions
from kproxy.txn.txn_error import TxnError
from tests.net.txn.broker.native_stage import TIMEOUT_MS, Client, Kproxy, stage


class EmptyLog:
    """kproxy's own log, in which no id of the broker's has members."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    async def take(self, *asked: Any) -> None:
        self.asked.append(asked)

    async def commit(self, asked: BatchDecision) -> Described:
        return await self.describe(asked.transactional_id)

    async def abort(self, asked: BatchDecision) -> Described:
        return await self.describe(asked.transactional_id)

    async def describe(self, name: str) -> Described:
        self.asked.append(name)
        raise not_here(name)


class ByHand:
    """One kproxy's, and a client whose data go where it was begun for."""

    def __init__(self, kproxy: Kproxy) -> None:
        self.kproxy, self.tools = kproxy, managed_tools(kproxy.coordinator, TrioTime(kproxy.cluster.network.wall))
        self.begun = ManagedTransactions(self.tools)
        self.log: Any = EmptyLog()
        self.control = BrokerControl(self.tools, self.begun, self.log, kproxy.coordinator.is_at_broker)

    async def begin(self, name: str = "id", client_id: str = "client") -> Described:
        return await self.control.begin(name, client_id, TIMEOUT_MS)

    async def commit(self, name: str, batch_id: str | None = None, owner: Producer | None = None) -> Described:
        return await self.control.commit(BatchDecision(name, owner, batch_id))

    async def abort(self, name: str, owner: Producer | None = None) -> Described:
        return await self.control.abort(BatchDecision(name, owner))

    async def names(self) -> list[str]:
        return [row.transactional_id for row in await self.control.list()]

    async def write(self, value: str, client_id: str = "client") -> None:
        capture = self.begun.of(client_id)
        assert capture is not None
        producer = capture.request.client
        await Client(self.kproxy, capture.transactional_id, producer).write(value)


async def test_commit_and_abort() -> None:
    async with stage() as cast:
        hand = ByHand(await cast.kproxy(instance_id="here"))
        began = await hand.begin()
        assert (began.state, began.client_id, began.instance_id) == ("Ongoing", "client", "here")
        assert began.started_ms is not None
        await hand.write("1")
        assert await hand.names() == ["id"]
        told = await hand.commit("id", None)
        assert (told.state, told.started_ms, told.last is not None and told.last.committed) == (
            "CompleteCommit",
            None,
            True,
        )
        await hand.begin()
        await hand.write("2")
        assert (await hand.abort("id")).state == "CompleteAbort"
        assert (cast.read(), await hand.names()) == (["1"], [])


async def test_only_what_the_broker_decides_is_open_here() -> None:
    async with stage() as cast:
        hand = ByHand(await cast.kproxy())
        await hand.begin()
        own = ManagedTransaction(hand.tools, "own-id", "other", TIMEOUT_MS)
        hand.begun.add(own)
        assert await hand.names() == ["id"]


@pytest.mark.idle_clock
async def test_times_are_those_of_the_wall_clock() -> None:
    async with stage() as cast:
        hand = ByHand(await cast.kproxy())
        wall = hand.kproxy.cluster.network.wall
        await trio.sleep(5)
        began_ms = pytest.approx(wall() * 1000, abs=2)
        await hand.begin()
        await trio.sleep(5)
        assert (await hand.control.describe("id")).started_ms == began_ms
        last = (await hand.commit("id", None)).last
        assert last is not None
        assert last.at_ms == pytest.approx(wall() * 1000, abs=2)


async def test_an_id_that_is_initialized_loses_what_is_open_and_its_producer() -> None:
    async with stage() as cast:
        hand = ByHand(await cast.kproxy())
        await hand.begin()
        await hand.write("1")
        capture = hand.begun.named("id")
        assert capture is not None
        hand.begun.remove(capture)
        await hand.control.initialize("id", "client", TIMEOUT_MS)
        assert hand.log.asked == [("id", "client", TIMEOUT_MS)], "it has the id's members"
        hand.begun.add(capture)
        with pytest.raises(TxnError, match="PRODUCER_FENCED"):
            await hand.commit("id", None)
        assert cast.read() == []


async def test_an_id_that_is_initialized_has_nothing_open_here() -> None:
    async with stage() as cast:
        hand = ByHand(await cast.kproxy())
        await hand.begin()
        await hand.write("1")
        await hand.control.initialize("id", "client", TIMEOUT_MS)
        assert (hand.begun.of("client"), hand.begun.named("id"), cast.read()) == (None, None, [])


async def test_a_repeated_commit_with_its_batch_id_changes_nothing() -> None:
    async with stage() as cast:
        hand = ByHand(await cast.kproxy())
        await hand.begin()
        await hand.write("1")
        first = await hand.commit("id", "batch-1")
        assert await hand.commit("id", "batch-1") == first
        others = [("id", "batch-0"), ("id", "batch-2"), ("id", None), ("other", "batch-1"), ("other", None)]
        for name, batch_id in others:
            with pytest.raises(TxnError, match="TRANSACTIONAL_ID_NOT_FOUND"):
                await hand.commit(name, batch_id)
        assert hand.log.asked == [name for name, _ in others], "members may be prepared there"
        await hand.begin()
        await hand.write("2")
        assert await hand.commit("id", "batch-1") == first
        assert cast.read() == ["1"]


async def test_a_repeated_commit_aborts_what_the_same_owner_has_open() -> None:
    """It is of another try of the batch; what another owner has open is not."""
    async with stage() as cast:
        hand = ByHand(await cast.kproxy())
        owner = Producer(*(await hand.begin()).owner)
        first = await hand.commit("id", "batch-1", owner)
        again = Producer(*(await hand.begin()).owner)
        await hand.write("1")
        assert await hand.commit("id", "batch-1", owner) == first
        assert hand.begun.named("id")
        assert await hand.commit("id", "batch-1", again) == first
        assert not hand.begun.named("id")
        assert await hand.commit("id", "batch-1", again) == first
        assert cast.read() == []


async def test_a_commit_without_a_batch_id_is_not_remembered() -> None:
    async with stage() as cast:
        hand = ByHand(await cast.kproxy())
        await hand.begin()
        await hand.commit("id", None)
        with pytest.raises(TxnError, match="TRANSACTIONAL_ID_NOT_FOUND"):
            await hand.commit("id", None)


async def test_what_is_not_open_here_can_not_be_ended_or_described() -> None:
    async with stage() as cast:
        hand = ByHand(await cast.kproxy())
        for ask in (hand.commit("id", None), hand.abort("id")):
            with pytest.raises(TxnError, match="TRANSACTIONAL_ID_NOT_FOUND"):
                await ask
        with pytest.raises(TxnError, match=r"kafka-transactions\.sh"):
            await hand.control.describe("id")


async def test_one_at_a_time_for_an_id_and_for_a_client() -> None:
    async with stage() as cast:
        hand = ByHand(await cast.kproxy())
        await hand.begin()
        for name, client_id in (("id", "other"), ("other", "client")):
            with pytest.raises(TxnError, match="CONCURRENT_TRANSACTIONS"):
                await hand.begin(name, client_id)
        with pytest.raises(TxnError, match="INVALID_REQUEST"):
            await hand.control.begin("third", None, TIMEOUT_MS)
        await hand.write("1")
        await hand.commit("id", None)
        assert cast.read() == ["1"]


async def test_what_can_not_begin_is_not_open() -> None:
    async with stage() as cast:
        hand = ByHand(await cast.kproxy())
        with pytest.raises(TxnError) as told:
            await hand.control.begin("id", "client", 1_000_000)
        assert told.value.error_code == ErrorCode.INVALID_TRANSACTION_TIMEOUT
        assert (await hand.names(), hand.begun.of("client")) == ([], None)


async def test_of_the_batch_ids_the_last_ones_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kproxy.txn.procedures.broker_control._MOST_REMEMBERED", 1)
    async with stage() as cast:
        hand = ByHand(await cast.kproxy())
        for name in ("one", "two"):
            await hand.begin(name)
            await hand.commit(name, "b")
        await hand.commit("two", "b")
        with pytest.raises(TxnError, match="TRANSACTIONAL_ID_NOT_FOUND"):
            await hand.commit("one", "b")


async def test_a_late_decision_by_its_owner_touches_no_other_transaction() -> None:
    async with stage() as cast:
        hand = ByHand(await cast.kproxy())
        first = Producer(*(await hand.begin()).owner)
        await hand.abort("id", first)
        second = Producer(*(await hand.begin()).owner)
        await hand.write("1")
        for late in (hand.commit("id", "late", first), hand.abort("id", first)):
            with pytest.raises(TxnError, match="PRODUCER_FENCED"):
                await late
        assert (await hand.commit("id", None, second)).state == "CompleteCommit"
        assert cast.read() == ["1"]
