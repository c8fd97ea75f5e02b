"""Transactions put together: when the log is made, found and read, which parts run, and what they are given."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
from structlog.testing import capture_logs

from kproxy.codec._generated.offset_fetch import OffsetFetchRequest
from kproxy.codec.messages import ApiKey, ErrorCode
from kproxy.net.brokers.cluster import Cluster
from kproxy.net.socket_network import SocketNetwork
from kproxy.net.succession import Succession
from kproxy.net.txn.beginning_rounds import BeginningRounds
from kproxy.net.txn.copy_sweeps import CopySweeps
from kproxy.net.txn.log_topic import TOPIC
from kproxy.net.txn.offset_mirror import OffsetMirror
from kproxy.net.txn.owner_rounds import OwnerRounds
from kproxy.net.txn.service import Transactions
from kproxy.net.txn.snapshots import Snapshots
from kproxy.proxy.applications import CommitRule
from kproxy.proxy.coordinator_requests import BeforeOffsetChange, BeforeOffsetFetch, UnstableOffsets
from kproxy.proxy.coordinator_rules import Home, HomeRule
from kproxy.proxy.routing import ClusterMap
from kproxy.proxy.stats import Stats
from kproxy.proxy.traces import NoTraces
from kproxy.testing.fake_broker import Answer, Call, Close
from kproxy.testing.fake_broker.apis import APIS
from kproxy.txn.ids import log_partition
from kproxy.txn.last_stable import Question
from kproxy.txn.procedures.broker_ends import BrokerEnds
from kproxy.txn.procedures.broker_members import BrokerMembers
from kproxy.txn.procedures.broker_owners import BrokerOwners
from kproxy.txn.procedures.deadlines import Deadlines
from kproxy.txn.procedures.managed_transactions import ManagedTransactions
from kproxy.txn.procedures.rejects import Rejects
from kproxy.txn.txn_error import TxnError
from tests.net.harness import eventually
from tests.net.txn.instances import Cast, Client, Instance, stage
from tests.net.txn.log_harness import PATIENCE, configured
from tests.net.txn.member_scene import MemberGroup, refused
from tests.txn.bodies import producer

pytestmark = pytest.mark.idle_clock

P0 = ("t", 0)
STRAY = producer(900_000_001, 0).producer_id
AT_BROKER = (HomeRule("*", Home.BROKER),)
#: Without the log, with the log, and once no other process has the instance.id.
ALWAYS = (ManagedTransactions, BrokerOwners, Rejects)
WITH_LOG = (Snapshots, BeginningRounds, CopySweeps, BrokerEnds, BrokerMembers, Deadlines, OffsetMirror)
ALONE = (OwnerRounds,)


def has_log(cast: Cast) -> bool:
    return TOPIC in cast.fake.cluster.topics


def asked_for_log(cast: Cast) -> list[float]:
    """When the brokers were asked whether there is a log, from now on."""
    times: list[float] = []

    def note(call: Call) -> None:
        if any(topic.name == TOPIC for topic in call.request.topics or ()):
            times.append(trio.current_time())

    cast.fake.cluster.control(ApiKey.METADATA, note)
    return times


def hold_reads(cast: Cast) -> trio.Event:
    """From now on nobody reads a log, until the event is set."""
    go = trio.Event()

    async def hold(_: Call) -> None:
        await go.wait()

    cast.fake.cluster.control(ApiKey.FETCH, hold)
    return go


async def written_by(at: Instance, name: str = "id") -> Client:
    """A client with a transaction open."""
    client = Client(name)
    await client.init(at)
    await client.write(at, "1", P0)
    return client


class TestParts:
    async def test_each_runs_from_when_it_can(self, monkeypatch: pytest.MonkeyPatch) -> None:
        running: set[type] = set()

        def noted(kind: type) -> Callable[..., Awaitable[None]]:
            async def run(*_: object) -> None:
                running.add(kind)
                await trio.sleep_forever()

            return run

        for kind in (*ALWAYS, *WITH_LOG, *ALONE):
            monkeypatch.setattr(kind, "run", noted(kind))
        async with stage() as cast:
            succession = Succession({})
            a = await cast.instance(succession=succession)
            await trio.sleep(5)
            assert (running, has_log(cast)) == ({*ALWAYS}, False)
            a.transactions.log.wanted.set()
            await eventually(a.transactions.log.opened.is_set)
            await trio.sleep(1)
            assert running == {*ALWAYS, *WITH_LOG}
            succession.ended()
            await trio.sleep(1)
            assert running == {*ALWAYS, *WITH_LOG, *ALONE}

    async def test_what_the_log_says_reaches_those_who_wait_for_it(self) -> None:
        async with stage() as cast:
            a, b = [MemberGroup(await cast.instance(name)) for name in "ab"]
            await a.begin_own()
            await a.write("own", "1")
            await b.abort()
            await eventually(lambda: a.at.transactions.implicit_transactions.of("own") is None)
            cast.fake.cluster.create_topic("in")
            client = await written_by(a.at, "other")
            await client.offsets(a.at, "g", 5)
            await client.end(a.at)
            groups = cast.fake.cluster.groups
            await eventually(lambda: "g" in groups and ("in", 0) in groups["g"].offsets)
            await eventually(lambda: not list(a.at.transactions.views.unmirrored_offsets("g")))
            names: list[str] = []
            cast.fake.cluster.control(ApiKey.INIT_PRODUCER_ID, lambda call: names.append(call.request.transactional_id))
            at_b = b.at.transactions.reading.groups
            assert at_b is not None
            assert not (await at_b.before_change(BeforeOffsetChange(["g"]))).error_code
            assert len(names) == 1, "the kproxy that wrote them is fenced"

    async def test_a_member_takes_the_id_of_one_that_has_ended(self) -> None:
        names: list[str] = []
        async with stage(transactions_home=AT_BROKER) as cast:
            a = MemberGroup(await cast.instance())
            owner = (await a.initialize()).owner
            cast.fake.cluster.control(ApiKey.INIT_PRODUCER_ID, lambda call: names.append(call.request.transactional_id))
            for name in "mn":
                await a.begin(name, owner)
                await a.write(name, name)
                await a.prepare(name)
                await a.commit(name, batch_id=name, owner=owner)
        assert len({name for name in names if name is not None}) == 1

    async def test_the_brokers_time_is_that_of_the_last_append(self) -> None:
        async with stage() as cast:
            a = await cast.instance()
            await written_by(a)
            await trio.sleep(2)
            cast.fake.cluster.clock = lambda: 5_000_000
            assert await a.transactions.broker_now_ms("id") == pytest.approx(5_000_000, abs=1_000)

    async def test_a_transaction_is_traced(self) -> None:
        begun: list[str] = []

        class Recorder(NoTraces):
            def begun(self, transactional_id: str, client_id: str) -> None:
                begun.append(transactional_id)

        async with stage() as cast:
            await written_by(await cast.instance(traces=Recorder()))
        assert begun == ["id"]

    @pytest.mark.parametrize(("option", "rejects"), [("reject", True), ("wait", False)])
    async def test_unknown_data_are_rejected_after_the_longest_transaction(self, option: str, rejects: bool) -> None:
        options: dict[str, Any] = {"unknown_producer_ids": option, "transaction_max_timeout_ms": 10_000}
        async with stage(**options) as cast:
            a = await cast.instance()
            a.transactions.log.wanted.set()
            await eventually(a.transactions.log.opened.is_set)
            views = a.transactions.views
            views.met(STRAY, "t", 0, 5)
            await trio.sleep(9)
            assert not views.is_rejected(STRAY)
            await trio.sleep(15)
            assert views.is_rejected(STRAY) is rejects

    async def test_brokers_that_do_not_answer_are_asked_for_as_long_as_a_delivery_may_take(self) -> None:
        async with stage(transactions_home=AT_BROKER) as cast:
            a = MemberGroup(await cast.instance())
            owner = (await a.initialize()).owner
            await a.begin("m", owner)
            await a.write("m", "1")
            await a.prepare("m")
            cast.fake.cluster.control(ApiKey.DESCRIBE_TRANSACTIONS, lambda _: Close())
            assert await refused(a.commit("m", batch_id="1", owner=owner)) is ErrorCode.COORDINATOR_NOT_AVAILABLE

    @pytest.mark.parametrize(
        ("home", "rules", "asks"),
        [
            (AT_BROKER, (CommitRule("*"),), True),
            (AT_BROKER, (), False),
            ((), (CommitRule("*"),), False),
        ],
    )
    async def test_the_brokers_offsets_are_waited_for_where_kproxy_has_any_commit_there(
        self, home: Any, rules: Any, asks: bool
    ) -> None:
        async with stage(transactions_home=home, on_offset_commit=rules) as cast:
            a = await cast.instance()
            asked: list[Call] = []
            cast.fake.cluster.control(ApiKey.OFFSET_FETCH, asked.append)
            groups = a.transactions.reading.groups
            assert groups is not None
            await groups.before_fetch(
                BeforeOffsetFetch(["g"], UnstableOffsets.LAST, False, [OffsetFetchRequest(group_id="g")])
            )
            assert bool(asked) is asks


class TestClients:
    async def test_who_takes_part_is_known(self) -> None:
        async with stage() as cast:
            a = await cast.instance()
            client = await written_by(a)
            assert [a.transactions.takes_part(number) for number in (client.connection, 2)] == [True, False]
            assert set(a.transactions.parties().connections) == {client.connection}
            assert (a.transactions.open, a.transactions.jobs) == (1, 0)

    async def test_no_client_begins_at_one_that_leaves(self) -> None:
        async with stage() as cast:
            a = await cast.instance()
            client = await written_by(a)
            a.transactions.leave()
            with pytest.raises(TxnError):
                await Client("other").init(a)
            await client.end(a)

    async def test_its_connections_end_with_it(self) -> None:
        async with stage() as cast, trio.open_nursery() as tasks:
            config, stats = configured(cast.fake.bootstrap, instance_id="a"), Stats()
            cluster = Cluster(config, stats.upstream, ClusterMap(), SocketNetwork())
            transactions = Transactions(cluster, config, stats, tasks)
            async with trio.open_nursery() as nursery:
                await nursery.start(transactions.run)
                await written_by(Instance("a", transactions, stats, nursery.cancel_scope, trio.Event()))
                with trio.fail_after(PATIENCE):
                    await transactions.reading.stable(Question({P0: 1}))
                nursery.cancel_scope.cancel()
            cluster.close()
            (scopes,) = cast.fake._scopes.values()
            await eventually(lambda: len(scopes) == 1)  # that of the listener
            tasks.cancel_scope.cancel()


class TestLog:
    async def test_a_log_that_is_there_is_read_before_anything_else(self) -> None:
        async with stage() as cast:
            await written_by(await cast.instance("b"))
            await trio.sleep(10)
            go, started = hold_reads(cast), list[Instance]()

            async def start() -> None:
                started.append(await cast.instance())

            async with trio.open_nursery() as nursery:
                nursery.start_soon(start)
                await trio.sleep(3)
                assert started == []
                go.set()
            (a,) = started
            assert a.transactions.log.opened.is_set()
            assert a.transactions.views.of("id") is not None
            assert 2 < a.stats.transactions.log_load_seconds < 10

    async def test_a_beginning_that_is_lost_is_reported(self) -> None:
        async with stage() as cast:
            b = await cast.instance("b")
            client = await written_by(b)
            await client.end(b)
            await b.kill()
            log = cast.fake.cluster.topics[TOPIC].partitions[log_partition("id", 4)].log
            log.delete_before(log.end_offset - 1)
            with capture_logs() as lines:
                await cast.instance()
        lost = [line["partition"] for line in lines if line["event"].startswith("the beginning of the transaction log")]
        assert lost == [log_partition("id", 4)]

    async def test_one_that_another_kproxy_has_made_is_found(self) -> None:
        async with stage(metadata_max_age_ms=5_000) as cast:
            a = await cast.instance()
            await written_by(await cast.instance("b"))
            assert not a.transactions.log.opened.is_set()
            await trio.sleep(6)
            assert a.transactions.log.opened.is_set()

    async def test_readers_of_a_transaction_have_it_found_and_make_none(self) -> None:
        async with stage(metadata_max_age_ms=300_000) as cast:
            a = await cast.instance()
            with trio.move_on_after(5) as scope:
                await a.transactions.changed(a.transactions.version)
            assert (scope.cancelled_caught, has_log(cast)) == (True, False)
            client = await written_by(await cast.instance("b"))
            with trio.fail_after(PATIENCE):
                await a.transactions.changed(a.transactions.version)
            await eventually(a.transactions.log.opened.is_set)
            await a.transactions.log.read_to_end(client.transactional_id)
            times = asked_for_log(cast)
            with trio.move_on_after(1) as scope:
                await a.transactions.changed(a.transactions.version)
            assert (scope.cancelled_caught, times) == (True, [])

    async def test_a_look_at_all_transactions_has_it_found_and_makes_none(self) -> None:
        async with stage(metadata_max_age_ms=300_000) as cast:
            a = await cast.instance()
            with trio.fail_after(PATIENCE):
                assert await a.transactions.control.list() == []
            assert not has_log(cast)
            await written_by(await cast.instance("b"))
            go = hold_reads(cast)
            with pytest.raises(TxnError, match="the transaction log was not read yet: no response"):
                with trio.fail_after(PATIENCE):
                    await a.transactions.control.list()
            go.set()
            with trio.fail_after(PATIENCE):
                assert [row.transactional_id for row in await a.transactions.control.list()] == ["id"]
                times = asked_for_log(cast)
                await a.transactions.control.list()
            assert times == []

    async def test_it_is_asked_for_until_a_broker_answers(self) -> None:
        async with stage(retry_backoff_ms=1_000, retry_backoff_max_ms=1_000) as cast:
            times = list[float]()

            def fail(call: Call) -> Close | None:
                if not any(topic.name == TOPIC for topic in call.request.topics or ()):
                    return None
                times.append(trio.current_time())
                return Close()

            control = cast.fake.cluster.control(ApiKey.METADATA, fail)
            started = list[Instance]()

            async def start() -> None:
                started.append(await cast.instance())

            async with trio.open_nursery() as nursery:
                nursery.start_soon(start)
                await trio.sleep(10)
                assert 1 < len(times) < 60
                cast.fake.cluster.controls.remove(control)
            assert started[0].stats.upstream.errors["transaction_state_log"] >= 1

    async def test_one_that_kproxy_may_not_see_is_none(self) -> None:
        async with stage() as cast:

            async def refuse(call: Call) -> Any:
                answer: Any = await APIS[ApiKey.METADATA].handle(call)
                for topic in answer.topics:
                    if topic.name == TOPIC:
                        topic.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                return Answer(answer)

            cast.fake.cluster.control(ApiKey.METADATA, refuse)
            with capture_logs() as lines:
                a = await cast.instance()
            assert [line["log_level"] for line in lines if "grant" in line] == ["warning"]
            assert not a.transactions.log.opened.is_set()
