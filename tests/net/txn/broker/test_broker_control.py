"""Transactions by hand that the broker decides."""

import pytest
import trio

from kproxy.codec.messages import ErrorCode
from kproxy.net.txn.broker.broker_control import BrokerControl
from kproxy.txn.ids import Producer
from kproxy.txn.procedures.managed_transaction import ManagedTransaction
from kproxy.txn.procedures.managed_transactions import ManagedTransactions
from kproxy.txn.txn_error import TxnError
from tests.net.txn.broker.native_stage import TIMEOUT_MS, Client, Kproxy, stage
from tests.txn.procedures.managed_scene import managed_by


class ByHand:
    """One kproxy's, and a client whose data go where it was begun for."""

    def __init__(self, kproxy: Kproxy) -> None:
        self.kproxy, self.tools = kproxy, managed_by(kproxy.coordinator)
        self.begun = ManagedTransactions(self.tools)
        self.control = BrokerControl(kproxy.coordinator, self.begun, kproxy.cluster)

    async def begin(self, name: str = "id", client_id: str = "client") -> None:
        await self.control.begin(name, client_id, TIMEOUT_MS)

    async def write(self, value: str, client_id: str = "client") -> None:
        capture = self.begun.of(client_id)
        assert capture is not None
        producer = capture.request.client
        await Client(self.kproxy, capture.transactional_id, producer).write(value)


async def test_commit_and_abort() -> None:
    async with stage() as cast:
        hand = ByHand(await cast.kproxy(instance_id="here"))
        assert (hand.control.has("id"), hand.control.has("own-id")) == (True, False)
        began = await hand.control.begin("id", "client", TIMEOUT_MS)
        assert (began.state, began.client_id, began.instance_id) == ("Ongoing", "client", "here")
        assert began.started_ms is not None
        await hand.write("1")
        assert [row.transactional_id for row in hand.control.list()] == ["id"]
        told = await hand.control.commit("id", None)
        assert (told.state, told.started_ms, told.last is not None and told.last.committed) == (
            "CompleteCommit",
            None,
            True,
        )
        await hand.begin()
        await hand.write("2")
        assert (await hand.control.abort("id")).state == "CompleteAbort"
        assert (cast.read(), hand.control.list()) == (["1"], [])


async def test_only_what_the_broker_decides_is_open_here() -> None:
    async with stage() as cast:
        hand = ByHand(await cast.kproxy())
        assert not hand.control.is_open("id")
        await hand.begin()
        own = ManagedTransaction(hand.tools, "own-id", "other", TIMEOUT_MS)
        hand.begun.add(own)
        assert (hand.control.is_open("id"), hand.control.is_open("own-id")) == (True, False)
        assert [row.transactional_id for row in hand.control.list()] == ["id"]


@pytest.mark.idle_clock
async def test_times_are_those_of_the_wall_clock() -> None:
    async with stage() as cast:
        hand = ByHand(await cast.kproxy())
        wall = hand.kproxy.cluster.network.wall
        await trio.sleep(5)
        began_ms = pytest.approx(wall() * 1000, abs=2)
        await hand.begin()
        await trio.sleep(5)
        assert hand.control.describe("id").started_ms == began_ms
        last = (await hand.control.commit("id", None)).last
        assert last is not None
        assert last.at_ms == pytest.approx(wall() * 1000, abs=2)


async def test_an_id_that_is_initialized_loses_what_is_open_and_its_producer() -> None:
    async with stage() as cast:
        hand = ByHand(await cast.kproxy())
        await hand.begin()
        await hand.write("1")
        await hand.control.initialize("id", "client", TIMEOUT_MS)
        with pytest.raises(TxnError, match="PRODUCER_FENCED"):
            await hand.control.commit("id", None)
        assert cast.read() == []


async def test_a_repeated_commit_with_its_batch_id_changes_nothing() -> None:
    async with stage() as cast:
        hand = ByHand(await cast.kproxy())
        await hand.begin()
        await hand.write("1")
        first = await hand.control.commit("id", "batch-1")
        assert await hand.control.commit("id", "batch-1") == first
        known = [hand.control.was_committed("id", batch_id) for batch_id in ("batch-0", "batch-1", "batch-2", None)]
        assert known == [False, True, False, False]
        assert [hand.control.was_committed("other", batch_id) for batch_id in ("batch-1", None)] == [False, False]
        for batch_id in ("batch-2", None):
            with pytest.raises(TxnError, match="TRANSACTIONAL_ID_NOT_FOUND"):
                await hand.control.commit("id", batch_id)
        await hand.begin()
        await hand.write("2")
        assert await hand.control.commit("id", "batch-1") == first
        assert cast.read() == ["1"]


async def test_a_repeated_commit_aborts_what_the_same_owner_has_open() -> None:
    """It is of another try of the batch; what another owner has open is not."""
    async with stage() as cast:
        hand = ByHand(await cast.kproxy())
        owner = Producer(*(await hand.control.begin("id", "client", TIMEOUT_MS)).owner)
        first = await hand.control.commit("id", "batch-1", owner)
        again = Producer(*(await hand.control.begin("id", "client", TIMEOUT_MS)).owner)
        await hand.write("1")
        assert await hand.control.commit("id", "batch-1", owner) == first
        assert hand.control.is_open("id")
        assert await hand.control.commit("id", "batch-1", again) == first
        assert not hand.control.is_open("id")
        assert await hand.control.commit("id", "batch-1", again) == first
        assert cast.read() == []


async def test_a_commit_without_a_batch_id_is_not_remembered() -> None:
    async with stage() as cast:
        hand = ByHand(await cast.kproxy())
        await hand.begin()
        await hand.control.commit("id", None)
        with pytest.raises(TxnError, match="TRANSACTIONAL_ID_NOT_FOUND"):
            await hand.control.commit("id", None)


async def test_what_is_not_open_here_can_not_be_ended_or_described() -> None:
    async with stage() as cast:
        hand = ByHand(await cast.kproxy())
        for ask in (hand.control.commit("id", None), hand.control.abort("id")):
            with pytest.raises(TxnError, match="TRANSACTIONAL_ID_NOT_FOUND"):
                await ask
        with pytest.raises(TxnError, match=r"kafka-transactions\.sh"):
            hand.control.describe("id")


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
        await hand.control.commit("id", None)
        assert cast.read() == ["1"]


async def test_what_can_not_begin_is_not_open() -> None:
    async with stage() as cast:
        hand = ByHand(await cast.kproxy())
        with pytest.raises(TxnError) as told:
            await hand.control.begin("id", "client", 1_000_000)
        assert told.value.error_code == ErrorCode.INVALID_TRANSACTION_TIMEOUT
        assert (hand.control.list(), hand.begun.of("client")) == ([], None)


async def test_of_the_batch_ids_the_last_ones_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kproxy.net.txn.broker.broker_control._MOST_REMEMBERED", 1)
    async with stage() as cast:
        hand = ByHand(await cast.kproxy())
        for name in ("one", "two"):
            await hand.begin(name)
            await hand.control.commit(name, "b")
        await hand.control.commit("two", "b")
        with pytest.raises(TxnError, match="TRANSACTIONAL_ID_NOT_FOUND"):
            await hand.control.commit("one", "b")


async def test_a_late_decision_by_its_owner_touches_no_other_transaction() -> None:
    async with stage() as cast:
        hand = ByHand(await cast.kproxy())
        first = Producer(*(await hand.control.begin("id", "client", TIMEOUT_MS)).owner)
        await hand.control.abort("id", first)
        second = Producer(*(await hand.control.begin("id", "client", TIMEOUT_MS)).owner)
        await hand.write("1")
        for late in (hand.control.commit("id", "late", first), hand.control.abort("id", first)):
            with pytest.raises(TxnError, match="PRODUCER_FENCED"):
                await late
        assert (await hand.control.commit("id", None, second)).state == "CompleteCommit"
        assert cast.read() == ["1"]
