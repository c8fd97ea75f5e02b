"""What the owner of a transactional id does with each request, and with what other instances append to the log."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
import trio.testing

from kproxy.codec._generated.transaction_claim import TransactionClaim
from kproxy.codec._generated.transaction_decision import TransactionDecision
from kproxy.codec._generated.transaction_partitions import TransactionPartitions
from kproxy.codec._generated.transaction_prepare import TransactionPrepare
from kproxy.codec.messages import ErrorCode
from kproxy.txn.claims import NOBODY
from kproxy.txn.ids import LAST_EPOCH, Producer
from kproxy.txn.prepared_parts import EVERYTHING, DecisionScope
from kproxy.txn.procedures.former import Former, SentBatch
from kproxy.txn.txn_error import TxnError
from kproxy.txn.verdict import Verdict
from kproxy.txn.view_values import ASKED, DOOMED, HAND
from tests.txn.procedures.memory_log import P0, P1
from tests.txn.procedures.owner_scene import TIMEOUT_MS, At, Held

P2 = ("t", 2)
GREATER = Producer(10**9, LAST_EPOCH)
BUMPS = pytest.mark.parametrize("bumps", [False, True], ids=["TV1", "TV2"])
NAMES = pytest.mark.parametrize("name", ["0", "z"])


def refused(error: str) -> Any:
    return pytest.raises(TxnError, match=error)


async def with_client(client: Producer) -> At:
    """An instance whose client has this identity."""
    at = At()
    at.owner.keeper.client, at.owner.keeper.timeout_ms = client, TIMEOUT_MS
    await at.owner.keeper.claim_again()
    return at


async def both(*asks: Callable[[], Awaitable[object]]) -> list[str]:
    """What requests that are sent one after another, before any is answered, receive."""
    found = [""] * len(asks)

    async def one(index: int) -> None:
        try:
            await asks[index]()
            found[index] = "success"
        except TxnError as error:
            found[index] = ErrorCode(error.error_code).name

    async with trio.open_nursery() as nursery:
        for index in range(len(asks)):
            nursery.start_soon(one, index)
            await trio.testing.wait_all_tasks_blocked()
    return found


class TestAnOwner:
    async def test_knows_when_it_was_asked_last(self, autojump_clock: trio.testing.MockClock) -> None:
        at = await At().init()
        asks: list[Callable[[], Awaitable[object]]] = [
            at.init,
            at.offsets,
            lambda: at.owner.decide(None, committed=False, also=EVERYTHING),
        ]
        for ask in asks:
            await trio.sleep(10)
            await ask()
            assert at.owner.used_at == trio.current_time()

    async def test_says_what_its_transactions_go_through(self) -> None:
        at = await At().init()
        await at.write()
        await at.end()
        await at.write(sequence=1)
        at.writer.failed = ErrorCode.INVALID_RECORD
        with refused("TRANSACTION_ABORTABLE"):
            await at.end()
        await at.end(committed=False)
        await at.write(sequence=2)
        await at.end(committed=False)
        assert at.traces.steps == ["commit asked", "data acknowledged", "commit asked", "abort asked"]
        assert at.traces.outcomes == [("committed", {P0}), ("failed", {P0}), ("client", {P0})]
        assert at.stats.aborts == {"failed": 1, "client": 1}

    async def test_is_elsewhere_as_soon_as_another_instance_continues_what_it_has_not_decided(self) -> None:
        a = await At().init()
        await a.write()
        a.desk.log.unheard, a.desk.log.is_silent = [TransactionDecision], True
        a.desk.log.lost = [TransactionDecision]
        with refused("COORDINATOR_NOT_AVAILABLE"):
            await a.end()
        a.desk.log.is_silent = False
        await a.other().adopt()
        assert not a.owner.is_elsewhere
        with refused("NOT_COORDINATOR"):
            await a.end()
        assert a.owner.is_elsewhere


class TestInitProducerId:
    async def test_begins_without_what_was_before(self) -> None:
        at = await At().init()
        at.connection = 9
        await at.offsets()
        await at.owner.give_up(at.client, "for a reason")
        with refused("TRANSACTION_ABORTABLE.*for a reason"):
            await at.offsets()
        await at.init()
        at.connection = 3
        await at.offsets()
        await at.end()

    async def test_is_that_of_this_instance_after_it_acted_for_another(self) -> None:
        a = await At().init()
        await a.offsets()
        b = a.other()
        await b.owner.decide(None, committed=False, also=EVERYTHING)
        await b.init()
        claim = (await b.view()).claim
        assert claim is not None
        assert claim.instance_id == "b"

    @pytest.mark.parametrize("client", [NOBODY, GREATER])
    async def test_that_another_instance_has_answered_gives_that_identity_without_what_was_before(
        self, client: Producer
    ) -> None:
        a = await At().init() if client == NOBODY else await with_client(client)
        a.connection, before = 9, a.client
        await a.owner.add_offsets(a.request, "g")
        b = a.other()
        given = await b.owner.initialize(TIMEOUT_MS, before, "test")
        assert given != before
        assert await a.owner.initialize(TIMEOUT_MS, before, "test") == given
        a.connection = 3
        await a.owner.add_offsets(a.request, "g")
        assert a.stats.open == 1

    @pytest.mark.parametrize("resumes", [False, True], ids=["next identity", "refused"])
    async def test_interrupts_a_request_that_waits_only_where_the_client_is_replaced(self, resumes: bool) -> None:
        at = await At().init()
        at.desk.groups.waits_for = held = Held()
        resumed = Producer(at.client.producer_id, at.client.epoch + 9) if resumes else NOBODY

        async def let_go() -> None:
            held.go.set()

        found = await both(at.offsets, lambda: at.init(resumed), let_go)
        expected = ["success", "PRODUCER_FENCED"] if resumes else ["TRANSACTION_ABORTABLE", "success"]
        assert found[:2] == expected


class TestTheFirstInitProducerIdOfARestartedInstance:
    async def test_that_is_refused_leaves_the_id_to_the_client_that_the_log_names(self) -> None:
        former = await At().init()
        at = former.other("a")
        with refused("PRODUCER_FENCED"):
            await at.init(Producer(former.client.producer_id, former.client.epoch + 9))
        assert at.owner.is_elsewhere
        async with at.owner._lock:
            assert not at.owner.is_elsewhere
        await at.init()
        assert not at.owner.is_elsewhere

    @pytest.mark.parametrize("committed", [False, True])
    async def test_has_its_turn_before_an_end_of_the_client_that_it_replaces(self, committed: bool) -> None:
        former = await At().init()
        at, claiming = former.other("a"), Held()

        async def let_go() -> None:
            claiming.go.set()

        with at.before_append(TransactionClaim, claiming):
            found = await both(at.init, lambda: at.end(committed=committed, client=former.client), let_go)
        assert found == ["success", "PRODUCER_FENCED", "success"]


class TestAnAbort:
    @pytest.mark.parametrize("by", ["client", "another"])
    async def test_gives_up_data_before_the_log_has_it(self, by: str) -> None:
        at = await At().init()
        await at.write()
        writer, seen = at.writer, list[bool]()

        async def look() -> None:
            seen.append(writer.is_abandoned)

        with at.before_append(TransactionDecision if by == "client" else TransactionClaim, look):
            await (at.end(committed=False) if by == "client" else at.owner.give_up(at.client, "for a reason"))
        assert seen == [True]

    async def test_makes_no_late_copy_a_new_batch(self) -> None:
        at = await At().init()
        await at.write()
        await at.end(committed=False)
        assert [row.error_code for row in await at.write()] == [ErrorCode.TRANSACTION_ABORTABLE]
        assert at.writer.accepted == []
        await at.write(sequence=1)
        assert at.writer.accepted == [P0]

    async def test_of_a_transaction_of_another_instance_gives_its_sequences_back(self) -> None:
        a = await At().init()
        await a.write()
        b = a.other()
        b.former = Former({}, {P0: 1}, {P0: [SentBatch(0, 1, 5)]})
        await b.adopt()
        await b.write()
        assert b.writer.accepted == []
        await b.end(committed=False)
        await b.write()
        assert b.writer.accepted == [P0]

    async def test_of_nothing_is_a_success_also_where_the_log_has_lost_the_id(self) -> None:
        at = await At().init()
        at.desk.log.view = None
        assert await at.end(committed=False) == at.client

    async def test_of_nothing_is_refused_where_another_instance_has_the_id(self) -> None:
        a = await At().init()
        b = await a.other().adopt()
        await b.offsets()
        with refused("NOT_COORDINATOR"):
            await a.end(committed=False)

    @pytest.mark.parametrize("committed", [False, True])
    async def test_of_nothing_is_refused_after_a_commit_that_another_instance_made(self, committed: bool) -> None:
        a = await At().init()
        await a.offsets()
        await a.end(committed=committed)
        b = await a.other().adopt()
        with refused("INVALID_TXN_STATE"):
            await b.end(committed=not committed)
        await b.end(committed=committed)

    async def test_that_is_refused_interrupts_no_request(self) -> None:
        at = await At().init()
        at.desk.groups.waits_for = held = Held()

        async def let_go() -> None:
            held.go.set()

        former = Producer(at.client.producer_id, at.client.epoch - 1)
        found = await both(at.offsets, lambda: at.end(committed=False, client=former), let_go)
        assert found == ["success", "PRODUCER_FENCED", "success"]

    async def test_of_nothing_has_no_batch_id(self) -> None:
        at = await At().init()
        records = len(at.desk.log.records)
        await at.end(committed=False, also=DecisionScope("batch"))
        assert len(at.desk.log.records) == records

    async def test_of_nothing_is_recorded_after_one_that_the_client_may_not_know(self) -> None:
        at = await At().init()
        await at.offsets()
        await at.end(committed=False, also=DecisionScope(reason=DOOMED))
        for committed in (True, False):
            if committed:
                with refused("INVALID_TXN_STATE"):
                    await at.end()
            else:
                await at.end(committed=False)
            last = (await at.view()).last
            assert last is not None
            assert last.reason == (DOOMED if committed else ASKED)

    @pytest.mark.parametrize("client", [NOBODY, GREATER])
    async def test_after_which_another_producer_has_the_id_is_no_success(self, client: Producer) -> None:
        a = await At().init() if client == NOBODY else await with_client(client)
        await a.offsets()
        b = a.other()
        with a.before_append(TransactionDecision, b.init), refused("PRODUCER_FENCED"):
            await a.end(committed=False)

    async def test_gives_the_next_identity_also_where_another_instance_has_begun_again(self) -> None:
        a = await At().init()
        before = a.client
        await a.offsets()
        b = await a.other().adopt()
        with refused("TRANSACTION_ABORTABLE"):
            await b.offsets()
        await b.end(committed=False)
        await b.offsets()
        assert await a.end(committed=False, bumps=True) == Producer(before.producer_id, before.epoch + 1)

    async def test_that_the_log_never_takes_is_given_up(self) -> None:
        at = await At().init()
        await at.offsets()
        at.desk.log.lost = [TransactionDecision]
        with refused("CONCURRENT_TRANSACTIONS"):
            await at.end(committed=False, bumps=True)

    async def test_that_comes_late_is_answered_again(self) -> None:
        """It dooms nothing that its client has begun since, and excuses nothing that is lost since."""
        at = await At().init()
        before = at.client
        await at.offsets()
        at.desk.log.unheard, at.desk.log.is_silent = [TransactionDecision], True
        with refused("COORDINATOR_NOT_AVAILABLE"):
            await at.end(committed=False, bumps=True)
        at.desk.log.unheard, at.desk.log.is_silent = [], False
        given = Producer(before.producer_id, before.epoch + 1)
        assert await at.end(committed=False, bumps=True, client=before) == given
        await at.write()
        at.writer.failed = ErrorCode.INVALID_RECORD
        await at.write(sequence=1)
        assert await at.end(committed=False, bumps=True, client=before) == given
        with refused("TRANSACTION_ABORTABLE"):
            await at.offsets()

    async def test_that_is_refused_excuses_nothing_that_is_lost(self) -> None:
        at = await At().init()
        at.connection = 2
        await at.owner.add_offsets(at.request, "g")
        await at.owner.give_up(at.client, "for a reason")
        at.connection = 1
        with refused("NETWORK_EXCEPTION"):
            await at.end(committed=False)
        at.connection = 2
        with refused("TRANSACTION_ABORTABLE"):
            await at.offsets()

    async def test_is_refused_where_prepared_parts_still_are_after_it(self) -> None:
        at = await At().init()
        await at.offsets()
        await at.owner.prepare(at.request)
        at.desk.log.lost = [TransactionDecision]
        with refused("CONCURRENT_TRANSACTIONS.*what was prepared still is"):
            await at.end(committed=False, also=EVERYTHING)


class TestACommit:
    async def test_that_is_late_does_not_excuse_what_is_lost(self) -> None:
        at = await At().init()
        before = at.client
        await at.offsets()
        given = await at.end(bumps=True)
        at.desk.log.lost = [TransactionPartitions]
        with refused("TRANSACTION_ABORTABLE"):
            await at.write()
        assert await at.end(bumps=True, client=before) == given
        with refused("TRANSACTION_ABORTABLE"):
            await at.offsets()

    async def test_that_is_lost_says_so(self) -> None:
        at = await At().init()
        await at.offsets()
        at.desk.log.lost = [TransactionDecision]
        with refused("TRANSACTION_ABORTABLE.*another claim aborted the transaction"):
            await at.end()
        assert at.stats.aborts == {"failed": 1}

    @pytest.mark.parametrize("is_open", [False, True])
    async def test_covers_what_was_prepared_under_its_batch_id(self, is_open: bool) -> None:
        at = await At().init()
        await at.offsets()
        part = (await at.view()).ongoing
        assert part is not None
        await at.owner.prepare(at.request)
        if is_open:
            await at.offsets("h")
        await at.end(also=DecisionScope("batch", every=True))
        view = await at.view()
        assert view.verdict(part.producer) is Verdict.COMMITTED
        assert view.has_committed("batch")
        await at.end(committed=False, bumps=True, also=DecisionScope("aborted", every=True))
        assert not (await at.view()).has_committed("aborted")

    async def test_that_is_impossible_leaves_what_was_prepared(self) -> None:
        at = await At().init()
        await at.offsets()
        await at.owner.prepare(at.request)
        await at.write()
        at.writer.failed = ErrorCode.INVALID_RECORD
        with refused("TRANSACTION_ABORTABLE.*not written"):
            await at.end(also=EVERYTHING)
        assert len((await at.view()).prepared) == 1

    async def test_after_the_last_epoch_gives_a_producer_id_of_any_size(self) -> None:
        at = await with_client(GREATER)
        await at.offsets()
        given = await at.end(bumps=True)
        assert given.epoch == 0
        assert given.producer_id < GREATER.producer_id
        assert at.stats.commits == 1
        assert at.stats.aborts == {}
        assert len([body for body in at.desk.log.records if isinstance(body, TransactionDecision)]) == 1

    @BUMPS
    async def test_of_nothing_is_in_the_log_only_where_it_gives_an_identity(self, bumps: bool) -> None:
        at = await At().init()
        await at.end(bumps=bumps)
        decisions = [body for body in at.desk.log.records if isinstance(body, TransactionDecision)]
        assert len(decisions) == bumps


class TestAnotherInstanceHasTheId:
    @pytest.mark.parametrize("grows", ["by data", "by a partition"])
    async def test_and_continues_what_is_open(self, grows: str) -> None:
        a = await At().init()
        await a.write()
        writer = a.writer
        b = await a.other().adopt()
        assert b.stats.resumed == 1
        await a.view()
        with refused("NOT_COORDINATOR"):
            await (a.write(sequence=1) if grows == "by data" else a.owner.join(a.request, [P1]))
        assert (a.owner.transaction, writer.is_abandoned) == (None, True)
        assert (a.stats.open, a.stats.aborts) == (0, {})
        assert a.owner.is_elsewhere
        await b.offsets()
        await b.end()

    async def test_and_a_commit_that_waits_is_ended_by_an_abort(self, autojump_clock: trio.testing.MockClock) -> None:
        a = await At().init()
        await a.write()
        a.writer.flushing = Held()

        async def continue_at_another() -> None:
            await a.other().adopt()
            await a.view()

        with trio.fail_after(60):
            found = await both(a.end, continue_at_another, lambda: a.end(committed=False))
        assert found == ["NOT_COORDINATOR", "success", "NOT_COORDINATOR"]
        assert a.owner.is_elsewhere

    async def test_and_has_aborted_what_is_open(self) -> None:
        a = await At().init()
        await a.offsets()
        await a.other().adopt()
        await a.view()
        with refused("NOT_COORDINATOR"):
            await a.offsets()
        assert (a.stats.open, a.stats.aborts) == (0, {"fenced": 1})
        assert a.owner.is_elsewhere

    async def test_only_to_end_what_took_too_long_which_the_client_hears_here(self) -> None:
        at = await At().init()
        await at.offsets()
        await at.end_elsewhere()
        await at.view()
        with refused("TRANSACTION_ABORTABLE"):
            await at.offsets()
        await at.end(committed=False)
        await at.offsets()

    async def test_and_a_request_that_waits_claims_nothing_back(self) -> None:
        """An abort has seen it meanwhile."""
        a = await At().init()
        await a.write()
        appending = Held()

        async def continue_at_another() -> None:
            await b.adopt()
            await a.view()

        async def let_go() -> None:
            appending.go.set()

        b, append = a.other(), a.desk.log.append_unread

        async def stopped(entry: object, *place: int) -> int:
            if isinstance(getattr(entry, "body", None), TransactionPartitions):
                await appending()
                a.desk.log.lost = [TransactionPartitions]
            return await append(entry, *place)  # type: ignore[arg-type]

        a.desk.log.append_unread = stopped  # type: ignore[method-assign]
        found = await both(lambda: a.write(P1), continue_at_another, lambda: a.end(committed=False), let_go)
        assert found == ["NOT_COORDINATOR", "success", "NOT_COORDINATOR", "success"]
        await b.offsets()
        await b.end()

    async def test_which_a_repeated_request_to_add_partitions_finds_out(self) -> None:
        a = await At().init()
        await a.owner.join(a.request, [P0])
        a.desk.log.is_silent = True
        await a.owner.join(a.request, [P1])
        with refused("COORDINATOR_NOT_AVAILABLE"):
            await a.owner.join(a.request, [P1, P2])
        a.desk.log.is_silent = False
        await a.owner.join(a.request, [P1, P2])
        b = a.other()
        await b.adopt()
        await b.offsets()
        with refused("NOT_COORDINATOR"):
            await a.owner.join(a.request, [P0])

    async def test_and_lags_so_it_is_fenced_where_partitions_are_added(self) -> None:
        a = await At().init()
        b = await a.other().adopt()
        await b.owner.join(b.request, [P0, P1])
        assert b.fenced == [P0, P1]


@NAMES
class TestAnotherInstanceHasBegunTheTransaction:
    """Its records came before the claim of this instance, which has adopted the id."""

    async def adopted(self, name: str, here: str = "m") -> At:
        """The last transaction was committed."""
        a = await At(name).init()
        await a.offsets()
        await a.end()
        b = await a.other(here).adopt()
        await a.offsets()
        return b

    async def test_so_the_client_has_to_abort_it(self, name: str) -> None:
        at = await self.adopted(name)
        with refused("TRANSACTION_ABORTABLE.*another instance began the transaction"):
            await at.offsets()
        await at.end(committed=False)
        await at.offsets()
        await at.end()
        assert (at.stats.commits, at.stats.open) == (1, 0)

    async def test_so_an_abort_is_a_success(self, name: str) -> None:
        at = await self.adopted(name)
        before = at.client
        assert (await at.end(committed=False, bumps=True)).epoch == before.epoch + 1
        await at.offsets()

    async def test_so_a_commit_is_refused(self, name: str) -> None:
        at = await self.adopted(name)
        with refused("TRANSACTION_ABORTABLE"):
            await at.end(bumps=True)
        with refused("TRANSACTION_ABORTABLE"):
            await at.end(bumps=True)

    async def test_which_is_not_known_where_the_log_is_silent(self, name: str) -> None:
        at = await self.adopted(name)
        at.miss_next_read()
        with refused("COORDINATOR_NOT_AVAILABLE"):
            await at.end(committed=False, bumps=True)

    async def test_but_what_its_former_self_had_under_way_is_no_loss(self, name: str) -> None:
        """It was not acknowledged."""
        at = await self.adopted(name, name)
        await at.offsets()
        await at.end()
        assert at.stats.commits == 1


class TestGivingUp:
    async def test_tells_the_client_why_also_where_the_log_has_lost_the_id(self) -> None:
        at = await At().init()
        await at.offsets()
        at.desk.log.view = None
        await at.owner.give_up(at.client, "for a reason")
        with refused("TRANSACTION_ABORTABLE.*for a reason"):
            await at.offsets()
        await at.end(committed=False)
        at.desk.log.view = None
        await at.offsets()
        await at.end()

    @pytest.mark.parametrize("client", [NOBODY, GREATER])
    async def test_leaves_the_transaction_of_another_producer(self, client: Producer) -> None:
        a = await At().init() if client == NOBODY else await with_client(client)
        await a.offsets()
        b = await a.other().init()
        await b.offsets()
        await a.view()
        await a.owner.give_up(a.client, "for a reason")
        assert (a.stats.open, a.stats.aborts, a.stats.fenced) == (0, {"fenced": 1}, 1)
        await b.end()

    async def test_fails_while_the_log_is_silent(self) -> None:
        at = await At().init()
        await at.offsets()
        at.desk.log.is_silent = True
        with refused("COORDINATOR_NOT_AVAILABLE"):
            await at.owner.give_up(at.client, "for a reason")
        assert at.stats.open == 1
        at.desk.log.is_silent = False
        await at.owner.give_up(at.client, "for a reason")
        assert at.stats.open == 0

    async def test_leaves_the_transaction_to_the_instance_that_continues_it(self) -> None:
        a = await At().init()
        await a.write()
        b = await a.other().adopt()
        with refused("NOT_COORDINATOR"):
            await a.owner.give_up(a.client, "for a reason")
        assert (a.stats.open, a.stats.aborts) == (0, {})
        await b.end()

    async def test_claims_nothing_where_another_instance_has_done_it(self) -> None:
        at = await At().init()
        await at.offsets()
        await at.end_elsewhere()
        await at.view()
        await at.owner.give_up(at.client, "for a reason")
        assert at.stats.claims == {"won": 1}
        await at.end(committed=False)
        assert at.stats.claims == {"won": 2}, "a former instance may have begun"

    async def test_is_only_for_the_client_that_has_a_transaction_open(self) -> None:
        at = await At().init()
        at.desk.groups.waits_for = held = Held()

        async def let_go() -> None:
            held.go.set()

        client = at.client
        assert await both(at.offsets, lambda: at.owner.give_up(client, "none is open"), let_go) == ["success"] * 3
        for epoch in (client.epoch - 1, client.epoch + 1):
            await at.owner.give_up(Producer(client.producer_id, epoch), "another client")
        assert not at.writer.is_abandoned
        assert at.stats.open == 1

    @pytest.mark.parametrize("client", [NOBODY, GREATER])
    async def test_spares_a_client_that_comes_meanwhile(self, client: Producer) -> None:
        at = await At().init() if client == NOBODY else await with_client(client)
        before, claiming = at.client, Held()
        following = Producer(before.producer_id, before.epoch + 1)
        if client == GREATER:
            following = await (await with_client(client)).owner.initialize(TIMEOUT_MS, NOBODY, "test")
        await at.offsets()
        request = at.request._replace(client=following)

        async def let_go() -> None:
            claiming.go.set()

        with at.before_append(TransactionClaim, claiming):
            found = await both(
                at.init,
                lambda: at.owner.add_offsets(request, "g"),
                lambda: at.owner.give_up(before, "for a reason"),
                let_go,
            )
        assert found == ["success"] * 4
        assert (at.client, at.stats.open) == (following, 1)

    async def test_is_refused_while_a_decision_is_appended(self) -> None:
        at = await At().init()
        await at.offsets()
        appending = Held()

        async def let_go() -> None:
            appending.go.set()

        with at.before_append(TransactionDecision, appending):
            found = await both(
                at.end,
                lambda: at.owner.give_up(at.client, "for a reason"),
                lambda: at.owner.decide(None, committed=False, also=EVERYTHING),
                lambda: at.owner.decide(None, committed=True, also=EVERYTHING),
                at.init,
                lambda: at.end(committed=False),
                at.end,
                at.offsets,
                let_go,
            )
        assert found == ["success", *["CONCURRENT_TRANSACTIONS"] * 7, "success"]


class TestTime:
    async def test_a_transaction_is_overdue_after_its_time_out(self) -> None:
        at = await At().init()
        assert not at.owner.is_overdue(trio.current_time() + 1000)
        await at.offsets()
        assert at.owner.transaction is not None
        at.owner.transaction.began_at = began = 1000.0
        assert not at.owner.is_overdue(began + TIMEOUT_MS / 1000)
        assert at.owner.is_overdue(began + TIMEOUT_MS / 1000 + 0.001)

    async def test_only_what_is_overdue_is_aborted(self, autojump_clock: trio.testing.MockClock) -> None:
        at = await At().init()
        await at.offsets()
        at.desk.groups.waits_for = held = Held()

        async def let_go() -> None:
            held.go.set()

        assert await both(at.offsets, at.owner.time_out, let_go) == ["success"] * 3
        at.desk.groups.waits_for = None
        await trio.sleep(TIMEOUT_MS / 1000 + 1)
        claiming, following = Held(), Producer(at.client.producer_id, at.client.epoch + 1)
        request = at.request._replace(client=following)

        async def claim() -> None:
            claiming.go.set()

        with at.before_append(TransactionClaim, claiming):
            found = await both(at.init, lambda: at.owner.add_offsets(request, "g"), at.owner.time_out, claim)
        assert found == ["success"] * 4
        await at.offsets()
        await trio.sleep(TIMEOUT_MS / 1000 + 1)
        await at.owner.time_out()
        with refused("TRANSACTION_ABORTABLE.*longer than its 60000 ms"):
            await at.offsets()


class TestWhatATransactionTakes:
    async def test_no_data_while_the_writer_has_no_room(self) -> None:
        at = await At().init()
        await at.write()
        writer, accepted = at.writer, list[str]()
        writer.filled = Held()

        async def look() -> None:
            assert (accepted, writer.accepted) == ([], [P0])
            writer.filled.go.set()

        assert await both(lambda: at.write(P0, 1, accepted=accepted), look) == ["success"] * 2
        assert (accepted, writer.accepted) == (["accepted"], [P0, P0])

    async def test_what_waits_for_room_is_refused_by_an_abort(self) -> None:
        at = await At().init()
        await at.write()
        at.writer.filled, rows = Held(), list[int]()

        async def write() -> None:
            rows.extend(row.error_code for row in await at.write(P0, 1))

        assert await both(write, lambda: at.end(committed=False)) == ["success"] * 2
        assert rows == [ErrorCode.TRANSACTION_ABORTABLE]

    async def test_no_data_of_partitions_that_were_not_added(self) -> None:
        at = await At().init()
        await at.owner.join(at.request, [P0])
        with refused("INVALID_TXN_STATE"):
            await at.write(P1, implicit=False)
        await at.write(P0, implicit=False)

    async def test_what_was_added_at_a_former_instance_is_lost_once(self) -> None:
        a = await At().init()
        b = await a.other().adopt()
        with refused("TRANSACTION_ABORTABLE"):
            await b.write(implicit=False)
        await b.end(committed=False)
        with refused("INVALID_TXN_STATE"):
            await b.write(implicit=False)

    async def test_nor_does_a_continued_transaction_know_what_was_added_to_it(self) -> None:
        a = await At().init()
        await a.write()
        b = await a.other().adopt()
        for _ in range(2):
            with refused("TRANSACTION_ABORTABLE.*kproxy was restarted"):
                await b.write(P1, implicit=False)

    async def test_also_where_an_operator_decides_before_its_client_is_heard(self) -> None:
        a = await At().init()
        await a.offsets()
        await a.owner.prepare(a.request)
        for again in (a.other("a"), a.other("b")):
            await again.owner.decide(None, committed=True, also=EVERYTHING)
            with refused("CONCURRENT_TRANSACTIONS"):
                await again.write(implicit=False)
            assert again.owner.is_elsewhere, "what the client has open is in the log"
            adopted = await again.other(again.desk.tools.instance_id).adopt()
            with refused("TRANSACTION_ABORTABLE"):
                await adopted.write(implicit=False)
            await adopted.end(committed=False)

    async def test_no_offsets_of_a_group_that_was_not_added_or_of_another_member(self) -> None:
        at = await At().init()
        with refused("INVALID_TXN_STATE"):
            await at.offsets(implicit=False)
        await at.owner.add_offsets(at.request, "g")
        at.desk.groups.errors["g"] = ErrorCode.UNKNOWN_MEMBER_ID
        with refused("UNKNOWN_MEMBER_ID"):
            await at.offsets(implicit=False)
        at.desk.groups.errors.clear()
        await at.offsets(implicit=False, generation=3)
        with refused("ILLEGAL_GENERATION"):
            await at.offsets(implicit=False, generation=4)
        await at.end()

    @BUMPS
    async def test_offsets_that_come_over_two_connections_doom_the_first_protocol_alone(self, bumps: bool) -> None:
        at = await At().init()
        if not bumps:
            await at.owner.add_offsets(at.request, "g")
        await at.offsets(implicit=bumps)
        at.connection = 2
        if bumps:
            await at.offsets(partition=1)
        else:
            with refused("TRANSACTION_ABORTABLE.*two connections"):
                await at.offsets(partition=1, implicit=False)

    @BUMPS
    async def test_offsets_of_a_group_of_a_continued_transaction_doom_the_first_protocol_alone(
        self, bumps: bool
    ) -> None:
        a = await At().init()
        await a.write()
        await a.offsets()
        b = await a.other().adopt()
        if bumps:
            await b.offsets()
            return
        for group in "gh":
            await b.owner.add_offsets(b.request, group)
        await b.offsets("h", implicit=False)
        for _ in range(2):
            with refused("TRANSACTION_ABORTABLE.*kproxy was restarted"):
                await b.offsets(implicit=False)


class TestPreparing:
    async def test_leaves_it_to_a_decision_and_another_may_begin(self) -> None:
        at = await At().init()
        await at.write()
        await at.owner.prepare(at.request)
        assert at.stats.open == 0
        assert at.traces.outcomes == [("prepared", {P0})]
        at.connection = 2
        await at.offsets()
        assert at.stats.open == 1
        assert at.owner.parties() == {2}
        await at.owner.prepare(at.request)
        await at.init()
        assert at.stats.aborts == {}

    @pytest.mark.parametrize(
        ("why", "message"),
        [
            ("continued", "another instance began it"),
            ("unwritten", "a batch of the transaction was not written"),
            ("lost", "the log did not take it"),
        ],
    )
    async def test_or_it_is_aborted(self, why: str, message: str) -> None:
        at = await At().init()
        await at.write()
        if why == "continued":
            at = await at.other().adopt()
        if why == "unwritten":
            at.writer.failed = ErrorCode.INVALID_RECORD
        if why == "lost":
            at.desk.log.lost = [TransactionPrepare]
        with refused(f"TRANSACTION_ABORTABLE.*{message}"):
            await at.owner.prepare(at.request)
        assert not any(isinstance(body, TransactionPrepare) for body in at.desk.log.records)
        assert at.stats.open == 0


class TestADecisionByHand:
    async def test_of_an_id_that_the_log_does_not_know_is_refused(self) -> None:
        with refused("TRANSACTIONAL_ID_NOT_FOUND"):
            await At().owner.decide(None, committed=False, also=EVERYTHING)

    async def test_names_the_client_that_has_the_id(self) -> None:
        at = await At().init()
        await at.offsets()
        at.desk.groups.waits_for = held = Held()
        other = Producer(at.client.producer_id, at.client.epoch + 1)

        async def let_go() -> None:
            held.go.set()

        asks = [
            at.offsets,
            lambda: at.owner.decide(other, committed=False, also=EVERYTHING),
            lambda: at.owner.decide(at.client, committed=True, also=EVERYTHING),
            let_go,
        ]
        assert await both(*asks) == ["success", "PRODUCER_FENCED", "CONCURRENT_TRANSACTIONS", "success"]
        at.desk.groups.waits_for = None
        await at.end()

    @pytest.mark.parametrize("is_named", [False, True])
    async def test_to_abort_interrupts_a_commit_that_waits(self, is_named: bool) -> None:
        at = await At().init()
        await at.write()
        at.writer.flushing = Held()
        client = at.client if is_named else None
        found = await both(at.end, lambda: at.owner.decide(client, committed=False, also=EVERYTHING))
        assert found == ["TRANSACTION_ABORTABLE", "success"]

    async def test_to_commit_is_refused_while_another_waits(self) -> None:
        at = await At().init()
        await at.write()
        at.writer.flushing = held = Held()

        async def let_go() -> None:
            held.go.set()

        found = await both(at.end, lambda: at.owner.decide(None, committed=True, also=EVERYTHING), let_go)
        assert found == ["success", "CONCURRENT_TRANSACTIONS", "success"]

    async def test_to_commit_finds_out_first_what_became_of_the_last(self) -> None:
        at = await At().init()
        await at.offsets()
        at.desk.log.unheard, at.desk.log.is_silent = [TransactionDecision], True
        with refused("COORDINATOR_NOT_AVAILABLE"):
            await at.end()
        with refused("COORDINATOR_NOT_AVAILABLE"):
            await at.owner.decide(None, committed=True, also=EVERYTHING)
        at.desk.log.unheard, at.desk.log.is_silent = [], False
        await at.owner.decide(None, committed=True, also=DecisionScope("batch", every=True))
        assert (await at.view()).has_committed("batch")
        await at.offsets()

    async def test_is_recorded_once_by_its_batch_id(self) -> None:
        at = await At().init()
        await at.offsets()
        await at.owner.prepare(at.request)
        scope, records = DecisionScope("batch", every=True), list[int]()
        for _ in range(2):
            await at.owner.decide(None, committed=True, also=scope)
            records.append(len(at.desk.log.records))
        assert (await at.view()).has_committed("batch")
        assert records[0] == records[1]
        await at.offsets()
        await at.owner.decide(None, committed=False, also=scope)
        assert at.stats.open == 0
        await at.end(committed=False)
        await at.offsets()
        await at.owner.decide(None, committed=False, also=DecisionScope("aborted"))
        assert not (await at.view()).has_committed("aborted")

    async def test_of_what_others_have_prepared_is_not_interrupted_by_a_new_producer(self) -> None:
        """Otherwise the log says that data of the owner's are lost, and each later commit is refused."""
        a = await At().init()
        await a.offsets()
        await a.owner.prepare(a.request)
        at, claiming = a.other("c"), Held()

        async def let_go() -> None:
            claiming.go.set()

        scope = DecisionScope("batch", every=True)
        with at.before_append(TransactionClaim, claiming):
            found = await both(lambda: at.owner.decide(None, committed=True, also=scope), at.init, let_go)
        assert found == ["success"] * 3
        assert (await at.view()).has_committed("batch")
        reasons = [body.reason for body in at.desk.log.records if isinstance(body, TransactionDecision)]
        assert reasons == [""]

    async def test_for_another_client_leaves_the_id_also_while_it_is_being_decided(self) -> None:
        a = await At().init()
        await a.write()
        await a.other().adopt()
        with refused("NOT_COORDINATOR"):
            await a.end(committed=False)
        await a.other("c").init()
        await a.owner.decide(None, committed=False, also=EVERYTHING)
        async with a.owner._lock:
            assert a.owner.is_elsewhere

    @pytest.mark.parametrize("client", [NOBODY, GREATER])
    async def test_for_another_client_than_the_one_here_leaves_the_id_to_what_the_log_says(
        self, client: Producer
    ) -> None:
        a = await At().init() if client == NOBODY else await with_client(client)
        b = await a.other().init()
        await b.offsets()
        assert not a.owner.is_elsewhere
        await a.owner.decide(None, committed=False, also=EVERYTHING)
        assert a.client == b.client
        assert a.owner.is_elsewhere

    async def test_is_known_after_a_repeated_init_producer_id(self) -> None:
        former = await At().init()
        before = former.client
        await former.init(before)
        await former.offsets()
        at = former.other("a")
        await at.owner.decide(None, committed=False, also=EVERYTHING)
        assert at.owner.is_elsewhere
        await at.init(before)
        assert at.client == former.client
        assert not at.owner.is_elsewhere
        with refused("TRANSACTION_ABORTABLE"):
            await at.offsets()

    async def test_to_abort_nothing_is_not_recorded(self) -> None:
        at = await At().init()
        records = len(at.desk.log.records)
        await at.owner.decide(None, committed=False, also=EVERYTHING)
        assert len(at.desk.log.records) == records
        await at.offsets()

    async def test_aborts_what_the_log_does_not_know_yet(self) -> None:
        at = await At().init()
        await at.owner.join(at.request, [P0])
        await at.owner.decide(None, committed=False, also=EVERYTHING)
        with refused("TRANSACTION_ABORTABLE.*by hand"):
            await at.offsets()
        last = (await at.view()).last
        assert last is not None
        assert last.reason == HAND

    async def test_is_repeated_after_a_claim_that_came_before_it(self) -> None:
        at = await At().init()
        await at.offsets()
        await at.owner.prepare(at.request)
        acting = at.other("c").desk

        async def claim() -> None:
            acting.keeper.serve(await acting.read())
            await acting.keeper.claim_again()

        for committed in (True, False):
            with at.before_append(TransactionDecision, claim):
                await at.owner.decide(None, committed=committed, also=EVERYTHING)
            assert (await at.view()).prepared == {}
            await at.offsets()
            await at.owner.prepare(at.request)

    async def test_is_given_up_where_the_log_never_takes_it(self) -> None:
        at = await At().init()
        await at.offsets()
        await at.owner.prepare(at.request)
        at.desk.log.lost = [TransactionDecision]
        for committed in (True, False):
            with refused("CONCURRENT_TRANSACTIONS.*others claim"):
                await at.owner.decide(None, committed=committed, also=EVERYTHING)
        assert len((await at.view()).prepared) == 1

    async def test_is_not_known_while_the_log_is_silent(self) -> None:
        at = await At().init()
        await at.offsets()
        await at.owner.prepare(at.request)

        async def miss() -> None:
            at.desk.log.unheard = [TransactionDecision]
            at.miss_next_read()

        with at.before_append(TransactionDecision, miss), refused("COORDINATOR_NOT_AVAILABLE"):
            await at.owner.decide(None, committed=True, also=EVERYTHING)

    async def test_dooms_what_another_claim_has_aborted(self) -> None:
        at = await At().init()
        await at.offsets()
        await at.end_elsewhere()
        await at.owner.decide(None, committed=False, also=EVERYTHING)
        assert at.stats.aborts == {"failed": 1}
        with refused("TRANSACTION_ABORTABLE"):
            await at.offsets()
