"""Claims of one transactional id: for whom they are made, what they abort, and the epochs that they give."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from copy import deepcopy
from dataclasses import replace

import pytest
import trio

from kproxy.codec._generated.transaction_decision import TransactionDecision
from kproxy.codec._generated.transaction_expiry import TransactionExpiry
from kproxy.codec._generated.transaction_partitions import (
    TransactionPartitions,
    TransactionPartitionsPartition,
    TransactionPartitionsTopic,
)
from kproxy.codec.messages import ApiKey, ErrorCode
from kproxy.net.txn.log_topic import TOPIC
from kproxy.testing.fake_broker import Call, Close, CloseAfter
from kproxy.txn.claims import NOBODY
from kproxy.txn.ids import BLOCK_EPOCHS, Producer
from kproxy.txn.log_records import Entry
from kproxy.txn.procedures.claim_keeper import ClaimKeeper
from kproxy.txn.transactional_id import TransactionalId
from kproxy.txn.txn_error import TxnError
from kproxy.txn.verdict import Verdict
from kproxy.txn.view import IdView
from tests.net.txn.instances import Cast, Instance, stage
from tests.net.txn.log_harness import PATIENCE

pytestmark = pytest.mark.idle_clock

FIRST, SECOND = Producer(7, 0), Producer(7, 1)


@asynccontextmanager
async def scene() -> AsyncIterator[tuple[Cast, Instance]]:
    async with stage() as cast:
        with trio.fail_after(PATIENCE):
            yield cast, await cast.instance()


def keeper_of(at: Instance, nonce: bytes | None = None) -> ClaimKeeper:
    """``nonce``: of its claims; by default one that is random."""
    tools = at.transactions.coordinator.log._tools
    return ClaimKeeper("id", tools if nonce is None else replace(tools, nonce=lambda: nonce))


async def taker_of(at: Instance, nonce: bytes | None = None) -> ClaimKeeper:
    """A keeper that has taken the id over, and not claimed it yet."""
    keeper = keeper_of(at, nonce)
    view = await keeper.read_to_end()
    assert view is not None
    keeper.take_over(view)
    return keeper


async def claimed(at: Instance, client: Producer = FIRST, nonce: bytes | None = None) -> ClaimKeeper:
    """A keeper that has claimed the id for a client."""
    keeper = keeper_of(at, nonce)

    async def identity(_: IdView | None) -> Producer:
        return client

    view = await keeper.claim_for(identity)
    assert keeper.holds(view)
    assert (keeper.client, view.client) == (client, client)
    return keeper


async def begun(keeper: ClaimKeeper) -> Producer:
    """An epoch of which the log says that it is open, with a partition."""
    producer = await keeper.take_epoch()
    assert keeper.claim is not None
    topics = [TransactionPartitionsTopic("t", [TransactionPartitionsPartition()])]
    assert await keeper.announce(TransactionPartitions(keeper.claim.nonce, *producer, topics))
    await keeper.read_to_end()
    return producer


async def decided(keeper: ClaimKeeper, producer: Producer, following: Producer) -> IdView | None:
    assert keeper.claim is not None
    body = TransactionDecision(
        nonce=keeper.claim.nonce,
        producer_id=producer.producer_id,
        epoch=producer.epoch,
        committed=True,
        next_client_producer_id=following.producer_id,
        next_client_epoch=following.epoch,
        batch_id=None,
        reason="",
        parts=[],
    )
    return await keeper.append(body)


async def lose_the_log(cast: Cast, keeper: ClaimKeeper) -> None:
    for part in cast.fake.cluster.topics[TOPIC].partitions:
        part.log.truncate(0)
        part.lead(part.leader)
    while await keeper.read_to_end() is not None:  # noqa: ASYNC110 - nobody announces it
        await trio.sleep(0.01)


class TestForWhom:
    async def test_a_claim_is_repeated_for_the_client_that_has_the_id(self) -> None:
        async with scene() as (_, a):
            keeper = await claimed(a)
            view = await keeper.claim_again()
            assert (view.client, keeper.client) == (FIRST, FIRST)
            assert keeper.holds(view)
            assert view.claim is not None
            assert view.claim.first_epoch == BLOCK_EPOCHS

    async def test_a_client_that_was_replaced_is_fenced_and_its_claim_is_given_up(self) -> None:
        async with scene() as (cast, a):
            old = await claimed(a)
            new = await claimed(await cast.instance("b"), SECOND)
            with pytest.raises(TxnError, match="PRODUCER_FENCED"):
                await old.claim_again()
            assert old.claim is None
            assert new.holds(await new.read_to_end()), "the one that was refused has not claimed"

    @pytest.mark.parametrize("times", [1, 100])
    async def test_an_id_that_expires_right_after_its_claim_is_claimed_again(
        self, times: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # The clock of another instance is far ahead: it takes each claim for one that nobody has used for long.
        async with scene() as (_, a):
            keeper = await claimed(a)
            log = keeper._tools.log
            append, left = log.append, times

            async def then_expires(entry: Entry, *claim: int) -> None:
                nonlocal left
                await append(entry, *claim)
                if left:
                    left -= 1
                    await log.append_unfenced(Entry("id", TransactionExpiry(entry.body.nonce)))

            assert keeper.claim is not None
            await log.append_unfenced(Entry("id", TransactionExpiry(keeper.claim.nonce)))
            await keeper.read_to_end()
            monkeypatch.setattr(log, "append", then_expires)
            if times == 1:
                assert (await keeper.take_epoch()).epoch % BLOCK_EPOCHS == 0
            else:
                with pytest.raises(TxnError, match="CONCURRENT_TRANSACTIONS"):
                    await keeper.take_epoch()

    async def test_a_log_that_has_lost_the_client_records_it_again(self) -> None:
        async with scene() as (cast, a):
            keeper = await claimed(a)
            await lose_the_log(cast, keeper)
            assert not keeper.holds(keeper.view)
            assert (await keeper.claim_again()).client == FIRST
            assert keeper.holds(keeper.view)

    async def test_who_serves_claims_for_the_client_and_the_instance_that_have_the_id(self) -> None:
        async with scene() as (cast, a):
            view = (await claimed(a)).view
            assert view is not None
            sweeper = keeper_of(await cast.instance("b"))
            await sweeper.read_to_end()
            sweeper.serve(view)
            assert sweeper.claim is None
            after = await sweeper.claim_again()
            assert after.claim is not None
            assert (after.client, after.claim.instance_id) == (FIRST, "a")

    async def test_of_two_claims_at_one_time_the_later_sees_that_it_lost(self) -> None:
        async with scene() as (cast, a):
            first = await claimed(a)
            before = deepcopy(first.view)
            other = keeper_of(await cast.instance("b"))
            assert (await other.claim_once(await other.read_to_end(), SECOND))[0]
            won, view = await first.claim_once(before, FIRST)
            assert not won
            assert view is not None
            assert view.client == SECOND
            assert a.stats.transactions.claims == {"won": 1, "lost": 1}

    async def test_a_claim_that_names_no_client_does_not_take_anothers_for_its_own(self) -> None:
        async with scene() as (cast, a):
            first = await claimed(a)
            before = deepcopy(first.view)
            await claimed(await cast.instance("b"), SECOND)
            assert not (await first.claim_once(before, NOBODY))[0]

    async def test_an_older_identity_fences_too_where_the_log_was_lost(self) -> None:
        async with scene() as (cast, a):
            keeper = await claimed(a, SECOND)
            await lose_the_log(cast, keeper)
            await claimed(await cast.instance("b"), FIRST)
            with pytest.raises(TxnError, match="PRODUCER_FENCED"):
                await keeper.claim_again()

    async def test_two_ids_have_different_producer_ids(self) -> None:
        async with scene() as (_, a):
            first, second = keeper_of(a), ClaimKeeper("other", a.transactions.coordinator.log._tools)
            for keeper in (first, second):
                assert (await keeper.claim_once(await keeper.read_to_end(), FIRST))[0]
            assert first.claim is not None
            assert second.claim is not None
            assert first.claim.producer_id != second.claim.producer_id

    async def test_a_claim_that_did_not_arrive_is_lost(self) -> None:
        async with scene() as (cast, a):
            keeper = keeper_of(a)
            await keeper.read_to_end()
            lost = cast.fake.cluster.control(ApiKey.PRODUCE, lambda _: Close())
            assert await keeper.claim_once(None, FIRST) == (False, None)
            cast.fake.cluster.controls.remove(lost)
            assert not keeper.holds(None)
            assert keeper.client == NOBODY

    async def test_who_has_claimed_nothing_holds_nothing(self) -> None:
        async with scene() as (_, a):
            view = (await claimed(a)).view
            assert not keeper_of(a).holds(view)

    async def test_others_that_need_the_identity_receive_it(self) -> None:
        async with scene() as (_, a):
            tools = a.transactions.coordinator.log._tools
            known = TransactionalId(tools.stats.count_fenced)
            keeper = ClaimKeeper("id", tools, known)
            await keeper.claim_once(await keeper.read_to_end(), FIRST)
            assert known.client == FIRST

    async def test_who_gives_up_a_client_gives_up_its_claim(self) -> None:
        async with scene() as (_, a):
            keeper = await claimed(a)
            assert not keeper.holds(None)
            assert keeper.fenced().error_code is ErrorCode.PRODUCER_FENCED
            assert keeper.claim is None

    async def test_an_id_that_has_expired_is_held_by_nobody(self) -> None:
        async with scene() as (_, a):
            keeper = await claimed(a)
            assert keeper.claim is not None
            await a.transactions.log.append_unfenced(Entry("id", TransactionExpiry(keeper.claim.nonce)))
            assert not keeper.holds(await keeper.read_to_end())

    async def test_an_identity_that_is_not_newer_than_the_ids_is_not_given(self) -> None:
        async with scene() as (_, a):
            keeper = await claimed(a, SECOND)
            won, view = await keeper.claim_once(keeper.view, FIRST)
            assert not won
            assert view is not None
            assert view.client == SECOND

    async def test_an_id_that_others_claim_again_and_again_is_given_up(self) -> None:
        async with scene() as (_, a):
            keeper, tries = await claimed(a, SECOND), 0

            async def older(_: IdView | None) -> Producer:
                nonlocal tries
                tries += 1
                return FIRST

            with pytest.raises(TxnError, match="CONCURRENT_TRANSACTIONS"):
                await keeper.claim_for(older)
            assert tries == 10


class TestEpochs:
    async def test_each_transaction_has_the_next_one_though_nothing_of_the_last_is_in_the_log(self) -> None:
        async with scene() as (_, a):
            keeper = await claimed(a)
            first, second, third = [await keeper.take_epoch() for _ in range(3)]
            assert first < second < third

    async def test_a_block_lasts_for_its_epochs_and_then_the_next_is_claimed(self) -> None:
        async with scene() as (_, a):
            keeper = await claimed(a)
            for epoch in range(BLOCK_EPOCHS + 1):
                producer = await begun(keeper)
                assert producer.epoch == epoch
                await decided(keeper, producer, FIRST)
            assert a.stats.transactions.claims["won"] == 2

    async def test_what_was_begun_is_continued(self) -> None:
        """Members may have joined it, wherever they are."""
        async with scene() as (_, a):
            keeper = await claimed(a)
            producer = await begun(keeper)
            view = await keeper.read_to_end()
            assert view is not None
            assert view.next_epoch() == producer

    async def test_none_is_given_to_a_client_that_was_replaced(self) -> None:
        async with scene() as (cast, a):
            old = await claimed(a)
            await claimed(await cast.instance("b"), SECOND)
            await old.read_to_end()
            with pytest.raises(TxnError, match="PRODUCER_FENCED"):
                await old.take_epoch()


class TestWhatIsOpen:
    async def test_settling_aborts_what_the_log_has_no_decision_of(self) -> None:
        async with scene() as (_, a):
            keeper = await claimed(a)
            producer = await begun(keeper)
            view = await keeper.settle(producer)
            assert view.verdict(producer) is Verdict.ABORTED
            assert view.client == FIRST

    async def test_settling_what_is_decided_claims_nothing(self) -> None:
        async with scene() as (_, a):
            keeper = await claimed(a)
            producer = await begun(keeper)
            await decided(keeper, producer, SECOND)
            view = await keeper.settle(producer)
            assert view.verdict(producer) is Verdict.COMMITTED
            assert view.client == SECOND
            assert a.stats.transactions.claims == {"won": 1}

    async def test_settling_what_was_lost_with_the_log_claims_for_the_same_client(self) -> None:
        async with scene() as (cast, a):
            keeper = await claimed(a)
            producer = await begun(keeper)
            await lose_the_log(cast, keeper)
            assert (await keeper.settle(producer)).client == FIRST

    async def test_where_nothing_is_open_or_known_nothing_is_ended(self) -> None:
        async with scene() as (cast, a):
            keeper = await claimed(a)
            producer = await begun(keeper)
            view = await keeper.read_to_end()
            assert view is not None
            since = view.open_since()
            assert since is not None
            await decided(keeper, producer, FIRST)
            await keeper.end_open(since)
            assert a.stats.transactions.claims == {"won": 1}
            await lose_the_log(cast, keeper)
            await keeper.end_open(since)
            assert await keeper.read_to_end() is None

    async def test_only_what_was_open_then_is_ended(self) -> None:
        async with scene() as (_, a):
            keeper = await claimed(a)
            first = await begun(keeper)
            view = await keeper.read_to_end()
            assert view is not None
            since = view.open_since()
            assert since is not None
            await decided(keeper, first, FIRST)
            second = await begun(keeper)
            sweeper = keeper_of(a)
            sweeper.serve(view)
            await sweeper.end_open(since)
            view = await keeper.read_to_end()
            assert view is not None
            assert view.verdict(second) is Verdict.UNDECIDED
            since = view.open_since()
            assert since is not None
            await sweeper.end_open(since)
            view = await keeper.read_to_end()
            assert view is not None
            assert view.verdict(second) is Verdict.ABORTED
            assert view.client == FIRST


class TestElsewhere:
    async def test_an_id_that_nobody_has_or_that_is_here_is_not_elsewhere(self) -> None:
        async with scene() as (_, a):
            assert not keeper_of(a).is_elsewhere(None)
            keeper = await claimed(a)
            assert not keeper.is_elsewhere(keeper.view)

    async def test_it_is_where_the_last_claim_was_made(self) -> None:
        async with scene() as (cast, a):
            first, b = await claimed(a), await cast.instance("b")
            second = await taker_of(b)
            await second.claim_again()
            assert first.is_elsewhere(await first.read_to_end())
            assert not second.is_elsewhere(second.view)
            third = await taker_of(a)
            await third.claim_again()
            assert second.is_elsewhere(await second.read_to_end())
            assert not third.is_elsewhere(third.view)
            assert not first.is_elsewhere(await first.read_to_end()), "it is at this instance again"

    @pytest.mark.parametrize("nonce", [b"a" * 16, b"c" * 16])
    async def test_who_takes_it_over_has_it_until_another_claims_it(self, nonce: bytes) -> None:
        async with scene() as (cast, a):
            await claimed(a, nonce=b"b" * 16)
            taker = await taker_of(await cast.instance("b"))
            assert (taker.client, taker.client_id, taker.timeout_ms) == (FIRST, "", 0)
            assert not taker.is_elsewhere(taker.view)
            await (await taker_of(await cast.instance("c"), nonce)).claim_again()
            assert taker.is_elsewhere(await taker.read_to_end())

    @pytest.mark.parametrize("following", [SECOND, Producer(3, 0)])
    async def test_it_is_still_at_the_former_instance_that_decides_under_its_claim(self, following: Producer) -> None:
        async with scene() as (cast, a):
            former = await claimed(a)
            producer = await begun(former)
            taker = await taker_of(await cast.instance("b"))
            await decided(former, producer, following)
            assert taker.is_elsewhere(await taker.read_to_end())

    async def test_who_serves_an_instance_has_the_id_for_it(self) -> None:
        async with scene() as (cast, a):
            view = (await claimed(a)).view
            assert view is not None
            server = keeper_of(await cast.instance("b"))
            await server.read_to_end()
            server.serve(view)
            assert not server.is_elsewhere(server.view)
            await server.claim_again()
            assert not server.is_elsewhere(server.view)


class TestContinuing:
    async def test_who_continues_what_is_open_aborts_nothing_and_its_former_instance_refuses(self) -> None:
        async with scene() as (cast, a):
            former = await claimed(a)
            producer = await begun(former)
            taker = await taker_of(await cast.instance("b"))
            view = await taker.claim_to_continue(producer)
            assert view.is_former(producer)
            assert view.client == FIRST
            for ask in (former.claim_again, former.settle):
                with pytest.raises(TxnError, match="NOT_COORDINATOR: b continues"):
                    await ask(producer)
            assert taker.holds(await taker.read_to_end())

    async def test_who_has_left_a_transaction_to_another_instance_has_no_claim(self) -> None:
        async with scene() as (cast, a):
            former = await claimed(a)
            producer = await begun(former)
            await (await taker_of(await cast.instance("b"))).claim_to_continue(producer)
            view = await former.read_to_end()
            assert view is not None
            assert former.continued_elsewhere(view).error_code is ErrorCode.NOT_COORDINATOR
            assert former.claim is None

    @pytest.mark.parametrize("shift", [-1, 1])
    async def test_nothing_is_claimed_where_something_else_is_open(self, shift: int) -> None:
        async with scene() as (cast, a):
            keeper = await claimed(a)
            producer = await begun(keeper)
            taker = await taker_of(await cast.instance("b"))
            with pytest.raises(TxnError, match="CONCURRENT_TRANSACTIONS"):
                await taker.claim_to_continue(producer._replace(epoch=producer.epoch + shift))
            assert keeper.holds(await keeper.read_to_end())

    async def test_nothing_is_claimed_where_nothing_is_open_or_known(self) -> None:
        async with scene() as (_, a):
            with pytest.raises(TxnError, match="CONCURRENT_TRANSACTIONS"):
                await keeper_of(a).claim_to_continue(Producer(1, 0))
            keeper = await claimed(a)
            with pytest.raises(TxnError, match="CONCURRENT_TRANSACTIONS"):
                await (await taker_of(a)).claim_to_continue(Producer(1, 0))
            assert keeper.holds(await keeper.read_to_end())

    async def test_the_former_instance_is_remembered_and_where_it_was_fenced(self) -> None:
        def known(keeper: ClaimKeeper) -> tuple[str, bool, int]:
            keeper.fenced_at.add(("t", 1))
            return keeper.former_instance, keeper.had_others, len(keeper.fenced_at)

        async with scene() as (cast, a):
            b, place = await cast.instance("b"), ("t", 0)
            assert known(keeper_of(a)) == ("", False, 1)
            first = await claimed(a)
            first.fenced_at.add(place)
            assert known(first) == ("", False, 2)
            await first.claim_again()
            assert known(first) == ("a", False, 2)
            restarted = await taker_of(a)
            await restarted.claim_again()
            assert known(restarted) == ("a", False, 1)
            second = await taker_of(b)
            second.fenced_at.add(place)
            await second.claim_again()
            assert known(second) == ("a", True, 1)
            second.fenced_at.add(place)
            await second.claim_again()
            assert known(second) == ("b", True, 2)  # it still writes for the same client
            third = await taker_of(a)
            third.fenced_at.add(place)
            await third.claim_again()
            assert known(third) == ("b", True, 1)
            third.fenced_at.add(place)
            assert (await third.claim_once(third.view, SECOND))[0]
            assert known(third) == ("a", False, 1)

    @pytest.mark.parametrize(
        ("client", "error"),
        [
            (Producer(7, -1), ErrorCode.PRODUCER_FENCED),
            (FIRST, ErrorCode.NOT_COORDINATOR),
            (Producer(7, 2), ErrorCode.PRODUCER_FENCED),
        ],
    )
    async def test_who_has_ended_its_transaction_elsewhere_is_not_fenced(
        self, client: Producer, error: ErrorCode
    ) -> None:
        async with scene() as (cast, a):
            await claimed(a)
            taker = await taker_of(await cast.instance("b"))
            await taker.claim_again()
            await decided(taker, await begun(taker), SECOND)
            keeper = keeper_of(a)
            keeper.client = client
            await keeper.read_to_end()
            assert keeper.fenced().error_code is error


class TestAppending:
    async def test_a_sequence_is_used_once_and_one_without_an_answer_ends_the_claim(self) -> None:
        async with scene() as (cast, a):
            keeper = await claimed(a)
            producer = await begun(keeper)
            view = await decided(keeper, producer, FIRST)
            assert view is not None
            assert view.verdict(producer) is Verdict.COMMITTED
            second = await begun(keeper)
            refuse = cast.fake.cluster.control(ApiKey.PRODUCE, _lose)
            view = await decided(keeper, second, FIRST)
            cast.fake.cluster.controls.remove(refuse)
            assert view is not None
            assert keeper.claim is None
            assert not keeper.holds(view)

    async def test_an_announcement_says_whether_it_is_surely_there(self) -> None:
        async with scene() as (cast, a):
            keeper = await claimed(a)
            producer = await keeper.take_epoch()
            assert keeper.claim is not None
            body = TransactionPartitions(keeper.claim.nonce, *producer)
            cast.fake.cluster.control(ApiKey.PRODUCE, _lose)
            assert not await keeper.announce(body)
            assert keeper.claim is None

    async def test_an_append_that_is_cancelled_ends_the_claim(self) -> None:
        async with scene() as (cast, a):
            keeper = await claimed(a)
            producer = await keeper.take_epoch()
            assert keeper.claim is not None
            body = TransactionPartitions(keeper.claim.nonce, *producer)
            with trio.CancelScope() as scope:

                async def hang(_: Call) -> None:
                    scope.cancel()
                    await trio.sleep_forever()

                cast.fake.cluster.control(ApiKey.PRODUCE, hang)
                await keeper.announce(body)
            assert scope.cancelled_caught
            assert keeper.claim is None

    async def test_a_log_that_is_not_understood_is_not_decided_by(self, monkeypatch: pytest.MonkeyPatch) -> None:
        async with scene() as (_, a):
            keeper = await claimed(a)
            monkeypatch.setattr(a.transactions.log, "is_foreign", lambda _: True)
            with pytest.raises(TxnError, match="COORDINATOR_NOT_AVAILABLE"):
                await keeper.claim_again()
            assert keeper.claim is None

    async def test_a_log_that_can_not_be_read_says_nothing(self) -> None:
        async with stage(delivery_timeout_ms=300) as cast:
            a = await cast.instance()
            keeper = await claimed(a)
            for part in cast.fake.cluster.topics[TOPIC].partitions:
                part.leader = -1
            with pytest.raises(TxnError, match="COORDINATOR_NOT_AVAILABLE") as raised:
                await keeper.read_to_end()
            assert raised.value.error_code is ErrorCode.COORDINATOR_NOT_AVAILABLE
            assert keeper.client != NOBODY


def _lose(_: Call) -> CloseAfter:
    return CloseAfter()
