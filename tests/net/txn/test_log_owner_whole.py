"""The end of a transaction, by each path: the client's epoch rises, and nobody is given another producer's identity."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeAlias

import pytest
import trio

from kproxy.codec._generated.transaction_decision import TransactionDecision
from kproxy.codec._generated.transaction_partitions import TransactionPartitions
from kproxy.codec.messages import ApiKey, ErrorCode
from kproxy.net.txn.log_appender import AppendUnknown
from kproxy.testing.fake_broker import Call
from kproxy.txn.ids import Producer
from kproxy.txn.log_records import Entry
from kproxy.txn.prepared_parts import EVERYTHING, DecisionScope
from kproxy.txn.requests import Written
from kproxy.txn.txn_error import TxnError
from tests.net.txn.instances import TIMEOUT_MS, Client, Instance, arrives, stage

P0 = ("t", 0)
BOTH = pytest.mark.parametrize("bumps", [False, True], ids=["TV1", "TV2"])
Append: TypeAlias = Callable[[], Awaitable[None]]
"""Appends the record now."""


def at_decision(monkeypatch: pytest.MonkeyPatch, at: Instance, then: Callable[[Append], Awaitable[None]]) -> None:
    """``then`` takes the place of the append of the next decision at this instance."""
    log, append = at.transactions.log, at.transactions.log.append
    seen: list[Entry] = []

    async def controlled(entry: Entry, *place: int) -> None:
        if seen or not isinstance(entry.body, TransactionDecision):
            return await append(entry, *place)
        seen.append(entry)

        async def now() -> None:
            await append(entry, *place)

        return await then(now)

    monkeypatch.setattr(log, "append", controlled)


async def never(append: Append) -> None:
    """The record is lost, and the client of the log does not know it."""
    raise AppendUnknown(0, ErrorCode.REQUEST_TIMED_OUT)


async def unheard(append: Append) -> None:
    """The record is appended; the response is lost."""
    await append()
    raise AppendUnknown(0, ErrorCode.REQUEST_TIMED_OUT)


async def no_answer(*_: object) -> object:
    """The log can't be read."""
    raise OSError("no answer")


async def ends_unheard(
    monkeypatch: pytest.MonkeyPatch, at: Instance, client: Client, then: Callable[[Append], Awaitable[None]] = never
) -> None:
    """The client commits, and its instance cannot know what becomes of the decision."""
    with monkeypatch.context() as deaf:
        at_decision(deaf, at, then)
        deaf.setattr(at.transactions.log, "read_to_end", no_answer)
        with pytest.raises(TxnError, match="COORDINATOR_NOT_AVAILABLE"):
            await client.end(at)


async def test_of_many_offsets_one_record_of_each_member_is_kept() -> None:
    async with stage() as cast:
        a, client = await cast.instance(), Client("id", bumps=True)
        await client.init(a)
        for offset in range(5):
            await client.commit_offsets(a, "g", offset)
        await client.commit_offsets(a, "h", 1)
        owner = a.transactions.coordinator.log.known("id")
        assert owner is not None
        assert owner.transaction is not None
        assert [(one.group_id, one.topics) for one in owner.transaction.members] == [("g", []), ("h", [])]
        await client.end(a)


class TestTheEpochRises:
    async def test_after_an_abort_that_a_claim_settled(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Else the batches of the next transaction, whose sequences begin at 0, are taken for repeated ones."""
        async with stage() as cast:
            a, client = await cast.instance(), Client("id", bumps=True)
            before = await client.init(a)
            await client.write(a, "aborted", P0)
            at_decision(monkeypatch, a, never)
            assert await client.end(a, committed=False) == Producer(before.producer_id, before.epoch + 1)
            assert a.stats.transactions.claims == {"won": 2}
            client._next.clear()  # as Java's client does with each response to EndTxn
            await client.write(a, "1", P0)
            await client.end(a)
            assert cast.visible(a.transactions.views) == ["1"]

    async def test_after_an_abort_of_a_transaction_that_had_lost_its_claim(self) -> None:
        async with stage() as cast:
            a, client = await cast.instance(), Client("id", bumps=True)
            before = await client.init(a)
            await client.write(a, "aborted", P0)
            owner = a.transactions.coordinator.log.known("id")
            assert owner is not None
            owner.keeper.claim = None
            assert (await client.end(a, committed=False)).epoch == before.epoch + 1
            await client.write(a, "1", P0)
            await client.end(a)
            assert cast.visible(a.transactions.views) == ["1"]

    async def test_with_the_abort_after_a_commit_that_was_not_possible(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The client is answered TRANSACTION_ABORTABLE as often as it asks, until it aborts."""
        async with stage() as cast:
            a, client = await cast.instance(), Client("id", bumps=True)
            before = await client.init(a)
            await client.write(a, "aborted", P0)
            owner = a.transactions.coordinator.log.known("id")
            assert owner is not None
            assert owner.transaction is not None
            monkeypatch.setattr(type(owner.transaction.writer), "failed", ErrorCode.INVALID_RECORD)
            for _ in range(2):
                with pytest.raises(TxnError, match="TRANSACTION_ABORTABLE"):
                    await client.end(a)
            monkeypatch.undo()
            assert (await client.end(a, committed=False)).epoch == before.epoch + 1
            await client.write(a, "1", P0)
            await client.end(a)
            assert cast.visible(a.transactions.views) == ["1"]

    async def test_if_the_answer_to_the_abort_is_lost_it_is_the_same_again(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async with stage() as cast:
            a, client = await cast.instance(), Client("id", bumps=True)
            await client.init(a)
            await client.write(a, "aborted", P0)
            again = Client("id", bumps=True, producer=client.producer)
            at_decision(monkeypatch, a, never)
            told = await client.end(a, committed=False)
            assert await again.end(a, committed=False) == told
            with pytest.raises(TxnError, match="INVALID_TXN_STATE"):
                await Client("id", bumps=True, producer=Producer(told.producer_id, told.epoch - 1)).end(a)


@BOTH
@pytest.mark.parametrize("arrives", [False, True], ids=["lost", "written"])
async def test_what_became_of_a_decision_is_found_out_before_an_abort_by_hand(
    bumps: bool, arrives: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with stage() as cast:
        a, client = await cast.instance(), Client("id", bumps)
        await client.init(a)
        await client.write(a, "1", P0)

        await ends_unheard(monkeypatch, a, client, unheard if arrives else never)
        await a.transactions.coordinator.decide("id", None, committed=False, also=EVERYTHING)
        assert cast.visible(a.transactions.views) == (["1"] if arrives else [])
        if arrives:
            await client.end(a)
        else:
            with pytest.raises(TxnError, match="TRANSACTION_ABORTABLE"):
                await client.end(a)
            await client.end(a, committed=False)
        await client.write(a, "2", P0)
        await client.end(a)
        assert cast.visible(a.transactions.views) == (["1", "2"] if arrives else ["2"])
        assert a.stats.transactions.open == 0


@BOTH
@pytest.mark.parametrize("arrives", [False, True], ids=["lost", "written"])
async def test_a_new_producer_need_not_find_out_what_became_of_the_last_decision(
    bumps: bool, arrives: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with stage() as cast:
        a, client = await cast.instance(), Client("id", bumps)
        await client.init(a)
        await client.write(a, "1", P0)
        await ends_unheard(monkeypatch, a, client, unheard if arrives else never)
        await client.init(a)
        await client.write(a, "2", P0)
        await client.end(a)
        assert cast.visible(a.transactions.views) == (["1", "2"] if arrives else ["2"])
        assert a.stats.transactions.open == 0


@BOTH
async def test_a_partition_that_the_log_does_not_name_is_not_written(
    bumps: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Readers would not know where undecided records may be."""
    async with stage() as cast:
        a, client = await cast.instance(), Client("id", bumps)
        await client.init(a)

        async def lost(*_: object) -> int:
            monkeypatch.undo()
            raise AppendUnknown(0, ErrorCode.REQUEST_TIMED_OUT)

        monkeypatch.setattr(a.transactions.log, "append_unread", lost)
        if not bumps:
            await client.add(a, P0)
        with pytest.raises(TxnError, match="TRANSACTION_ABORTABLE"):
            await client.send(a, [client.batch("1", P0)])
        assert cast.batches(*P0) == []
        with pytest.raises(TxnError, match="TRANSACTION_ABORTABLE"):
            await client.end(a)
        await client.abort_and_commit(a, "2", P0)
        assert cast.visible(a.transactions.views) == ["2"]


async def test_nor_is_one_whose_end_was_asked_for_when_a_new_producer_came() -> None:
    async with stage() as cast:
        a, old, new = await cast.instance(), Client("id", bumps=True), Client("id", bumps=True)
        await old.init(a)
        held, rows = trio.Event(), list[Written]()

        async def hold(call: Call) -> None:
            if any(topic.name == "t" for topic in call.request.topics):
                held.set()
                await trio.sleep_forever()

        async def write() -> None:
            rows.extend(await old.send(a, [old.batch("old", P0)]))

        control = cast.fake.cluster.control(ApiKey.LIST_OFFSETS, hold)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(write)
            await held.wait()
            await new.init(a)
        assert [row.error_code for row in rows] == [ErrorCode.TRANSACTION_ABORTABLE]
        assert cast.batches(*P0) == []
        cast.fake.cluster.controls.remove(control)
        await new.write(a, "new", P0)
        await new.end(a)
        assert cast.visible(a.transactions.views) == ["new"]


async def test_records_that_wait_for_a_broker_are_given_up_for_a_new_producer() -> None:
    async with stage() as cast:
        a, old, new = await cast.instance(), Client("id"), Client("id")
        await old.init(a)
        await old.write(a, "learns the leader", P0)
        held, rows = trio.Event(), list[Written]()

        async def hold(call: Call) -> None:
            if any(topic.name == "t" for topic in call.request.topic_data):
                held.set()
                await trio.sleep_forever()

        async def write() -> None:
            rows.extend(await old.send(a, [old.batch("old", P0)]))

        control = cast.fake.cluster.control(ApiKey.PRODUCE, hold)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(write)
            await held.wait()
            await new.init(a)
        assert [row.error_code for row in rows] == [ErrorCode.TRANSACTION_ABORTABLE]
        cast.fake.cluster.controls.remove(control)
        await new.write(a, "new", P0)
        await new.end(a)
        assert cast.visible(a.transactions.views) == ["new"]


async def test_records_that_an_abort_gives_up_do_not_doom_the_next_transaction() -> None:
    """Whether their requests are answered before the abort proceeds is chance."""
    async with stage() as cast:
        a, client = await cast.instance(), Client("id", bumps=True)
        await client.init(a)
        for _ in range(5):
            await client.write(a, "1", P0)
            held = trio.Event()

            async def hold(call: Call, held: trio.Event = held) -> None:
                if any(topic.name == "t" for topic in call.request.topic_data):
                    held.set()
                    await trio.sleep_forever()

            control = cast.fake.cluster.control(ApiKey.PRODUCE, hold)
            async with trio.open_nursery() as nursery:
                for value in "234":
                    nursery.start_soon(client.send, a, [client.batch(value, P0)])
                await held.wait()
                await client.end(a, committed=False)
            cast.fake.cluster.controls.remove(control)
        await client.write(a, "5", P0)
        await client.end(a)
        assert cast.visible(a.transactions.views) == ["5"]


async def test_the_timeout_is_that_of_the_newest_producer() -> None:
    async with stage() as cast:
        a, client = await cast.instance(), Client("id")
        for timeout_ms in (40_000, 20_000):
            await client.init(a, timeout_ms)
            view = a.transactions.views.of("id")
            assert view is not None
            assert view.claim is not None
            assert view.claim.timeout_ms == timeout_ms


async def test_who_is_fenced_claims_nothing_when_its_transaction_takes_too_long() -> None:
    """The claim would abort the transaction of the newer producer."""
    async with stage() as cast:
        a, b = await cast.instance("a"), await cast.instance("b")
        old, new = Client("id"), Client("id")
        await old.init(a)
        await old.write(a, "old", P0)
        await new.init(b)
        await new.write(b, "new", P0)
        await a.transactions.log.read_to_end("id")
        owner = a.transactions.coordinator.log.known("id")
        assert owner is not None
        assert owner.transaction is not None
        owner.transaction.began_at -= TIMEOUT_MS
        fenced = a.stats.transactions.fenced
        await owner.time_out()
        assert a.stats.transactions.claims == {"won": 1}
        assert (a.stats.transactions.fenced, a.stats.transactions.open) == (fenced + 1, 0)
        with pytest.raises(TxnError, match="PRODUCER_FENCED"):
            await old.end(a)
        await new.end(b)
        assert cast.visible(b.transactions.views) == ["new"]


class TestARestartedKproxyWhoseLogNamesNoPartition:
    """AddPartitionsToTxn writes nothing to the log; a kproxy that ends after it takes that knowledge along."""

    async def test_answers_that_the_transaction_can_only_be_aborted(self) -> None:
        async with stage() as cast:
            a, client = await cast.instance("a"), Client("id")
            await client.init(a)
            await client.write(a, "1", P0)
            await client.end(a)
            await client.add(a, P0)
            await a.kill()
            again = await cast.instance("a")
            with pytest.raises(TxnError, match="TRANSACTION_ABORTABLE"):
                await client.send(again, [client.batch("2", P0)])
            await client.abort_and_commit(again, "3", P0)
            assert cast.visible(again.transactions.views) == ["1", "3"]
            with pytest.raises(TxnError, match="INVALID_TXN_STATE"):
                await client.send(again, [client.batch("4", P0)])

    async def test_knows_from_the_next_transaction_on_what_was_added(self) -> None:
        async with stage() as cast:
            a, client = await cast.instance("a"), Client("id")
            await client.init(a)
            await a.kill()
            again = await cast.instance("a")
            await client.write(again, "1", P0)
            await client.end(again)
            with pytest.raises(TxnError, match="INVALID_TXN_STATE"):
                await client.send(again, [client.batch("2", P0)])


@pytest.mark.parametrize("grows", ["by a partition", "by offsets"])
async def test_a_transaction_whose_claim_is_lost_does_not_grow(grows: str) -> None:
    """What is appended without a claim counts for nothing."""
    async with stage() as cast:
        a, client = await cast.instance(), Client("id", bumps=True)
        await client.init(a)
        await client.write(a, "1", P0)
        owner = a.transactions.coordinator.log.known("id")
        assert owner is not None
        owner.keeper.claim = None
        with pytest.raises(TxnError, match="the claim was lost"):
            if grows == "by offsets":
                await client.commit_offsets(a, "g", 5)
            else:
                await client.send(a, [client.batch("2", ("t", 1))])
        await client.abort_and_commit(a, "3", P0)
        assert cast.visible(a.transactions.views) == ["3"]


@BOTH
async def test_the_abort_of_what_was_aborted_by_hand_is_a_success_and_the_client_continues(bumps: bool) -> None:
    async with stage() as cast:
        a, client = await cast.instance(), Client("id", bumps)
        await client.init(a)
        await client.write(a, "1", P0)
        await a.transactions.coordinator.decide("id", None, committed=False, also=EVERYTHING)
        with pytest.raises(TxnError, match="TRANSACTION_ABORTABLE"):
            await client.end(a)
        await client.abort_and_commit(a, "2", P0)
        assert cast.visible(a.transactions.views) == ["2"]
        assert a.stats.transactions.open == 0


@BOTH
async def test_a_doomed_transaction_takes_no_offsets(bumps: bool) -> None:
    async with stage() as cast:
        a, client = await cast.instance(), Client("id", bumps)
        await client.init(a)
        await client.write(a, "1", P0)
        if not bumps:
            await client.add_offsets(a, "g")
        await a.transactions.coordinator.abort("id", client.producer)
        with pytest.raises(TxnError, match="TRANSACTION_ABORTABLE"):
            await client.commit_offsets(a, "g", 5)


async def test_a_producer_id_is_asked_for_once_while_its_epochs_last() -> None:
    async with stage() as cast:
        a, client, asked = await cast.instance(), Client("id", bumps=True), list[int]()
        cast.fake.cluster.control(ApiKey.INIT_PRODUCER_ID, lambda call: asked.append(call.connection))
        first = await client.init(a)
        count = len(asked)
        for committed in (True, False):
            await client.write(a, "1", P0)
            await client.end(a, committed=committed)
        assert (await client.init(a)).producer_id == first.producer_id
        assert len(asked) == count


@BOTH
async def test_a_decision_that_came_while_it_was_asked_for_is_no_fence(
    bumps: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log is read before the decision, which is late, and claimed after it: the decision is the client's own."""
    async with stage() as cast:
        a, client = await cast.instance(), Client("id", bumps)
        before = await client.init(a)
        await client.write(a, "1", P0)
        log, read = a.transactions.log, a.transactions.log.read_to_end
        late: list[Append] = []
        reads: list[str] = []

        async def hold(append: Append) -> None:
            late.append(append)
            raise AppendUnknown(0, ErrorCode.REQUEST_TIMED_OUT)

        async def read_to_end(transactional_id: str) -> object:
            reads.append("read" if late else "before")
            if reads.count("read") == 2:
                await late[0]()
            return await read(transactional_id)

        at_decision(monkeypatch, a, hold)
        monkeypatch.setattr(log, "read_to_end", read_to_end)
        told = await client.end(a)
        assert told.epoch == before.epoch + bumps
        assert cast.visible(a.transactions.views) == ["1"]
        await client.write(a, "2", P0)
        await client.end(a)
        assert cast.visible(a.transactions.views) == ["1", "2"]


class TestNobodyIsGivenTheIdentityOfAnotherProducer:
    @pytest.mark.parametrize("heard", [True, False], ids=["acknowledged", "answer-lost"])
    async def test_of_one_that_came_after_the_decision(self, heard: bool, monkeypatch: pytest.MonkeyPatch) -> None:
        """Another instance's InitProducerId follows the decision before this instance has read either."""
        async with stage() as cast:
            a, b = await cast.instance("a"), await cast.instance("b")
            old, new = Client("id", bumps=True), Client("id", bumps=True)
            before = await old.init(a)
            await old.write(a, "1", P0)

            async def overtaken(append: Append) -> None:
                await append()
                await new.init(b)
                await a.transactions.log.read_to_end("id")
                if not heard:
                    raise AppendUnknown(0, ErrorCode.REQUEST_TIMED_OUT)

            at_decision(monkeypatch, a, overtaken)
            zombie = Client("id", bumps=True, producer=before)
            assert await old.end(a) == Producer(before.producer_id, before.epoch + 1)
            assert new.producer == Producer(before.producer_id, before.epoch + 2)
            for ask in (old.end(a), old.send(a, [old.batch("zombie", P0)]), zombie.end(a)):
                with pytest.raises(TxnError, match="PRODUCER_FENCED"):
                    await ask
            await new.write(b, "2", P0)
            await new.end(b)
            assert cast.visible(b.transactions.views) == ["1", "2"]

    async def test_of_one_that_has_committed_since(self, monkeypatch: pytest.MonkeyPatch) -> None:
        async with stage() as cast:
            a, b = await cast.instance("a"), await cast.instance("b")
            old, new = Client("id", bumps=True), Client("id", bumps=True)
            before = await old.init(a)
            await old.write(a, "1", P0)

            async def overtaken(append: Append) -> None:
                await append()
                await new.init(b)
                await new.write(b, "2", P0)
                await new.end(b)
                await a.transactions.log.read_to_end("id")

            at_decision(monkeypatch, a, overtaken)
            assert await old.end(a) == Producer(before.producer_id, before.epoch + 1)
            with pytest.raises(TxnError, match="PRODUCER_FENCED"):
                await old.write(a, "zombie", P0)
            assert cast.visible(b.transactions.views) == ["1", "2"]

    @BOTH
    async def test_an_abort_that_comes_after_the_claim_of_a_newer_producer_is_no_success(
        self, bumps: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async with stage() as cast:
            a, b = await cast.instance("a"), await cast.instance("b")
            old, new = Client("id", bumps=bumps), Client("id", bumps=bumps)
            await old.init(a)
            await old.write(a, "aborted", P0)

            async def too_late(append: Append) -> None:
                await new.init(b)
                await append()

            at_decision(monkeypatch, a, too_late)
            with pytest.raises(TxnError, match="PRODUCER_FENCED"):
                await old.end(a, committed=False)
            await new.write(b, "new", P0)
            await new.end(b)
            assert cast.visible(b.transactions.views) == ["new"]

    async def test_an_abort_that_comes_after_the_commit_of_a_newer_producer_is_no_success(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The newer producer keeps the identity that this abort would have given."""
        async with stage() as cast:
            a, b = await cast.instance("a"), await cast.instance("b")
            old, new = Client("id", bumps=True), Client("id")
            before = await old.init(a)
            await old.write(a, "aborted", P0)

            async def too_late(append: Append) -> None:
                await new.init(b)
                await new.write(b, "1", P0)
                await new.end(b)
                await append()

            at_decision(monkeypatch, a, too_late)
            with pytest.raises(TxnError, match="PRODUCER_FENCED"):
                await old.end(a, committed=False)
            assert new.producer == Producer(before.producer_id, before.epoch + 1)
            await new.write(b, "2", P0)
            await new.end(b)
            assert cast.visible(b.transactions.views) == ["1", "2"]

    @pytest.mark.parametrize("decisions", [1, 2])
    async def test_of_one_whose_decisions_came_before_the_claim(
        self, decisions: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """InitProducerId has read the log, and then the old producer's decision gives that the same identity."""
        async with stage() as cast:
            a, b = await cast.instance("a"), await cast.instance("b")
            old, new = Client("id", bumps=True), Client("id", bumps=True)
            before = await old.init(a)
            append = b.transactions.log.append
            overtaken: list[Entry] = []

            async def late(entry: Entry, *place: int) -> None:
                while len(overtaken) < decisions:
                    overtaken.append(entry)
                    await old.write(a, f"{len(overtaken)}", P0)
                    await old.end(a)
                await append(entry, *place)

            monkeypatch.setattr(b.transactions.log, "append", late)
            await new.init(b)
            assert old.producer == Producer(before.producer_id, before.epoch + decisions)
            assert new.producer == Producer(before.producer_id, before.epoch + decisions + 1)
            await new.write(b, "new", P0)
            with pytest.raises(TxnError, match="PRODUCER_FENCED"):
                await old.end(a)
            await new.end(b)
            shown = [*(f"{n + 1}" for n in range(decisions)), "new"]
            assert cast.visible(b.transactions.views) == shown


@BOTH
class TestALateInitProducerId:
    """KIP-360: a copy of a request that was answered, which comes when the client has gone on."""

    async def test_keeps_a_transaction_doomed(self, bumps: bool) -> None:
        async with stage() as cast:
            a, client = await cast.instance(), Client("id", bumps)
            before = await client.init(a)
            await client.init(a, resume=True)
            await client.write(a, "1", P0)
            await a.transactions.coordinator.abort("id", client.producer)
            late = Client("id", bumps, producer=before)
            assert await late.init(a, resume=True) == client.producer
            with pytest.raises(TxnError, match="TRANSACTION_ABORTABLE"):
                await client.write(a, "2", P0)
            await client.abort_and_commit(a, "3", P0)
            assert cast.visible(a.transactions.views) == ["3"]

    async def test_after_the_end_of_a_transaction_changes_nothing(self, bumps: bool) -> None:
        async with stage() as cast:
            a, client = await cast.instance(), Client("id", bumps)
            before = await client.init(a)
            await client.init(a, resume=True)
            await client.write(a, "1", P0)
            await client.end(a)
            await client.write(a, "2", P0)
            late = Client("id", bumps, producer=before)
            if bumps:
                with pytest.raises(TxnError, match="PRODUCER_FENCED"):
                    await late.init(a, resume=True)
            else:
                assert await late.init(a, resume=True) == client.producer
            await client.write(a, "3", P0)
            await client.end(a)
            assert cast.visible(a.transactions.views) == ["1", "2", "3"]

    async def test_at_another_kproxy_aborts_nothing(self, bumps: bool) -> None:
        async with stage() as cast:
            a, b, client = await cast.instance("a"), await cast.instance("b"), Client("id", bumps)
            before = await client.init(a)
            await client.init(a, resume=True)
            await client.write(a, "1", P0)
            late = Client("id", bumps, producer=before)
            with pytest.raises(TxnError, match="CONCURRENT_TRANSACTIONS"):
                await late.init(b, resume=True)
            await client.write(a, "2", P0)
            await client.end(a)
            assert cast.visible(b.transactions.views) == ["1", "2"]


@BOTH
async def test_a_repeated_init_producer_id_moves_to_another_kproxy(bumps: bool) -> None:
    """The first kproxy has answered, but the response was lost."""
    async with stage() as cast:
        a, b, client = await cast.instance("a"), await cast.instance("b"), Client("id", bumps)
        await client.init(a)
        lost = Client("id", bumps, producer=client.producer)
        given = await lost.init(a, resume=True)
        await a.kill()
        assert await client.init(b, resume=True) == given
        await client.write(b, "1", P0)
        await client.end(b)
        assert cast.visible(b.transactions.views) == ["1"]


@BOTH
@pytest.mark.parametrize("left", ["open", "doomed", "undecided"])
async def test_a_repeated_init_producer_id_moves_to_a_kproxy_that_has_something_of_before(
    bumps: bool, left: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is written after it must not go into the transaction that the claim of the other kproxy has aborted."""
    async with stage() as cast:
        a, b, client = await cast.instance("a"), await cast.instance("b"), Client("id", bumps)
        await client.init(a)
        await client.write(a, "1", P0)
        if left == "doomed":
            await a.transactions.coordinator.abort("id", client.producer)
        if left == "undecided":
            await ends_unheard(monkeypatch, a, client, never)
        lost = Client("id", bumps, producer=client.producer)
        given = await lost.init(b, resume=True)
        assert await client.init(a, resume=True) == given
        assert a.stats.transactions.open == 0
        await client.write(a, "2", P0)
        await client.end(a)
        assert cast.visible(a.transactions.views) == ["2"]
        assert a.stats.transactions.open == 0


async def test_an_owner_whose_id_is_elsewhere_is_kept_until_its_client_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the client of what a claim has aborted is sent to the other kproxy, as if it might continue there."""
    async with stage() as cast:
        a, b = await cast.instance("a"), await cast.instance("b")
        old, new = Client("id"), Client("id")
        for left in ("nothing", "open", "undecided"):
            await old.init(a)
            owner = a.transactions.coordinator.log.known("id")
            assert owner is not None
            assert not owner.is_elsewhere
            if left != "nothing":
                await old.write(a, "old", P0)
            if left == "undecided":
                await ends_unheard(monkeypatch, a, old, never)
            await new.init(b)
            await a.transactions.log.read_to_end("id")
            if left == "nothing":
                async with owner._lock:
                    assert not owner.is_elsewhere
            else:
                assert not owner.is_elsewhere
                with pytest.raises(TxnError, match="PRODUCER_FENCED"):
                    await old.end(a)
            if left == "open":
                with pytest.raises(TxnError, match="NOT_COORDINATOR"):
                    await new.write(a, "new", P0)
            assert owner.is_elsewhere
            assert a.stats.transactions.open == 0


async def test_each_partition_is_announced_once_and_those_of_before_with_the_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One record in the log, and one round trip, for a transaction like the one before it."""
    async with stage() as cast:
        a, client = await cast.instance(), Client("id", bumps=True)
        await client.init(a)
        announce, announced = a.transactions.log.append_unread, list[list[int]]()

        async def note(entry: Entry, *place: int) -> object:
            if isinstance(entry.body, TransactionPartitions):
                announced.append([row.index for row in entry.body.topics[0].partitions])
            return await announce(entry, *place)

        monkeypatch.setattr(a.transactions.log, "append_unread", note)
        for value in "12":
            for index in (0, 0, 1, 1):
                await client.write(a, value, ("t", index))
            await client.end(a)
        assert announced == [[0], [1], [0, 1]]


@BOTH
async def test_a_restarted_kproxy_answers_a_repeated_init_producer_id(bumps: bool) -> None:
    """What was open is aborted, as nobody can continue it, and its client hears of it."""
    async with stage() as cast:
        a, client = await cast.instance("a"), Client("id", bumps)
        before = await client.init(a)
        await client.init(a, resume=True)
        await client.write(a, "1", P0)
        await a.kill()
        again = await cast.instance("a")
        late = Client("id", bumps, producer=before)
        assert await late.init(again, resume=True) == client.producer
        with pytest.raises(TxnError, match="TRANSACTION_ABORTABLE"):
            await client.write(again, "2", P0)
        await client.abort_and_commit(again, "3", P0)
        assert cast.visible(again.transactions.views) == ["3"]


@BOTH
@pytest.mark.parametrize("restarted", [False, True])
async def test_a_repeated_commit_is_a_success_after_the_id_has_expired(bumps: bool, restarted: bool) -> None:
    """The response was lost, and transactional.id.timeout.ms is shorter than the client's patience."""
    async with stage() as cast:
        a, client = await cast.instance("a"), Client("id", bumps)
        await client.init(a)
        await client.write(a, "1", P0)
        lost = Client("id", bumps, producer=client.producer)
        given = await lost.end(a)
        view = a.transactions.views.of("id")
        assert view is not None
        await a.transactions.coordinator.log._expire(view)
        at = a
        if restarted:
            await a.kill()
            at = await cast.instance("a")
        expired = await at.transactions.log.read_to_end("id")
        assert expired is not None
        assert expired.expired
        assert await client.end(at) == given
        assert cast.visible(at.transactions.views) == ["1"]
        again = Client("id", bumps)
        await again.init(at)
        await again.write(at, "2", P0)
        await again.end(at)
        for ask in (lost.end(at), lost.end(at, committed=False)):
            with pytest.raises(TxnError, match="PRODUCER_FENCED"):
                await ask
        assert cast.visible(at.transactions.views) == ["1", "2"]


@BOTH
@pytest.mark.parametrize("elsewhere", [False, True])
async def test_a_restarted_kproxy_knows_that_a_transaction_was_aborted_by_hand(bumps: bool, elsewhere: bool) -> None:
    """Else its client commits what it writes from then on, without what was aborted."""
    async with stage() as cast:
        a, b, client = await cast.instance("a"), await cast.instance("b"), Client("id", bumps)
        await client.init(a)
        await client.write(a, "1", P0)
        by = b if elsewhere else a
        await by.transactions.coordinator.decide("id", client.producer, committed=False, also=EVERYTHING)
        await a.kill()
        again = await cast.instance("a")
        for _ in range(2):
            with pytest.raises(TxnError, match="TRANSACTION_ABORTABLE"):
                await client.write(again, "2", P0)
        await client.abort_and_commit(again, "3", P0)
        assert cast.visible(again.transactions.views) == ["3"]


@pytest.mark.idle_clock
@BOTH
@pytest.mark.parametrize("asks", ["writes", "commits", "aborts"])
@pytest.mark.parametrize("by", ["again", "b"])
async def test_a_client_learns_what_was_aborted_by_hand_at_a_kproxy_that_did_not_know_it(
    by: str, asks: str, bumps: bool
) -> None:
    """That kproxy decides for whichever client has the id; it is not informed what that client has open."""
    async with stage() as cast:
        a, client = await cast.instance("a"), Client("id", bumps)
        await client.init(a)
        await client.write(a, "1", P0)
        await a.kill()
        at = await cast.instance("a" if by == "again" else "b")
        log = at.transactions.coordinator.log
        for _ in range(2):
            await log.decide("id", client.producer, committed=False, also=EVERYTHING)
        if asks != "aborts":
            ask = partial(client.end, at) if asks == "commits" else partial(client.write, at, "2", P0)
            with pytest.raises(TxnError, match="TRANSACTION_ABORTABLE"):
                await arrives(ask)
        await arrives(partial(client.end, at, committed=False))
        await client.write(at, "3", P0)
        await client.end(at)
        assert cast.visible(at.transactions.views) == ["3"]
        assert at.stats.transactions.open == 0


@BOTH
async def test_a_client_continues_after_parts_were_committed_by_hand_at_a_kproxy_that_did_not_know_it(
    bumps: bool,
) -> None:
    async with stage() as cast:
        a, client = await cast.instance("a"), Client("id", bumps)
        await client.init(a)
        await client.write(a, "1", P0)
        await a.transactions.coordinator.prepare(client.request)
        await a.kill()
        again = await cast.instance("a")
        decide = again.transactions.coordinator.decide
        await decide("id", client.producer, committed=True, also=DecisionScope("batch", every=True))
        await client.write(again, "2", P0)
        with pytest.raises(TxnError, match="CONCURRENT_TRANSACTIONS"):
            await decide("id", client.producer, committed=True, also=DecisionScope("next", every=True))
        await client.end(again)
        assert cast.visible(again.transactions.views) == ["1", "2"]


async def test_decisions_by_hand_for_a_client_of_another_kproxy_need_one_claim() -> None:
    async with stage() as cast:
        a, b, client = await cast.instance("a"), await cast.instance("b"), Client("id")
        await client.init(a)
        for batch in "123":
            also = DecisionScope(batch, every=True)
            await b.transactions.coordinator.decide("id", client.producer, committed=True, also=also)
        assert b.stats.transactions.claims == {"won": 1}
        await client.write(a, "1", P0)
        await client.end(a)
        assert cast.visible(a.transactions.views) == ["1"]


async def test_what_is_decided_by_hand_with_nothing_open_dooms_nobody() -> None:
    async with stage() as cast:
        a, client = await cast.instance("a"), Client("id")
        await client.init(a)
        await client.write(a, "1", P0)
        await a.transactions.coordinator.prepare(client.request)
        await a.transactions.coordinator.decide("id", None, committed=False, also=EVERYTHING)
        await a.kill()
        again = await cast.instance("a")
        await client.write(again, "2", P0)
        await client.end(again)
        assert cast.visible(again.transactions.views) == ["2"]
