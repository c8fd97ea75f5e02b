"""What becomes of a transaction: a decision counts once the log shows it, and a claim settles what it does not show."""

import pytest
import trio
import trio.testing

from kproxy.codec._generated.transaction_claim import TransactionClaim
from kproxy.codec._generated.transaction_decision import TransactionDecision
from kproxy.codec._generated.transaction_expiry import TransactionExpiry
from kproxy.codec._generated.transaction_offsets import TransactionOffsets
from kproxy.codec._generated.transaction_prepare import TransactionPrepare
from kproxy.codec.messages import ErrorCode
from kproxy.txn.claims import NOBODY
from kproxy.txn.ids import LAST_EPOCH, Producer
from kproxy.txn.log_records import Entry
from kproxy.txn.prepared_parts import EVERYTHING, NOTHING_BESIDE, DecidedParts, prepared_parts
from kproxy.txn.procedures.log_decider import LogDecider
from kproxy.txn.procedures.transaction import Transaction
from kproxy.txn.txn_error import TxnError
from kproxy.txn.verdict import Verdict
from kproxy.txn.view_values import ASKED
from tests.txn.procedures.memory_log import P0, P1, Desk, Writer

BUMPS = pytest.mark.parametrize("bumps", [False, True], ids=["TV1", "TV2"])


async def opened(name: str = "a", **written: int) -> tuple[Desk, LogDecider, Transaction]:
    """An instance whose client has a transaction open."""
    desk = await Desk(name).initialized()
    return desk, LogDecider(desk.keeper, desk.tools, desk.ends), await desk.transaction(**(written or {"p0": 7}))


async def decided(decisions: LogDecider, transaction: Transaction, why: str | None, *, bumps: bool = True) -> Verdict:
    return await decisions.decide(transaction, why, bumps=bumps, beside=NOTHING_BESIDE)


async def continuing(desk: Desk, transaction: Transaction, *, has_committed: bool = False) -> Desk:
    """Another instance, which continues what this one has open."""
    other = Desk("b", desk.log.records)
    other.keeper.take_over(await other.read())
    await other.keeper.claim_to_continue(transaction.producer)
    if has_committed:
        following = await other.transaction(p1=9)
        following.former = {transaction.producer: transaction.writer.written()}
        await decided(LogDecider(other.keeper, other.tools, other.ends), following, None)
    return other


class TestADecision:
    @BUMPS
    async def test_to_commit_counts_and_gives_the_client_its_next_identity(self, bumps: bool) -> None:
        desk, decisions, transaction = await opened()
        before = desk.keeper.client
        assert await decided(decisions, transaction, None, bumps=bumps) is Verdict.COMMITTED
        assert desk.keeper.client == Producer(before.producer_id, before.epoch + bumps) == (await desk.read()).client
        assert desk.groups.held == [transaction.producer]
        last = (await desk.read()).last
        assert last is not None
        assert (last.committed, last.by_claim, last.reason) == (True, False, "")
        assert await desk.ends.with_likely([], [], []) == {P0: 7}
        assert desk.asked["producer id"] == 2  # one for the claim, one for the client

    @BUMPS
    async def test_to_abort_says_why(self, bumps: bool) -> None:
        desk, decisions, transaction = await opened()
        before = desk.keeper.client
        assert await decided(decisions, transaction, "for a reason", bumps=bumps) is Verdict.ABORTED
        assert desk.keeper.client == Producer(before.producer_id, before.epoch + bumps)
        last = (await desk.read()).last
        assert last is not None
        assert (last.committed, last.by_claim, last.reason) == (False, False, "for a reason")
        assert desk.groups.held == []
        assert await desk.ends.with_likely([], [], []) == {}

    async def test_gives_a_fresh_producer_id_after_the_last_epoch(self) -> None:
        desk = Desk()
        desk.keeper.client = Producer(5, LAST_EPOCH)
        await desk.keeper.claim_again()
        decisions, transaction = LogDecider(desk.keeper, desk.tools, desk.ends), await desk.transaction()
        asked = desk.asked["producer id"]
        await decided(decisions, transaction, None, bumps=False)
        assert (desk.keeper.client, desk.asked["producer id"]) == (Producer(5, LAST_EPOCH), asked)
        await decided(decisions, await desk.transaction(), None)
        assert desk.keeper.client.epoch == 0
        assert desk.asked["producer id"] == asked + 1

    async def test_that_is_lost_is_settled_by_a_claim_and_gives_no_identity(self) -> None:
        desk, decisions, transaction = await opened()
        desk.log.lost, before = [TransactionDecision], desk.keeper.client
        assert await decided(decisions, transaction, None) is Verdict.ABORTED
        assert desk.keeper.client == before
        assert desk.tools.stats.claims == {"won": 2}
        assert desk.groups.held == []

    async def test_needs_no_claim_nor_does_the_next_transaction(self, autojump_clock: trio.testing.MockClock) -> None:
        desk, decisions, transaction = await opened()
        append = desk.log.append

        async def slow(entry: Entry, *place: int) -> None:
            await trio.sleep(3)
            await append(entry, *place)

        desk.log.append = slow  # type: ignore[method-assign]
        await decided(decisions, transaction, None)
        await decided(decisions, await desk.transaction(), ASKED)
        assert desk.tools.stats.claims == {"won": 1}
        assert (desk.tools.stats.appends.count, desk.tools.stats.appends.seconds_sum) == (2, 6.0)

    async def test_that_the_log_has_lost_with_the_id_is_settled_by_a_claim(self) -> None:
        desk, decisions, transaction = await opened()
        desk.log.view, before = None, desk.keeper.client
        assert await decided(decisions, transaction, None) is not Verdict.COMMITTED
        assert desk.keeper.client == before
        assert desk.tools.stats.claims == {"won": 2}

    async def test_whose_response_is_lost_counts(self) -> None:
        desk, decisions, transaction = await opened()
        desk.log.unheard, before = [TransactionDecision], desk.keeper.client
        assert await decided(decisions, transaction, None) is Verdict.COMMITTED
        assert desk.keeper.client.epoch == before.epoch + 1
        assert desk.tools.stats.claims == {"won": 1}

    async def test_without_a_claim_is_not_appended(self) -> None:
        desk, decisions, transaction = await opened()
        desk.keeper.claim, before = None, desk.keeper.client
        assert await decided(decisions, transaction, ASKED) is Verdict.ABORTED
        assert desk.keeper.client == before
        assert not any(isinstance(body, TransactionDecision) for body in desk.log.records)

    @pytest.mark.parametrize("has_ended", [False, True])
    async def test_of_a_client_that_is_replaced_right_after_it_gives_the_identity_that_it_named(
        self, has_ended: bool
    ) -> None:
        desk, decisions, transaction = await opened()
        desk.log.unheard, before = [TransactionDecision], desk.keeper.client
        other = Desk("b", desk.log.records)
        append = desk.log.append_unread

        async def overtaken(*what: object) -> int:
            try:
                return await append(*what)  # type: ignore[arg-type]
            finally:
                await other.initialized()
                if has_ended:
                    following = LogDecider(other.keeper, other.tools, other.ends)
                    await decided(following, await other.transaction(p0=9), None, bumps=False)

        desk.log.append_unread = overtaken  # type: ignore[assignment]
        assert await decided(decisions, transaction, None) is Verdict.COMMITTED
        assert (desk.keeper.client.epoch, other.keeper.client.epoch) == (before.epoch + 1, before.epoch + 2)

    @pytest.mark.parametrize("has_begun", [False, True])
    async def test_that_comes_too_late_gives_no_identity(self, has_begun: bool) -> None:
        """Whichever decision the log shows last, it is another transaction's."""
        desk, decisions, transaction = await opened()
        await decided(decisions, transaction, None)
        part = await desk.keeper.take_epoch()
        second, before = Transaction(part, Writer(p0=9), trio.current_time()), desk.keeper.client  # type: ignore[arg-type]
        if has_begun:
            desk.log.lost = [TransactionDecision]
        else:
            other = Desk("b", desk.log.records)
            await other.initialized()
            await decided(LogDecider(other.keeper, other.tools, other.ends), await other.transaction(p0=9), None)
        assert await decided(decisions, second, None) is Verdict.ABORTED
        assert desk.keeper.client == before

    async def test_of_a_continued_transaction_covers_what_other_instances_wrote(self) -> None:
        desk, _, former = await opened()
        other = await continuing(desk, former)
        decisions, transaction = LogDecider(other.keeper, other.tools, other.ends), await other.transaction(p1=9)
        transaction.former = {former.producer: former.writer.written()}
        await other.ends.of([P0])
        assert await decided(decisions, transaction, None) is Verdict.COMMITTED
        assert (await desk.read()).verdict(former.producer) is Verdict.COMMITTED
        assert await other.ends.with_likely([], [], []) == {P0: 5, P1: 9}

    async def test_covers_what_was_prepared_beside_it(self) -> None:
        desk, decisions, first = await opened()
        assert await decisions.prepare(first)
        second = await desk.transaction(p1=9)
        parts = prepared_parts(desk.keeper.view, EVERYTHING)
        await decisions.decide(second, None, bumps=False, beside=DecidedParts("batch", parts))
        view = await desk.read()
        assert [view.verdict(one.producer) for one in (first, second)] == [Verdict.COMMITTED] * 2
        assert view.has_committed("batch")


class TestAnOutcomeThatIsNotKnown:
    async def test_is_found_out_once(self) -> None:
        desk, decisions, transaction = await opened()
        assert await decisions.find_out() is None
        decisions.leave_open(transaction)
        assert desk.keeper.claim is None
        assert await decisions.find_out() is Verdict.ABORTED
        assert desk.tools.stats.claims == {"won": 2}
        assert await decisions.find_out() is None

    async def test_is_that_of_the_record_if_it_is_in_the_log(self) -> None:
        desk, decisions, transaction = await opened()
        desk.log.unheard, desk.log.is_silent, before = [TransactionDecision], True, desk.keeper.client
        with pytest.raises(TxnError, match="COORDINATOR_NOT_AVAILABLE"):
            await decided(decisions, transaction, None)
        decisions.leave_open(transaction)
        with pytest.raises(TxnError, match="COORDINATOR_NOT_AVAILABLE"):
            await decisions.find_out()
        assert (decisions.undecided, desk.keeper.client) == (transaction, before)
        desk.log.is_silent = False
        assert await decisions.find_out() is Verdict.COMMITTED
        assert desk.keeper.client.epoch == before.epoch + 1
        assert desk.groups.held == [transaction.producer]

    @pytest.mark.parametrize("has_read", [False, True])
    @pytest.mark.parametrize("has_committed", [False, True])
    async def test_is_left_to_the_instance_that_continues_the_transaction(
        self, has_read: bool, has_committed: bool
    ) -> None:
        desk, decisions, transaction = await opened()
        other = await continuing(desk, transaction, has_committed=has_committed)
        if has_read:
            await desk.read()
        decisions.leave_open(transaction)
        assert desk.keeper.has_left is has_read
        with pytest.raises(TxnError, match="NOT_COORDINATOR"):
            await decisions.find_out()
        assert desk.keeper.has_left
        assert (await other.read()).is_former(transaction.producer)

    async def test_is_left_to_it_also_where_the_log_is_silent_then(self) -> None:
        desk, decisions, transaction = await opened()
        append = desk.log.append
        await continuing(desk, transaction)

        async def last(entry: Entry, *place: int) -> None:
            await append(entry, *place)
            desk.log.is_silent = True

        desk.log.append = last  # type: ignore[method-assign]
        with pytest.raises(TxnError, match="COORDINATOR_NOT_AVAILABLE"):
            await decided(decisions, transaction, None)
        assert desk.keeper.has_left


class TestWhatCanBeCommitted:
    async def test_all_that_is_written(self) -> None:
        _, decisions, transaction = await opened()
        assert await decisions.find_fault(transaction) is None
        assert transaction.writer.flushed  # type: ignore[attr-defined]

    async def test_no_transaction_with_a_batch_that_was_refused(self) -> None:
        _, decisions, transaction = await opened()
        transaction.writer.failed = ErrorCode.INVALID_RECORD  # type: ignore[misc]
        assert "not written" in str(await decisions.find_fault(transaction))

    async def test_none_whose_topic_was_created_again(self) -> None:
        desk, decisions, transaction = await opened(p0=5)
        await desk.ends.of([P0])
        assert "created again" in str(await decisions.find_fault(transaction))

    async def test_none_with_offsets_of_a_member_that_is_not_current(self) -> None:
        desk, decisions, transaction = await opened()
        transaction.members = [TransactionOffsets(group_id=name, generation_id=3) for name in "gh"]
        assert await decisions.find_fault(transaction) is None
        desk.groups.errors["h"] = ErrorCode.ILLEGAL_GENERATION
        assert "group h is not at generation 3" in str(await decisions.find_fault(transaction))


class TestATransactionThatIsPrepared:
    @pytest.mark.parametrize("unheard", [False, True])
    async def test_waits_for_a_decision(self, unheard: bool) -> None:
        desk, decisions, transaction = await opened()
        desk.log.unheard = [TransactionPrepare] if unheard else []
        assert await decisions.prepare(transaction)
        view = await desk.read()
        assert view.verdict(transaction.producer) is Verdict.UNDECIDED
        assert transaction.producer in view.prepared
        assert desk.tools.stats.claims == {"won": 1}

    @pytest.mark.parametrize("has_claim", [False, True])
    async def test_is_aborted_if_the_log_does_not_take_the_record(self, has_claim: bool) -> None:
        desk, decisions, transaction = await opened()
        desk.log.lost = [TransactionPrepare]
        if not has_claim:
            desk.keeper.claim = None
        assert not await decisions.prepare(transaction)
        assert (await desk.read()).verdict(transaction.producer) is Verdict.ABORTED

    async def test_is_left_to_the_instance_that_continues_it(self) -> None:
        desk, decisions, transaction = await opened()
        other = await continuing(desk, transaction)
        with pytest.raises(TxnError, match="NOT_COORDINATOR"):
            await decisions.prepare(transaction)
        assert (await other.read()).ongoing is not None


class TestAnEndWhereNothingIsOpen:
    async def test_claims_nothing_under_a_claim_that_holds(self) -> None:
        desk = await Desk().initialized()
        await LogDecider(desk.keeper, desk.tools, desk.ends).check_nothing_open()
        assert desk.tools.stats.claims == {"won": 1}

    async def test_claims_where_a_former_instance_may_have_begun(self) -> None:
        desk = await Desk().initialized()
        desk.keeper.claim = None
        await LogDecider(desk.keeper, desk.tools, desk.ends).check_nothing_open()
        assert desk.tools.stats.claims == {"won": 2}

    @pytest.mark.parametrize("is_known", [False, True])
    async def test_claims_no_id_that_has_expired_or_that_the_log_has_lost(self, is_known: bool) -> None:
        desk = await Desk().initialized()
        assert desk.keeper.claim is not None
        if is_known:
            desk.log.records.append(TransactionExpiry(desk.keeper.claim.nonce))
        else:
            desk.log.view = None
        desk.keeper.claim = None
        await LogDecider(desk.keeper, desk.tools, desk.ends).check_nothing_open()
        assert desk.tools.stats.claims == {"won": 1}

    async def test_is_refused_where_another_instance_has_the_id(self) -> None:
        desk = await Desk().initialized()
        other = Desk("b", desk.log.records)
        other.keeper.take_over(await other.read())
        await other.keeper.claim_again()
        assert isinstance(desk.log.records[-1], TransactionClaim)
        with pytest.raises(TxnError, match="NOT_COORDINATOR"):
            await LogDecider(desk.keeper, desk.tools, desk.ends).check_nothing_open()
        assert desk.keeper.has_left
        await desk.keeper.claim_to_initialize(NOBODY)
        assert not desk.keeper.has_left
