"""Clients that know nothing of transactions, in frames through kproxy, while transactions are begun for them."""

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from kproxy.codec.messages import ApiKey, ErrorCode
from kproxy.net.txn.control_service import ControlService
from kproxy.net.txn.log_topic import TOPIC
from kproxy.net.txn.service import Transactions
from kproxy.proxy.coordinator_rules import Home, HomeRule
from kproxy.testing.fake_broker import Close, Delay
from kproxy.txn.described import Described, OwnerId
from kproxy.txn.ids import TXN_BITS, Producer
from kproxy.txn.log_records import RecordKind
from kproxy.txn.prepared_parts import DecisionScope
from kproxy.txn.procedures.log_decider import LogDecider
from kproxy.txn.procedures.managed_transaction import ManagedTransaction
from kproxy.txn.procedures.member_control import DEFAULT_TIMEOUT_MS
from kproxy.txn.procedures.votes import Votes
from kproxy.txn.txn_error import TxnError
from tests.codec.message_sets import entry
from tests.net.harness import PATIENCE, FrameClient, Proxied, errors_of, eventually, produce, proxied
from tests.net.retrying import Gate
from tests.net.txn import instances
from tests.net.txn.member_scene import MemberGroup, refused, seen
from tests.net.txn.takeover_scene import Gate as LogGate
from tests.net.txn.takeover_scene import Point
from tests.net.txn.test_rpcs_whole import committed_values
from tests.net.txn.wire_producer import produce_request, transactional_batch
from tests.txn.procedures.managed_scene import managed_by

pytestmark = pytest.mark.idle_clock

OPTIONS: dict[str, Any] = {"coordinator": Transactions, "transaction_state_log_num_partitions": 4, "instance_id": "box"}
TIMEOUT_MS = 60_000


@asynccontextmanager
async def stage(**options: Any) -> AsyncIterator[tuple[Proxied, ControlService]]:
    async with proxied(**OPTIONS, **options) as proxy:
        proxy.brokers.create_topic("t", 2)
        yield proxy, proxy.transactions.control


async def begin(control: ControlService, name: str | None = "id", timeout_ms: int = TIMEOUT_MS) -> Described:
    with trio.fail_after(PATIENCE):
        return await control.begin(client_id="test", transactional_id=name, timeout_ms=timeout_ms)


async def commit(control: ControlService, name: str = "id", **how: Any) -> Described:
    with trio.fail_after(PATIENCE):
        return await control.commit(name, **how)


async def abort(control: ControlService, name: str = "id") -> Described:
    with trio.fail_after(PATIENCE):
        return await control.abort(name, owner=(await control.describe(name)).owner)


async def write(client: FrameClient, *values: bytes, partition: int = 0, version: int = 7) -> list[int]:
    return errors_of(await client.call(produce("t", *values, partition=partition), version))


async def test_what_a_client_writes_shows_when_it_is_committed() -> None:
    async with stage() as (proxy, control), await proxy.client() as client:
        begun = await begin(control)
        assert (begun.state, begun.client_id, begun.instance_id) == ("Ongoing", "test", "box")
        assert await write(client, b"1") == [0]
        assert await write(client, b"2", partition=1) == [0]
        assert committed_values(proxy) == committed_values(proxy, 1) == []
        assert (await control.describe("id")).partitions == (("t", 0), ("t", 1))
        done = await commit(control)
        assert done.state == "CompleteCommit"
        assert done.last is not None
        assert done.last.committed
        assert (committed_values(proxy), committed_values(proxy, 1)) == (["1"], ["2"])
        assert [row.state for row in await control.list()] == ["CompleteCommit"]


async def test_what_is_aborted_never_shows_and_the_next_does() -> None:
    async with stage() as (proxy, control), await proxy.client() as client:
        for value, decide in ((b"1", abort), (b"2", commit), (b"3", abort), (b"4", commit)):
            await begin(control)
            assert await write(client, value) == [0]
            assert (await decide(control)).state == ("CompleteAbort" if decide is abort else "CompleteCommit")
        assert committed_values(proxy) == ["2", "4"]


async def test_after_the_end_a_client_writes_plain_records_again() -> None:
    async with stage() as (proxy, control), await proxy.client() as client:
        assert await write(client, b"before") == [0]
        await begin(control, None)
        assert await write(client, b"1") == [0]
        await commit(control, "kproxy-test")
        assert await write(client, b"behind") == [0]
        log = proxy.brokers.topics["t"].partitions[0].log
        assert log.end_offset == 3


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_old_message_sets_go_into_the_transaction(version: int) -> None:
    async with stage() as (proxy, control), await proxy.client() as client:
        await begin(control)
        request = produce("t", b"-")
        rows = [entry(at, None, b"%d" % at, magic=int(version > 1), timestamp=1_000) for at in range(3)]
        request.topic_data[0].partition_data[0].records = b"".join(rows)
        answer = await client.call(request, version)
        (row,) = answer.responses[0].partition_responses
        assert (row.error_code, row.base_offset) == (0, 0)
        await commit(control)
        assert committed_values(proxy) == ["0", "1", "2"]


async def test_a_set_that_is_split_is_whole_in_the_transaction() -> None:
    async with stage(max_message_bytes=2_000) as (proxy, control), await proxy.client() as client:
        await begin(control)
        request = produce("t", b"-")
        values = [b"%d" % at + bytes(500) for at in range(12)]
        rows = [entry(at, None, value, magic=1, timestamp=1_000) for at, value in enumerate(values)]
        request.topic_data[0].partition_data[0].records = b"".join(rows)
        (row,) = (await client.call(request, 2)).responses[0].partition_responses
        assert (row.error_code, row.base_offset) == (0, 0)
        await commit(control)
        assert committed_values(proxy) == [value.decode() for value in values]


async def test_requests_that_want_no_answer_are_in_it_though_the_client_has_gone() -> None:
    async with stage() as (proxy, control):
        await begin(control)
        async with await proxy.client() as client:
            for at in range(20):
                await client.stream.send_all(client.encode(produce("t", b"%d" % at, acks=0), 7, silent=True))
            await client.call(produce("t", b"last", acks=1), 7)
        await eventually(lambda: not proxy.stats.clients.connections_open)
        await commit(control)
        assert committed_values(proxy) == [*(str(at) for at in range(20)), "last"]


async def test_a_transaction_without_records_commits() -> None:
    async with stage() as (_, control):
        await begin(control)
        assert (await commit(control)).last is None


async def test_what_is_not_open_is_not_decided() -> None:
    async with stage() as (proxy, control):
        assert await refused(control.commit("id")) is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        assert await refused(control.describe("id")) is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        assert await control.list() == []
        assert TOPIC not in proxy.brokers.topics, "no log is made to look into it"
        owner = (await begin(control)).owner
        await commit(control)
        assert await refused(control.commit("id")) is ErrorCode.INVALID_TXN_STATE
        assert await refused(control.abort("id", owner=owner)) is ErrorCode.INVALID_TXN_STATE
        assert await refused(control.prepare("id", owner=owner)) is ErrorCode.INVALID_TXN_STATE
        with pytest.raises(TxnError, match="TRANSACTIONAL_ID_NOT_FOUND: the log does not know other"):
            await control.commit("other")


async def test_one_transaction_at_a_time_for_an_id_and_for_a_client() -> None:
    async with stage() as (_, control):
        await begin(control)
        for name in ("id", "other"):
            work = control.begin(client_id="test", transactional_id=name, timeout_ms=TIMEOUT_MS)
            assert await refused(work) is ErrorCode.CONCURRENT_TRANSACTIONS
        await abort(control)
        assert (await begin(control, "other")).state == "Ongoing"


async def test_a_new_id_needs_a_client() -> None:
    async with stage() as (_, control):
        work = control.begin(client_id=None, transactional_id="id", timeout_ms=TIMEOUT_MS)
        assert await refused(work) is ErrorCode.INVALID_REQUEST
        await begin(control)
        await abort(control)
        with trio.fail_after(PATIENCE):
            again = await control.begin(client_id=None, transactional_id="id", timeout_ms=TIMEOUT_MS)
        assert again.client_id == "test"


# -- what dooms


async def test_a_refused_batch_dooms_the_transaction() -> None:
    async with stage() as (proxy, control), await proxy.client() as client:
        await begin(control)
        assert await write(client, b"1") == [0]
        broken = produce("t", b"2")
        broken.topic_data[0].partition_data[0].records = b"nonsense"
        assert errors_of(await client.call(broken, 7)) == [ErrorCode.INVALID_RECORD]
        assert await write(client, b"3") == [ErrorCode.INVALID_TXN_STATE]
        assert await refused(control.commit("id")) is ErrorCode.TRANSACTION_ABORTABLE
        assert committed_values(proxy) == []
        await begin(control)
        assert await write(client, b"4") == [0]
        await commit(control)
        assert committed_values(proxy) == ["4"]


async def test_a_connection_that_ends_before_its_answer_dooms_the_transaction() -> None:
    async with stage() as (proxy, control):
        await begin(control)
        gate = Gate(proxy)
        async with await proxy.client() as client:
            await client.send(produce("t", b"1"), 7)
            await gate.wait_reached()
        await eventually(lambda: not proxy.stats.clients.connections_open)
        gate.release()
        async with await proxy.client() as client:
            assert await write(client, b"1") == [ErrorCode.INVALID_TXN_STATE]
        assert await refused(control.commit("id")) is ErrorCode.TRANSACTION_ABORTABLE
        assert committed_values(proxy) == []


async def test_a_connection_that_ends_after_its_answers_does_not() -> None:
    async with stage() as (proxy, control):
        await begin(control)
        for value in (b"1", b"2"):
            async with await proxy.client() as client:
                assert await write(client, value) == [0]
            await eventually(lambda: not proxy.stats.clients.connections_open)
        await commit(control)
        assert committed_values(proxy) == ["1", "2"]


async def test_the_time_out_aborts_and_the_client_gets_the_error_until_the_script_does() -> None:
    async with stage() as (proxy, control), await proxy.client() as client:
        await begin(control, timeout_ms=900)
        assert await write(client, b"1") == [0]
        capture = proxy.transactions.implicit_transactions.of("test")
        await eventually(lambda: capture.doomed is not None)
        assert await write(client, b"2") == [ErrorCode.INVALID_TXN_STATE]
        await abort(control)
        assert committed_values(proxy) == []
        assert await write(client, b"3") == [0]


async def test_a_forged_producer_id_is_refused() -> None:
    async with stage() as (proxy, control), await proxy.client() as client:
        await begin(control)
        request = produce_request("", {("t", 0): transactional_batch("1", Producer(TXN_BITS | 5, 0), 0)})
        request.transactional_id = None
        assert errors_of(await client.call(request, 7)) == [ErrorCode.INVALID_PRODUCER_ID_MAPPING]


# -- what comes late


@pytest.mark.parametrize("home", ["kproxy", "broker"])
async def test_a_late_decision_does_not_touch_the_next_transaction(home: str) -> None:
    rules = (HomeRule("*", Home(home)),)
    async with stage(transactions_home=rules) as (proxy, control), await proxy.client() as client:
        late = (await begin(control)).owner
        await commit(control)
        owner = (await begin(control)).owner
        assert await write(client, b"1") == [0]
        assert await refused(control.abort("id", owner=late)) is ErrorCode.PRODUCER_FENCED
        assert await refused(control.commit("id", owner=late)) is ErrorCode.PRODUCER_FENCED
        no_prepare = ErrorCode.PRODUCER_FENCED if home == "kproxy" else ErrorCode.INVALID_REQUEST
        assert await refused(control.prepare("id", owner=late)) is no_prepare
        assert (await commit(control, owner=owner)).state == "CompleteCommit"


# -- batch ids and prepare


async def test_a_commit_is_repeated_by_its_batch_id() -> None:
    async with stage() as (proxy, control), await proxy.client() as client:
        await begin(control)
        assert await write(client, b"1") == [0]
        first = await commit(control, batch_id="b1")
        assert await commit(control, batch_id="b1") == first
        await begin(control)
        assert await write(client, b"2") == [0]
        assert (await commit(control, batch_id="b1")).state == "Ongoing"
        await commit(control, batch_id="b2")
        assert committed_values(proxy) == ["1", "2"]


@pytest.mark.parametrize("prepares", [False, True], ids=["open", "prepared"])
async def test_what_another_try_of_a_committed_batch_wrote_is_aborted(prepares: bool) -> None:
    """Its driver was killed before it knew of the commit: the next commit must not decide what the other try wrote."""
    async with stage() as (proxy, control), await proxy.client() as client:
        for value in (b"1", b"1 again"):
            owner = (await begin(control)).owner
            assert await write(client, value) == [0]
            if prepares:
                await control.prepare("id", owner=owner)
            await commit(control, batch_id="b1", owner=owner)
        with contextlib.suppress(TxnError):
            await commit(control, batch_id="b2", owner=owner)
        assert committed_values(proxy) == ["1"]


async def test_nor_does_it_where_the_broker_decides() -> None:
    async with (
        stage(transactions_home=(HomeRule("*", Home.BROKER),)) as (proxy, control),
        await proxy.client() as client,
    ):
        ends: list[bool] = []
        proxy.brokers.control(ApiKey.END_TXN, lambda call: ends.append(call.request.committed))
        for value in (b"1", b"1 again"):
            owner = (await begin(control)).owner
            assert await write(client, value) == [0]
            await commit(control, batch_id="b1", owner=owner)
        assert await refused(control.commit("id", batch_id="b2", owner=owner)) is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        assert ends == [True, False]


async def test_a_batch_that_was_committed_is_listed_and_one_that_was_aborted_is_not() -> None:
    async with stage() as (_, control):
        await begin(control)
        assert (await commit(control, batch_id="b1")).batch_ids == ("b1",)
        await begin(control)
        await abort(control)
        assert (await control.describe("id")).batch_ids == ("b1",)
        await begin(control)
        await commit(control, batch_id="b2")
        assert (await control.describe("id")).batch_ids == ("b1", "b2")
        await begin(control, "another")
        assert (await control.describe("another")).batch_ids == ()


async def test_an_empty_commit_is_repeated_too() -> None:
    async with stage() as (_, control):
        await begin(control)
        await commit(control, batch_id="b1")
        assert (await commit(control, batch_id="b1")).state == "CompleteCommit"


@pytest.mark.parametrize("committed", [True, False])
async def test_what_was_prepared_waits_for_its_decision_though_another_begins_meanwhile(committed: bool) -> None:
    async with stage() as (proxy, control), await proxy.client() as client:
        owner = (await begin(control)).owner
        assert await write(client, b"1") == [0]
        with trio.fail_after(PATIENCE):
            prepared = await control.prepare("id", owner=owner)
        assert [(part.name, part.prepared) for part in prepared.parts] == [("", True)]
        assert prepared.state == "Empty"
        assert await write(client, b"plain") == [0]
        done = await (commit if committed else abort)(control)
        assert done.parts == ()
        verdicts = proxy.transactions.views
        producer = prepared.parts[0][1:3]
        assert verdicts.verdict(*producer).name == ("COMMITTED" if committed else "ABORTED")


async def test_members_that_prepared_nothing_are_unknown() -> None:
    async with stage() as (_, control):
        await begin(control)
        work = control.commit("id", members=["nobody"])
        assert await refused(work) is ErrorCode.INVALID_REQUEST


# -- several kproxies


@asynccontextmanager
async def several(names: str = "ab", **options: Any) -> AsyncIterator[list[MemberGroup]]:
    """Kproxies on one cluster, under these names."""
    async with instances.stage(**options) as cast:
        yield [MemberGroup(await cast.instance(name)) for name in names]


AT_BROKER = {"transactions_home": (HomeRule("*", Home.BROKER),)}


def is_newer(owner: OwnerId) -> OwnerId:
    return owner._replace(producer_epoch=owner.producer_epoch + 1)


async def test_what_another_kproxy_has_open_is_aborted_there_or_by_hand_before_the_next_begins() -> None:
    async with several() as (a, b):
        owner = (await b.begin_own()).owner
        await b.write("own", "1")
        assert await refused(a.begin_own()) is ErrorCode.CONCURRENT_TRANSACTIONS
        assert await refused(a.commit(owner=is_newer(owner))) is ErrorCode.PRODUCER_FENCED
        assert (await a.abort()).state == "CompleteAbort"
        assert (await a.begin_own()).instance_id == "a"


async def test_what_the_former_self_of_a_kproxy_has_open_is_aborted_by_the_next_begin() -> None:
    async with instances.stage() as cast:
        former, other = [MemberGroup(await cast.instance(name)) for name in "ab"]
        owner = (await former.begin_own()).owner
        await former.write("own", "1")
        await other.begin("m", owner)
        await other.prepare("m")
        await former.at.kill()
        again = MemberGroup(await cast.instance("a"))
        assert await refused(again.commit("m", owner=owner)) is ErrorCode.TRANSACTION_ABORTABLE
        assert (await again.begin_own()).state == "Ongoing"


async def test_what_a_producer_has_open_here_is_aborted_by_the_next_begin() -> None:
    async with several("a") as (a,):
        client = instances.Client("id")
        await client.init(a.at)
        await client.write(a.at, "1", ("t", 0))
        assert (await a.begin_own()).state == "Ongoing"
        assert await refused(client.end(a.at)) is ErrorCode.PRODUCER_FENCED


async def test_an_initialization_ends_what_is_open_here() -> None:
    async with several("a") as (a,):
        owner = (await a.begin_own()).owner
        await a.write("own", "1")
        capture = a.at.transactions.implicit_transactions.of("own")
        assert isinstance(capture, ManagedTransaction)
        done = await a.initialize()
        assert capture.doomed == "it was aborted"
        assert a.at.transactions.implicit_transactions.of("own") is None
        assert done.owner == is_newer(owner), "one epoch was used"


@pytest.mark.parametrize("home", [Home.KPROXY, Home.BROKER])
async def test_an_initialization_is_the_brokers_where_it_decides(home: Home) -> None:
    asked: list[str] = []
    async with instances.stage(transactions_home=(HomeRule("*", home),)) as cast:
        cast.fake.cluster.control(ApiKey.INIT_PRODUCER_ID, lambda call: asked.append(call.request.transactional_id))
        await MemberGroup(await cast.instance()).initialize()
        assert asked.count("id") == (home is Home.BROKER)


async def test_a_decision_of_the_broker_has_no_parts() -> None:
    async with several("a", **AT_BROKER) as (a,):
        owner = (await a.begin_own()).owner
        assert (await a.describe()).state == "Ongoing"
        for how in ({"abort_others": True}, {}):
            members = () if how else ("m",)
            assert await refused(a.commit(*members, owner=owner, **how)) is ErrorCode.INVALID_REQUEST
            assert await refused(a.abort(*members, owner=owner, **how)) is ErrorCode.INVALID_REQUEST
        done = await a.commit(batch_id="b1", owner=owner)
        assert await a.commit(batch_id="b1", owner=owner) == done
        with pytest.raises(TxnError, match=r"TRANSACTIONAL_ID_NOT_FOUND: id is not open .* its home is the broker"):
            await a.describe()


@pytest.mark.parametrize("committed", [True, False])
async def test_members_at_the_broker_have_ended_when_a_decision_is_answered(committed: bool) -> None:
    async with several("a", **AT_BROKER) as (a,):
        owner = (await a.initialize()).owner
        await a.begin("m", owner)
        await a.write("m", "1")
        await a.prepare("m")
        done = await (a.commit("m", batch_id="1", owner=owner) if committed else a.abort("m", owner=owner))
        assert done.state == ("CompleteCommit" if committed else "CompleteAbort")


class Voting:
    """The brokers say that members can't be committed, after what happens meanwhile; of that they say nothing."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, meanwhile: Callable[[], Awaitable[object]]) -> None:
        self._meanwhile = meanwhile
        self._has_begun = False
        monkeypatch.setattr(Votes, "check", self._check)

    async def _check(self, *_: object) -> None:
        if not self._has_begun:
            self._has_begun = True
            await self._meanwhile()
            raise TxnError(ErrorCode.TRANSACTION_ABORTABLE, "as the test says")


@pytest.mark.parametrize(
    ("meanwhile", "error", "values"),
    [
        ("nothing", ErrorCode.TRANSACTION_ABORTABLE, []),
        ("commit", None, ["m"]),
        ("abort", ErrorCode.INVALID_REQUEST, []),
    ],
)
async def test_a_commit_that_the_brokers_refuse_may_be_done_by_another(
    monkeypatch: pytest.MonkeyPatch, meanwhile: str, error: ErrorCode | None, values: list[str]
) -> None:
    async with instances.stage() as cast:
        a, b = [MemberGroup(await cast.instance(name)) for name in "ab"]
        owner = (await a.initialize()).owner
        await a.begin("m", owner)
        await a.write("m", "m")
        await a.prepare("m")
        works: dict[str, Callable[[], Awaitable[object]]] = {
            "nothing": trio.lowlevel.checkpoint,
            "commit": lambda: b.commit("m", batch_id="1", owner=owner),
            "abort": lambda: b.abort("m", owner=owner),
        }
        Voting(monkeypatch, works[meanwhile])
        work = a.commit("m", batch_id="1", owner=owner)
        if error is None:
            assert (await work).batch_ids == ("1",)
        else:
            assert await refused(work) is error
        assert await seen(cast, a, b) == values


async def test_a_late_commit_without_an_owner_leaves_what_has_begun_since(monkeypatch: pytest.MonkeyPatch) -> None:
    async with several() as (a, b):
        await a.initialize()
        await a.begin("m")
        await a.prepare("m")

        async def meanwhile() -> None:
            await b.commit("m", batch_id="1")
            await a.begin_own()
            await a.write("own", "1")

        Voting(monkeypatch, meanwhile)
        assert (await a.commit("m", batch_id="1")).state == "Ongoing"
        assert (await a.commit(batch_id="2")).batch_ids == ("1", "2")


async def test_members_that_prepared_nothing_are_unknown_also_where_nothing_else_is_open() -> None:
    async with several("a") as (a,):
        await a.initialize()
        assert await refused(a.commit("nobody")) is ErrorCode.INVALID_REQUEST


async def test_what_an_older_owner_has_open_here_is_not_the_newer_ones() -> None:
    async with several() as (a, b):
        await a.begin_own()
        await a.write("own", "1")
        owner = (await b.initialize()).owner
        await b.begin("m", owner)
        await b.prepare("m")
        assert (await a.commit("m", batch_id="1", owner=owner)).state == "CompleteCommit"
        assert await refused(a.abort(owner=owner)) is ErrorCode.INVALID_TXN_STATE
        begun = a.at.transactions.implicit_transactions.begun
        for producer_id in (owner.producer_id - 1, owner.producer_id + 1):
            for capture in list(begun):
                begun.remove(capture)
            former = ManagedTransaction(managed_by(a.at.transactions.coordinator), "id", "own", TIMEOUT_MS)
            former._producer = Producer(producer_id, 0)
            begun.add(former)
            assert await refused(a.abort(owner=owner)) is ErrorCode.INVALID_TXN_STATE


async def test_a_repeated_commit_leaves_members_of_the_next_batch() -> None:
    async with several("a") as (a,):
        owner = (await a.initialize()).owner
        await a.begin("m", owner)
        await a.prepare("m")
        await a.commit("m", batch_id="1", owner=owner)
        await a.begin("n", owner)
        await a.commit("m", batch_id="1", owner=owner)
        await a.prepare("n")
        assert (await a.commit("n", batch_id="2", owner=owner)).batch_ids == ("1", "2")


async def test_a_log_that_is_read_again_after_a_commit_does_not_know_the_id(monkeypatch: pytest.MonkeyPatch) -> None:
    async with several("a") as (a,):
        owner = (await a.begin_own()).owner
        log, commit = a.at.transactions.log, ManagedTransaction.commit

        async def and_restart(one: ManagedTransaction, also: DecisionScope) -> None:
            await commit(one, also)
            log.views.restart(log.partition_of("id"), 0)

        monkeypatch.setattr(ManagedTransaction, "commit", and_restart)
        assert await refused(a.commit(owner=owner)) is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


async def test_a_member_has_the_time_of_its_owner() -> None:
    async with several("a") as (a,):
        begun = a.at.transactions.implicit_transactions.begun
        assert await refused(a.begin("m", timeout_ms=10**9)) is ErrorCode.INVALID_TRANSACTION_TIMEOUT
        times = []
        for name, owners_ms in (("m", None), ("n", 7_000)):
            if owners_ms is not None:
                await a.initialize(owners_ms)
            await a.begin(name)
            capture = begun.named("id", name)
            assert capture is not None
            times.append(capture.timeout_ms)
        assert times == [DEFAULT_TIMEOUT_MS, 7_000]


async def test_a_member_is_aborted_where_it_is_open() -> None:
    async with several("a") as (a,):
        assert await refused(a.abort_member("m")) is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        await a.begin("m")
        await a.begin("n")
        await a.prepare("n")
        assert await refused(a.abort_member("o")) is ErrorCode.INVALID_TXN_STATE
        assert await refused(a.prepare("a")) is ErrorCode.INVALID_TXN_STATE
        assert await refused(a.prepare("o")) is ErrorCode.INVALID_TXN_STATE
        capture = a.at.transactions.implicit_transactions.of("m")
        assert isinstance(capture, ManagedTransaction)
        await a.abort_member("m")
        assert capture.doomed == "it was aborted"


# -- descriptions


async def test_only_producer_ids_of_transactions_are_rejected() -> None:
    async with stage() as (_, control):
        assert await refused(control.reject(5)) is ErrorCode.INVALID_REQUEST


async def test_while_no_broker_answers_what_is_known_is_shown_with_its_age() -> None:
    async with stage() as (proxy, control):
        await begin(control)
        current = await control.list()
        assert ([row.state for row in current], current.stale) == (["Ongoing"], None)
        began = proxy.cluster.network.wall()
        await proxy.fake.stop_broker(1)
        with trio.fail_after(2):
            found = await control.list()
        assert ([row.state for row in found], found.stale is None) == (["Ongoing"], False)
        await eventually(lambda: not proxy.stats.upstream.ready)
        with trio.fail_after(2):
            described = await control.describe("id")
        assert (described.state, described.client_id) == ("Ongoing", "test")
        for stale in (found.stale, described.stale):
            assert stale is not None
            assert stale.as_of_ms is not None
            assert stale.as_of_ms <= began * 1000 + 1
            assert "Connection refused" in stale.reason
        assert described.stale is not None
        assert described.stale.reason.startswith("no broker answers since ")
        assert await refused(control.describe("other")) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        await proxy.fake.start_broker(1)
        await eventually(lambda: proxy.stats.upstream.ready)
        with trio.fail_after(PATIENCE):
            while (await control.list()).stale is not None:  # noqa: ASYNC110 - there is no event for a broker's return
                await trio.sleep(0.1)


async def test_while_brokers_are_silent_nothing_waits_for_them() -> None:
    async with stage() as (proxy, control):
        await begin(control)
        for key in (ApiKey.LIST_OFFSETS, ApiKey.METADATA):
            proxy.brokers.control(key, lambda _: Delay(3600))
        with trio.fail_after(2):
            found = await control.list()
        assert ([row.state for row in found], found.stale is None) == (["Ongoing"], False)
        assert found.stale is not None
        assert found.stale.reason == "no response within 1 s"


async def test_that_there_was_no_log_is_known_while_no_broker_answers() -> None:
    async with stage() as (proxy, control):
        assert (await control.list()).stale is None
        await proxy.fake.stop_broker(1)
        with trio.fail_after(2):
            found = await control.list()
        assert (found, found.stale is None) == ([], False)


async def test_a_log_that_was_never_read_is_unknown_but_not_what_is_open_at_the_broker() -> None:
    async with stage(**AT_BROKER) as (proxy, control):
        await begin(control)
        log = proxy.transactions.log
        log.absent_at = None  # as after a start on which no broker said whether there is a log
        proxy.brokers.control(ApiKey.METADATA, lambda _: Close())
        with trio.fail_after(2):
            found = await control.list()
        assert [row.transactional_id for row in found] == ["id"]
        assert found.stale is not None
        assert found.stale.as_of_ms is None
        assert "was not read yet" in found.stale.reason
        assert await refused(control.describe("other")) is ErrorCode.COORDINATOR_NOT_AVAILABLE


async def test_it_began_when_it_was_asked_for_or_when_its_first_record_came() -> None:
    async with several("a") as (a,):
        network = a.at.transactions._cluster.network
        await trio.sleep(5)
        began = int(network.wall() * 1000)
        assert (await a.begin_own()).started_ms == pytest.approx(began, abs=500)
        await trio.sleep(5)
        assert (await a.describe()).started_ms == pytest.approx(began, abs=500)
        await a.write("own", "1")
        view = a.at.transactions.views.of("id")
        assert view is not None
        assert view.ongoing is not None
        assert (await a.describe()).started_ms == view.ongoing.since.timestamp_ms


@pytest.mark.parametrize(
    ("kind", "state"), [(RecordKind.PARTITIONS, "Ongoing"), (RecordKind.DECISION, "PrepareCommit")]
)
async def test_what_is_not_in_the_log_yet_is_described(kind: RecordKind, state: str) -> None:
    async with instances.stage() as cast, trio.open_nursery() as nursery:
        a, gate = MemberGroup(await cast.instance()), LogGate(kind, Point.LATE)
        await a.begin_own()
        gate.close(cast)
        if kind is RecordKind.PARTITIONS:
            nursery.start_soon(a.write, "own", "1")
        else:
            await a.write("own", "1")
            nursery.start_soon(a.commit)
        await gate.reached.wait()
        found = await a.describe()
        assert found.state == state
        assert found.started_ms is not None
        gate.go.set()


async def test_a_decision_without_a_response_is_described_as_the_log_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    decide = LogDecider.decide

    async def and_fail(*what: Any, **how: Any) -> None:
        await decide(*what, **how)
        raise TxnError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "as the test says")

    async with several("a") as (a,):
        await a.begin_own()
        await a.write("own", "1")
        monkeypatch.setattr(LogDecider, "decide", and_fail)
        assert await refused(a.commit()) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert (await a.describe()).state == "CompleteCommit"
