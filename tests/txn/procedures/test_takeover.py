"""A transactional id comes to another instance: what is claimed, and what is known of the transaction that is open."""

from dataclasses import replace
from typing import Any

import pytest
import trio

from kproxy.codec._generated.transaction_claim import TransactionClaim
from kproxy.txn.claims import NOBODY
from kproxy.txn.client_sequences import ClientSequences, Order
from kproxy.txn.ids import Producer
from kproxy.txn.procedures.former import Former, SentBatch, Uncertain
from kproxy.txn.procedures.takeover import Takeover, restore
from kproxy.txn.procedures.transaction import Transaction
from kproxy.txn.requests import ClientBatch
from kproxy.txn.txn_error import TxnError
from kproxy.txn.verdict import Verdict
from kproxy.txn.view import LogPosition
from kproxy.txn.writes import PartitionWrites, TxnSend
from tests.txn import bodies
from tests.txn.procedures.memory_log import P0, P1, Desk


class FormerEpochs:
    """Says what is there of a transaction, while something else happens."""

    def __init__(self, found: Former | None, meanwhile: Any = None) -> None:
        self.asked: list[list[Producer]] = []
        self._found, self._meanwhile = found, meanwhile

    async def read(self, _: object, parts: list[Producer]) -> Former:
        await trio.lowlevel.checkpoint()
        self.asked.append(list(parts))
        if self._meanwhile is not None:
            await self._meanwhile()
        if self._found is None:
            raise Uncertain("there are gaps")
        return self._found


NOTHING = Former({}, {}, {})


async def opened() -> tuple[Desk, Transaction]:
    """An instance "a" where a client has begun to write at its sequence 0."""
    desk = await Desk().initialized()
    transaction = Transaction(await desk.keeper.take_epoch(), None, trio.current_time())  # type: ignore[arg-type]
    assert desk.keeper.claim is not None
    await desk.keeper.append(transaction.announcement(desk.keeper.claim.nonce, {P0: 5}, {P0: 0}))
    return desk, transaction


def other(desk: Desk, former: FormerEpochs | None = None) -> tuple[Desk, Takeover]:
    """Another instance."""
    found = Desk("b", desk.log.records)
    found.former.read = (former or FormerEpochs(NOTHING)).read
    return found, Takeover(found.keeper, found.tools)


class TestTakingAnIdOver:
    async def test_claims_nothing_where_nothing_is_open(self) -> None:
        a = await Desk().initialized()
        b, takeover = other(a)
        assert (await takeover.take(await b.read(), continues=True)).former is None
        assert b.keeper.client == a.keeper.client
        assert b.tools.stats.claims == {}

    async def test_continues_what_its_client_has_open(self) -> None:
        a, transaction = await opened()
        former = FormerEpochs(NOTHING)
        b, takeover = other(a, former)
        view, found = await takeover.take(await b.read(), continues=True)
        assert found is NOTHING
        assert former.asked == [[transaction.producer]]
        assert view.ongoing is not None
        assert (await a.read()).is_former(transaction.producer)

    @pytest.mark.parametrize("continues", [False, True], ids=["not asked for", "uncertain"])
    async def test_aborts_what_can_not_be_continued(self, continues: bool) -> None:
        a, transaction = await opened()
        b, takeover = other(a, FormerEpochs(None))
        view, found = await takeover.take(await b.read(), continues=continues)
        assert (found, view.ongoing, view.is_doomed) == (None, None, True)
        assert view.verdict(transaction.producer) is Verdict.ABORTED
        assert b.tools.stats.claims == {"won": 1 + continues}

    async def test_aborts_what_a_member_has_joined_before_the_claim(self) -> None:
        a, transaction = await opened()
        b, takeover = other(a)
        view, append = await b.read(), b.log.append_unread

        async def joined(entry: Any, *place: int) -> int:
            assert isinstance(entry.body, TransactionClaim)
            assert a.keeper.claim is not None
            member = bodies.member(0, transaction.producer, bodies.producer(200, 0), 9, "m")
            member.nonce = a.keeper.claim.nonce
            b.log.records.append(member)
            return await append(entry, *place)

        b.log.append_unread = joined  # type: ignore[method-assign]
        view, found = await takeover.take(view, continues=True)
        assert (found, view.ongoing) == (None, None)

    @pytest.mark.parametrize("found", [NOTHING, None], ids=["read", "uncertain"])
    async def test_leaves_it_to_an_instance_that_takes_it_over_meanwhile(self, found: Former | None) -> None:
        a, _ = await opened()
        c, overtaking = other(a)

        async def overtake() -> None:
            await overtaking.take(await c.read(), continues=True)
            await b.read()

        b, takeover = other(a, FormerEpochs(found, overtake))
        with pytest.raises(TxnError, match="NOT_COORDINATOR"):
            await takeover.take(await b.read(), continues=True)
        assert b.keeper.has_left
        assert (await c.read()).ongoing is not None


class TestARepeatedInitProducerId:
    async def test_has_a_response_in_the_log(self) -> None:
        a = await Desk().initialized()
        takeover, before = Takeover(a.keeper, a.tools), a.keeper.client
        assert await takeover.answered(before) is None
        await a.keeper.claim_to_initialize(before)
        assert await takeover.answered(before) is await a.read()
        b, elsewhere = other(a)
        assert await elsewhere.answered(before) is await b.read()
        with pytest.raises(TxnError, match="PRODUCER_FENCED"):
            await takeover.answered(Producer(before.producer_id, before.epoch + 9))

    async def test_of_an_id_that_the_log_does_not_know_is_none(self) -> None:
        a = Desk()
        assert await Takeover(a.keeper, a.tools).answered(Producer(1, 0)) is None

    @pytest.mark.parametrize("is_open", [False, True])
    @pytest.mark.parametrize("name", ["a", "c"])
    async def test_is_refused_elsewhere_while_its_client_has_a_transaction_open(self, is_open: bool, name: str) -> None:
        a = await Desk(name).initialized()
        before = a.keeper.client
        await a.keeper.claim_to_initialize(before)
        if is_open:
            await a.transaction(p0=1)
        b, takeover = other(a)
        if is_open:
            for known in (NOBODY, before, Producer(before.producer_id, before.epoch + 9)):
                b.keeper.client = known
                with pytest.raises(TxnError, match=rf"CONCURRENT_TRANSACTIONS.*a transaction is open at {name}"):
                    await takeover.answered(before)
            b.keeper.client = a.keeper.client
        assert await takeover.answered(before) is await b.read()
        again = Desk(name, a.log.records)
        assert await Takeover(again.keeper, again.tools).answered(before) is await again.read()


async def test_what_former_instances_knew_of_a_transaction_is_restored() -> None:
    a, former = await opened()
    assert a.keeper.claim is not None
    for group, moved in (("g", {P0: 3}), ("empty", {})):
        body = bodies.offsets(0, former.producer, group, moved)
        body.nonce = a.keeper.claim.nonce
        await a.keeper.append(body)
    sequences: ClientSequences[TxnSend] = ClientSequences()
    written = {former.producer: {P0: PartitionWrites(12, ())}}
    found = Former(written, {P0: 7, P1: 4}, {P0: [SentBatch(5, 2, 10)]})
    b, takeover = other(a, FormerEpochs(found))
    view, _ = await takeover.take(await b.read(), continues=True)
    transaction = Transaction(await b.keeper.take_epoch(), None, trio.current_time())  # type: ignore[arg-type]
    now = trio.current_time()
    transaction.began_at = now
    restore(transaction, found, view, sequences)
    assert view.claim is not None
    assert view.ongoing is not None
    assert now - transaction.began_at == (view.claim.at.timestamp_ms - view.ongoing.since.timestamp_ms) / 1000 > 0
    assert (transaction.is_continued, transaction.former, transaction.joined) == (True, written, {P0})
    assert [(one.group_id, one.topics) for one in transaction.members] == [("g", [])]
    assert transaction.former_groups == {"g", "empty"}
    client = b.keeper.client
    order, send = sequences.order(client, ClientBatch(*P0, memoryview(b""), 2, 5))
    assert (order, send and (send.base_offset, send.records, send.settled)) == (Order.AGAIN, (10, 2, True))
    assert [sequences.following(client, place, -1) for place in (P0, P1)] == [7, 4]
    view.claim = replace(view.claim, at=LogPosition(0, view.ongoing.since.timestamp_ms - 1))
    transaction.began_at = now
    restore(transaction, found, view, sequences)
    assert transaction.began_at == now, "the clocks of brokers disagree"
    assert sequences.following(NOBODY, P0, -1) == -1
