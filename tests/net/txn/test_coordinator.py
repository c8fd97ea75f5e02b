"""The coordinator as its clients find it: one instance, several, and ones that are killed on the way."""

from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing

from kproxy.codec.messages import ApiKey, ErrorCode
from kproxy.net.txn.coordinator import Coordinator
from kproxy.net.txn.jobs import Jobs
from kproxy.net.txn.log_topic import TOPIC
from kproxy.proxy.coordinator_rules import Home, HomeRule
from kproxy.proxy.transaction_stats import TransactionStats
from kproxy.testing.fake_broker import Call, Close, CloseAfter
from kproxy.txn.ids import Producer
from kproxy.txn.procedures import log_owners
from kproxy.txn.procedures.broker_owners import BrokerOwners
from kproxy.txn.procedures.owner_policy import CLIENT, MANAGED, OwnerPolicy
from kproxy.txn.requests import TxnRequest
from kproxy.txn.states import TransactionState
from kproxy.txn.transactional_id import TransactionalId
from kproxy.txn.txn_error import TxnError
from tests.net.txn.instances import TIMEOUT_MS, Client, stage
from tests.net.txn.log_harness import configured

P0, P1, P2 = ("t", 0), ("t", 1), ("t", 2)


class TestOneClient:
    @pytest.mark.parametrize("bumps", [False, True], ids=["TV1", "TV2"])
    async def test_what_is_committed_is_seen_what_is_aborted_is_not(self, bumps: bool) -> None:
        async with stage() as cast:
            a, client = await cast.instance(), Client("id", bumps)
            await client.init(a)
            await client.write(a, "1", P0, P1)
            assert cast.visible(a.transactions.views) == []
            await client.end(a)
            assert cast.visible(a.transactions.views) == ["1"]
            assert cast.visible(a.transactions.views, partition=1) == ["1"]
            await client.write(a, "2", P0)
            await client.end(a, committed=False)
            await client.write(a, "3", P0)
            assert cast.visible(a.transactions.views) == ["1"]
            await client.end(a)
            assert cast.visible(a.transactions.views) == ["1", "3"]
            assert (a.stats.transactions.commits, a.stats.transactions.open) == (2, 0)

    @pytest.mark.parametrize("bumps", [False, True], ids=["TV1", "TV2"])
    async def test_an_empty_transaction_ends_well(self, bumps: bool) -> None:
        async with stage() as cast:
            a, client = await cast.instance(), Client("id", bumps)
            await client.init(a)
            for committed in (True, False, True):
                had = client.producer
                await client.end(a, committed=committed)
                assert (client.producer.epoch > had.epoch) is bumps
            await client.write(a, "1", P0)
            await client.end(a)
            assert cast.visible(a.transactions.views) == ["1"]

    async def test_two_records_of_the_log_for_each_transaction_and_a_claim_for_sixty_four(self) -> None:
        async with stage() as cast:
            a, client = await cast.instance(), Client("id")
            await client.init(a)
            for n in range(130):
                await client.write(a, str(n), P0, P1, P2)
                await client.end(a)
            assert cast.visible(a.transactions.views) == [str(n) for n in range(130)]
            appended = sum(len(cast.batches(TOPIC, index)) for index in range(4))
            assert appended == 2 * 130 + 3
            assert a.stats.transactions.claims == {"won": 3}

    async def test_kproxys_own_topics_and_compacted_ones_are_refused(self) -> None:
        async with stage() as cast:
            cast.fake.cluster.create_topic("compacted", 1, config={"cleanup.policy": "compact"})
            a, client = await cast.instance(), Client("id")
            await client.init(a)
            errors = await client.add(a, ("compacted", 0), (TOPIC, 0), P0)
            assert errors == {
                ("compacted", 0): ErrorCode.POLICY_VIOLATION,
                (TOPIC, 0): ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            }
            with pytest.raises(TxnError, match="INVALID_TXN_STATE"):
                await client.send(a, [client.batch("1", P0)])  # none of them was added
            tv2 = Client("tv2", bumps=True)
            await tv2.init(a)
            with pytest.raises(TxnError, match="POLICY_VIOLATION"):
                await tv2.send(a, [tv2.batch("1", ("compacted", 0))])

    async def test_the_timeout_has_bounds(self) -> None:
        async with stage() as cast:
            a = await cast.instance()
            for timeout_ms in (0, -1, 900_001):
                with pytest.raises(TxnError, match="INVALID_TRANSACTION_TIMEOUT"):
                    await Client("id").init(a, timeout_ms)
            with pytest.raises(TxnError, match="INVALID_REQUEST"):
                await Client("").init(a)

    async def test_what_takes_too_long_is_aborted_and_its_client_told(self) -> None:
        async with stage() as cast:
            a, client = await cast.instance(), Client("id")
            await client.init(a)
            await client.write(a, "1", P0)
            owner = a.transactions.coordinator.log.known("id")
            assert owner is not None
            owner.keeper.timeout_ms = 1
            with trio.fail_after(120):
                while owner.transaction is not None:  # noqa: ASYNC110 - time itself is waited for
                    await trio.sleep(0.05)
            owner.keeper.timeout_ms = TIMEOUT_MS
            with pytest.raises(TxnError, match="TRANSACTION_ABORTABLE"):
                await client.end(a)
            await client.abort_and_commit(a, "2", P0)
            assert cast.visible(a.transactions.views) == ["2"]


class TestFencing:
    @pytest.mark.parametrize("committed", [True, False], ids=["commit", "abort"])
    @pytest.mark.parametrize("bumps", [False, True], ids=["TV1", "TV2"])
    @pytest.mark.parametrize("elsewhere", [False, True], ids=["here", "elsewhere"])
    async def test_no_end_of_a_fenced_producer_is_a_success(
        self, elsewhere: bool, bumps: bool, committed: bool
    ) -> None:
        async with stage() as cast:
            a, old, new = await cast.instance("a"), Client("id", bumps), Client("id", bumps)
            b = await cast.instance("b") if elsewhere else a
            await old.init(a)
            await old.write(a, "old", P0)
            await new.init(b)
            for _ in range(2):  # after the first the transaction has ended, the producer is still fenced
                with pytest.raises(TxnError, match="PRODUCER_FENCED"):
                    await old.end(a, committed=committed)
            await new.write(b, "new", P0)
            await new.end(b)
            assert cast.visible(b.transactions.views) == ["new"]

    async def test_a_second_end_while_one_is_pending_gets_its_error(self) -> None:
        async with stage() as cast:
            a, client = await cast.instance(), Client("id")
            await client.init(a)
            await client.write(a, "1", P0)
            go = trio.Event()

            async def hold(call: Call) -> None:
                await go.wait()

            owner = a.transactions.coordinator.log.known("id")
            assert owner is not None
            async with trio.open_nursery() as nursery:
                cast.fake.cluster.control(ApiKey.PRODUCE, hold, times=1)
                nursery.start_soon(client.end, a)
                while owner.id.state is not TransactionState.PREPARE_COMMIT:  # noqa: ASYNC110 - nobody announces it
                    await trio.sleep(0.001)
                again = Client("id", connection=client.connection, producer=client.producer)
                for ask in (again.end(a), again.add(a, P1), again.init(a)):
                    with pytest.raises(TxnError, match="CONCURRENT_TRANSACTIONS"):
                        await ask
                go.set()
            assert cast.visible(a.transactions.views) == ["1"]


class TestInstances:
    async def test_the_last_to_ask_has_the_id_wherever_it_asked(self) -> None:
        async with stage(3) as cast:
            a, b = await cast.instance("a"), await cast.instance("b")
            old, new = Client("id"), Client("id")
            await old.init(a)
            await old.write(a, "old", P0)
            await new.init(b)
            await new.write(b, "new", P0, P1)
            with pytest.raises(TxnError, match=r"PRODUCER_FENCED|TRANSACTION_ABORTABLE"):
                await old.end(a)
            await new.end(b)
            for instance in (a, b):
                await instance.transactions.log.read_to_end("id")
                assert cast.visible(instance.transactions.views) == ["new"]

    async def test_others_are_sent_to_the_instance_that_has_the_id(self) -> None:
        async with stage() as cast:
            a, b, client = await cast.instance("a"), await cast.instance("b"), Client("id")
            await client.init(a)
            await client.write(a, "1", P0)
            with pytest.raises(TxnError, match="NOT_COORDINATOR"):
                await client.add(b, P1)
            await client.end(a)
            assert cast.visible(a.transactions.views) == ["1"]

    @pytest.mark.parametrize("bumps", [False, True], ids=["TV1", "TV2"])
    async def test_a_fenced_producer_is_refused_for_good_also_where_its_former_owner_was_restarted(
        self, bumps: bool
    ) -> None:
        """NOT_COORDINATOR would have it retry for ever: it finds the same instance again."""
        async with stage() as cast:
            a, b = await cast.instance("a"), await cast.instance("b")
            old, new = Client("id", bumps), Client("id", bumps)
            await old.init(a)
            await old.write(a, "old", P0)
            await new.init(b)
            await a.kill()
            for name in ("a", "c"):
                other = await cast.instance(name)
                with pytest.raises(TxnError, match="PRODUCER_FENCED"):
                    await old.end(other)
                with pytest.raises(TxnError, match="PRODUCER_FENCED"):
                    await old.send(other, [old.batch("zombie", P0)])
            await new.write(b, "new", P0)
            await new.end(b)
            assert cast.visible(b.transactions.views) == ["new"]

    @pytest.mark.parametrize("bumps", [False, True], ids=["TV1", "TV2"])
    async def test_a_restarted_instance_tells_what_the_log_says_of_an_end_whose_answer_was_lost(
        self, bumps: bool
    ) -> None:
        async with stage() as cast:
            a, client = await cast.instance("a"), Client("id", bumps)
            await client.init(a)
            await client.write(a, "1", P0)
            had = client.producer
            told = await client.end(a)
            await a.kill()
            again = await cast.instance("a")
            client.producer = had
            assert await client.end(again) == told
            with pytest.raises(TxnError, match=r"INVALID_TXN_STATE|PRODUCER_FENCED"):
                await Client("id", bumps, producer=had).end(again, committed=False)
            await client.write(again, "2", P0)
            await client.end(again)
            assert cast.visible(again.transactions.views) == ["1", "2"]

    @pytest.mark.parametrize("committed", [True, False])
    async def test_the_end_of_an_empty_transaction_is_repeated_at_a_restarted_instance(self, committed: bool) -> None:
        async with stage() as cast:
            a, client = await cast.instance("a"), Client("id", bumps=True)
            await client.init(a)
            had = client.producer
            told = await client.end(a, committed=committed)
            await a.kill()
            again = await cast.instance("a")
            client.producer = had
            assert await client.end(again, committed=committed) == told

    async def test_what_only_moved_offsets_when_the_instance_died_can_only_be_aborted(self) -> None:
        async with stage() as cast:
            a, client = await cast.instance("a"), Client("id")
            await client.init(a)
            await client.write(a, "1", P0)
            await client.end(a)
            await client.offsets(a, "g", 5)
            await a.kill()
            again = await cast.instance("a")
            with pytest.raises(TxnError, match="TRANSACTION_ABORTABLE"):
                await client.end(again)
            await client.abort_and_commit(again, "3", P0)
            assert cast.visible(again.transactions.views) == ["1", "3"]

    async def test_an_overdue_transaction_of_an_instance_that_has_ended_is_ended_by_another(self) -> None:
        async with stage() as cast:
            a, b, client = await cast.instance("a"), await cast.instance("b"), Client("id")
            await client.init(a, TIMEOUT_MS)
            await client.write(a, "1", P0)
            await a.kill()
            await b.transactions.log.read_to_end("id")
            view = b.transactions.views.of("id")
            assert view is not None
            assert b.transactions.views.bound(*P0) == 0
            b.transactions.coordinator.log.end_overdue(view)
            with trio.fail_after(120):
                while b.transactions.views.bound(*P0) is not None:  # noqa: ASYNC110 - the log is followed
                    await trio.sleep(0.01)
            again = await cast.instance("a")  # the id is still its own
            with pytest.raises(TxnError, match="TRANSACTION_ABORTABLE"):
                await client.end(again)
            await client.abort_and_commit(again, "2", P0)
            assert cast.visible(again.transactions.views) == ["2"]

    async def test_who_finds_late_that_another_ended_its_transaction_claims_nothing(self) -> None:
        async with stage() as cast:
            a, b, client = await cast.instance("a"), await cast.instance("b"), Client("id")
            await client.init(a)
            await client.write(a, "1", P0)
            view = await b.transactions.log.read_to_end("id")
            assert view is not None
            b.transactions.coordinator.log.end_overdue(view)
            owner = a.transactions.coordinator.log.known("id")
            assert owner is not None
            with trio.fail_after(120):
                while a.transactions.views.bound(*P0) is not None:  # noqa: ASYNC110 - the log is followed
                    await trio.sleep(0.01)
            assert owner.transaction is not None
            owner.transaction.began_at -= TIMEOUT_MS
            await owner.time_out()
            assert owner.transaction is None
            assert a.stats.transactions.claims == {"won": 1}
            with pytest.raises(TxnError, match="TRANSACTION_ABORTABLE"):
                await client.end(a)
            await client.abort_and_commit(a, "2", P0)
            assert cast.visible(a.transactions.views) == ["2"]


class TestTheLogFails:
    @pytest.mark.parametrize("fault", [Close(), CloseAfter()], ids=["before", "after"])
    @pytest.mark.parametrize("step", ["init", "add", "end"])
    async def test_a_connection_that_ends_at_any_append_costs_nothing(self, fault: object, step: str) -> None:
        async with stage() as cast:
            a, client = await cast.instance(), Client("id")

            def cut() -> None:
                def once(call: Call) -> object:
                    return fault if any(topic.name == TOPIC for topic in call.request.topic_data) else None

                cast.fake.cluster.control(ApiKey.PRODUCE, once, times=1)  # type: ignore[arg-type]

            if step == "init":
                cut()
            await client.init(a)
            if step == "add":
                cut()
            await client.write(a, "1", P0)
            if step == "end":
                cut()
            await client.end(a)
            assert cast.visible(a.transactions.views) == ["1"]

    async def test_a_topic_that_is_recreated_is_not_written_under_the_ends_of_the_old_one(self) -> None:
        async with stage() as cast:
            a, client = await cast.instance(), Client("id")
            await client.init(a)
            for n in range(3):
                await client.write(a, str(n), P0)
                await client.end(a)
            cast.fake.cluster.delete_topic("t")
            cast.fake.cluster.create_topic("t", 4)
            assert not await client.add(a, P0)
            (refused,) = await client.send(a, [client.batch("3", P0)])
            assert refused.error_code == ErrorCode.TRANSACTION_ABORTABLE
            with pytest.raises(TxnError, match="TRANSACTION_ABORTABLE: t was deleted and created again"):
                await client.end(a)
            await client.abort_and_commit(a, "4", P0)
            assert cast.visible(a.transactions.views) == ["4"]


class TestClocks:
    @pytest.mark.parametrize("hours", [-2, 2])
    async def test_no_clock_of_a_broker_makes_a_transaction_overdue(self, hours: int) -> None:
        async with stage() as cast:
            a, b, client = await cast.instance("a"), await cast.instance("b"), Client("id")
            clock = cast.fake.cluster.clock
            cast.fake.cluster.clock = lambda: clock() + hours * 3_600_000
            await client.init(a)
            await client.write(a, "1", P0)
            await b.transactions.log.read_to_end("id")
            b.transactions.coordinator.log._sweep(list(b.transactions.views.all()))
            assert not b.transactions._rounds._under_way
            await client.end(a)
            assert cast.visible(a.transactions.views) == ["1"]
            assert a.stats.transactions.claims == {"won": 1}

    async def test_an_id_stays_with_its_instance_for_a_while_after_the_time_out(self) -> None:
        """The owner aborts its own transaction at the time-out; its records take a while to be read elsewhere."""
        async with stage() as cast:
            a, b, client = await cast.instance("a"), await cast.instance("b"), Client("id")
            await client.init(a, timeout_ms=1)
            await b.transactions.log.read_to_end("id")
            for _ in range(2):  # what b sees for the first time is new to it
                with pytest.raises(TxnError, match="NOT_COORDINATOR"):
                    await client.add(b, P0)
                await trio.sleep(0.05)
            assert a.stats.transactions.claims == {"won": 1}
            assert not b.stats.transactions.claims

    @pytest.mark.idle_clock
    async def test_a_decision_that_arrives_after_its_client_was_answered_does_not_count(self) -> None:
        """The commit's record is in flight to the log while the client is answered that its transaction is lost."""
        async with stage(upstream_request_timeout_ms=300, delivery_timeout_ms=400) as cast:
            a, client = await cast.instance(), Client("id")
            await client.init(a)
            await client.write(a, "1", P0)
            brokers, held, deliver = cast.fake.cluster, trio.Event(), trio.Event()
            deaf = True

            async def late(call: Call) -> object:
                if not deaf or not any(topic.name == TOPIC for topic in call.request.topic_data):
                    return None
                if held.is_set():
                    return Close()
                held.set()
                await deliver.wait()
                return None

            brokers.control(ApiKey.PRODUCE, late)  # type: ignore[arg-type]
            brokers.control(ApiKey.LIST_OFFSETS, lambda _: Close() if deaf else None)
            with pytest.raises(TxnError, match="COORDINATOR_NOT_AVAILABLE"):
                await client.end(a)
            deaf = False
            with pytest.raises(TxnError, match="TRANSACTION_ABORTABLE"):
                await client.end(a)
            deliver.set()
            await trio.testing.wait_all_tasks_blocked(0.1)
            await a.transactions.log.read_to_end("id")
            assert cast.visible(a.transactions.views) == []

    async def test_what_nothing_is_heard_of_is_ended_by_another(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(log_owners, "_OTHERS_GRACE_MS", 0)
        async with stage() as cast:
            a, b, client = await cast.instance("a"), await cast.instance("b"), Client("id")
            clock = cast.fake.cluster.clock
            cast.fake.cluster.clock = lambda: clock() + 3_600_000
            await client.init(a, 1)
            await client.write(a, "1", P0)
            await a.kill()
            await b.transactions.log.read_to_end("id")
            assert b.transactions.views.bound(*P0) == 0
            with trio.fail_after(120):
                while b.transactions.views.bound(*P0) is not None:  # noqa: ASYNC110 - the log is followed
                    await trio.sleep(0.05)

    @pytest.mark.parametrize("bumps", [False, True], ids=["TV1", "TV2"])
    @pytest.mark.parametrize("arrives", [False, True], ids=["lost", "written"])
    @pytest.mark.idle_clock
    async def test_a_decision_of_which_nothing_is_heard_is_found_out_before_the_client_is_answered(
        self, bumps: bool, arrives: bool
    ) -> None:
        async with stage(upstream_request_timeout_ms=300, delivery_timeout_ms=400) as cast:
            a, client = await cast.instance(), Client("id", bumps)
            await client.init(a)
            await client.write(a, "1", P0)
            appended, deaf = 0, True

            def unheard(call: Call) -> object:
                nonlocal appended
                if not deaf or not any(topic.name == TOPIC for topic in call.request.topic_data):
                    return None
                appended += 1
                return CloseAfter() if arrives and appended == 1 else Close()

            brokers = cast.fake.cluster
            brokers.control(ApiKey.PRODUCE, unheard)  # type: ignore[arg-type]
            brokers.control(ApiKey.LIST_OFFSETS, lambda _: Close() if deaf else None)
            with pytest.raises(TxnError, match="COORDINATOR_NOT_AVAILABLE"):
                await client.end(a)
            deaf = False
            if arrives:
                await client.end(a)
                assert cast.visible(a.transactions.views) == ["1"]
            else:
                with pytest.raises(TxnError, match="TRANSACTION_ABORTABLE"):
                    await client.end(a)
                await client.end(a, committed=False)
            await client.write(a, "2", P0)
            await client.end(a)
            assert cast.visible(a.transactions.views) == (["1", "2"] if arrives else ["2"])


class AtBroker(BrokerOwners):
    """The owners of ids that the broker decides, and the one that each id has."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self.asked: list[Any] = []
        self.error: TxnError | None = None
        self.go = trio.Event()
        fake: Any = self
        config = configured("h:1", transactions_home=(HomeRule("*", Home.BROKER),))
        self.coordinator = Coordinator(fake, fake, config, Jobs(nursery), fake, TransactionStats())

    async def owner(self, request: TxnRequest) -> Any:
        self.asked.append(("owner", request.transactional_id, request.client))
        if self.error is not None:
            raise self.error
        return SimpleNamespace()

    def known(self, _: str) -> Any:
        return SimpleNamespace(id=TransactionalId(lambda: None), is_unknown=False, produce=self.produce)

    async def take(self, transactional_id: str, policy: OwnerPolicy) -> Any:
        self.asked.append("take")
        return SimpleNamespace(initialize=self.initialize_owner)

    async def initialize_owner(self, timeout_ms: int, resumed: Producer) -> Producer:
        return Producer(4000, 8)

    async def produce(self, *_: Any, **__: Any) -> list[Any]:
        self.asked.append("produce")
        await self.go.wait()
        self.asked.append("written")
        return []


class TestAtBroker:
    had = Producer(4000, 7)

    async def initialize(self, at: AtBroker, had: Producer | None, policy: OwnerPolicy) -> None:
        assert await at.coordinator.init_producer_id("id", 1000, had, "c", policy) == (4000, 8)

    async def test_only_a_client_that_had_an_identity_is_continued(self) -> None:
        async with trio.open_nursery() as nursery:
            at = AtBroker(nursery)
            await self.initialize(at, None, CLIENT)
            await self.initialize(at, self.had, MANAGED)
            assert at.asked == ["take", "take"]
            await self.initialize(at, self.had, CLIENT)
            assert at.asked[2:] == [("owner", "id", self.had), "take"]

    async def test_an_identity_that_is_not_known_here_is_replaced_and_an_older_one_is_refused(self) -> None:
        async with trio.open_nursery() as nursery:
            at = AtBroker(nursery)
            at.error = TxnError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, "kproxy was restarted")
            await self.initialize(at, self.had, CLIENT)
            at.asked, at.error = [], TxnError(ErrorCode.PRODUCER_FENCED, "a newer one")
            with pytest.raises(TxnError, match="PRODUCER_FENCED"):
                await self.initialize(at, self.had, CLIENT)
            assert at.asked == [("owner", "id", self.had)]

    @pytest.mark.parametrize("how", [{}, {"is_job": False}, {"is_job": True}])
    async def test_what_was_begun_continues_without_its_client_unless_the_caller_sees_to_that(
        self, how: dict[str, bool]
    ) -> None:
        async with trio.open_nursery() as nursery:
            at, scope = AtBroker(nursery), trio.CancelScope()

            async def ask() -> None:
                request = TxnRequest("id", self.had, 1, "c")
                with scope:
                    await at.coordinator.produce(request, [], implicit=True, accepted=lambda: None, **how)

            nursery.start_soon(ask)
            await trio.testing.wait_all_tasks_blocked()
            scope.cancel()
            await trio.testing.wait_all_tasks_blocked()
            at.go.set()
            await trio.testing.wait_all_tasks_blocked()
            is_own = how.get("is_job", False)
            assert at.asked == (["produce"] if is_own else ["produce", "written"])


@pytest.mark.parametrize(("length", "is_kept"), [(256, True), (257, False)])
def test_a_client_cannot_fill_memory_with_long_transactional_ids(length: int, is_kept: bool) -> None:
    rules = HomeRule("b*", Home.BROKER), HomeRule("*", Home.KPROXY)
    config: Any = SimpleNamespace(transactions_home=rules, transactional_id_limit=1)
    nothing: Any = None
    coordinator = Coordinator(nothing, nothing, config, nothing, nothing, nothing)
    for _ in range(2):
        assert coordinator.is_at_broker("b" * length)
        assert not coordinator.is_at_broker("k" * length)
    assert coordinator._known_home.cache_info().currsize == (2 if is_kept else 0)
