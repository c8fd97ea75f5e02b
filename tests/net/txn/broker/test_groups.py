"""Groups of producers whose members write in the broker's own transactions: decided by one append in kproxy's log.

Readers are plain read_committed consumers of the broker, which know nothing of kproxy.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
import trio

from kproxy.codec.messages import ApiKey, ErrorCode
from kproxy.proxy.coordinator_rules import Home, HomeRule
from kproxy.testing.fake_broker import Call, Close, ClusterConfig
from kproxy.testing.fake_broker.apis import APIS
from kproxy.testing.fake_broker.controls import Fault
from kproxy.testing.fake_broker.transactional_ids import TxnState
from kproxy.txn.log_records import RecordKind
from kproxy.txn.procedures import broker_ends
from kproxy.txn.procedures.broker_ends import BrokerEnds
from kproxy.txn.txn_error import TxnError
from tests.net.harness import eventually
from tests.net.txn.broker.native_stage import values
from tests.net.txn.instances import Cast, stage
from tests.net.txn.member_scene import MemberGroup, refused
from tests.net.txn.takeover_scene import log_of

pytestmark = pytest.mark.idle_clock

AT_HOME = (HomeRule("*", Home.BROKER),)


@pytest.fixture(params=[1, 2], ids=["TV1", "TV2"])
def level(request: pytest.FixtureRequest) -> int:
    found: int = request.param
    return found


@pytest.fixture
def slow_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody tells the broker in the background what was decided."""
    monkeypatch.setattr(broker_ends, "_SWEEP_SECONDS", 1000.0)


@pytest.fixture
def quick_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_ends, "_SWEEP_SECONDS", 0.01)
    monkeypatch.setattr(broker_ends, "_OTHERS_SECONDS", 0.02)


@asynccontextmanager
async def at_home(level: int = 2, brokers: int = 1, **options: Any) -> AsyncIterator[Cast]:
    have = ClusterConfig(transaction_version=level, transaction_max_timeout_ms=options.pop("longest_ms", 900_000))
    async with stage(brokers, brokers_have=have, transactions_home=AT_HOME, **options) as cast:
        yield cast


async def member_groups(cast: Cast, names: str) -> list[MemberGroup]:
    return [MemberGroup(await cast.instance(name)) for name in names]


def seen(cast: Cast, partition: int = 0) -> list[str]:
    return values(cast.fake.cluster, partition)


async def written(member_group: MemberGroup, member: str, *places: tuple[str, int], owner: Any = None) -> None:
    await member_group.begin(member, owner)
    await member_group.write(member, member, *places)
    await member_group.prepare(member)


def ended(cast: Cast) -> int:
    """Members whose end is in the log; on a busy machine two instances may each write it."""
    bodies: list[Any] = [entry.body for entry in log_of(cast) if entry.kind is RecordKind.ENDED]
    return len({(body.producer_id, body.epoch) for body in bodies})


def states(cast: Cast) -> list[TxnState]:
    ids = cast.fake.cluster.transactional_ids
    return [one.state for name, one in sorted(ids.items()) if name.startswith("kproxy-member-")]


async def test_members_at_several_instances_show_together(level: int) -> None:
    async with at_home(level, brokers=2) as cast:
        a, b, c = await member_groups(cast, "abc")
        owner = (await a.initialize()).owner
        for member_group, name in ((a, "m1"), (b, "m2"), (c, "m3")):
            await written(member_group, name, ("t", 0), ("t", 1), owner=owner)
        assert (seen(cast), seen(cast, 1)) == ([], [])
        done = await a.commit("m1", "m2", "m3", batch_id="1", owner=owner)
        assert (done.state, done.parts) == ("CompleteCommit", ())
        await eventually(lambda: len(seen(cast)) == len(seen(cast, 1)) == 3)
        assert sorted(seen(cast)) == sorted(seen(cast, 1)) == ["m1", "m2", "m3"]
        await eventually(lambda: ended(cast) == 3)
        assert [entry.kind for entry in log_of(cast)].count(RecordKind.DECISION) == 1


async def test_what_is_aborted_or_left_out_never_shows(level: int) -> None:
    async with at_home(level) as cast:
        a, b = await member_groups(cast, "ab")
        owner = (await a.initialize()).owner
        await written(a, "m1", owner=owner)
        await written(b, "m2", owner=owner)
        assert (await a.abort("m1", owner=owner)).state == "CompleteAbort"
        await b.begin("open", owner)
        await b.write("open", "open")
        await b.commit("m2", owner=owner, abort_others=True)
        await eventually(lambda: ended(cast) == 3)
        assert seen(cast) == ["m2"]
        assert cast.fake.cluster.topics["t"].partitions[0].log.transactions.stable_offset(99) == 99


async def test_a_batch_that_was_committed_is_a_success_everywhere(level: int) -> None:
    async with at_home(level) as cast:
        a, b = await member_groups(cast, "ab")
        owner = (await a.initialize()).owner
        for batch in ("1", "2"):
            await written(b, f"m{batch}", owner=owner)
            for member_group in (b, a, b):
                await member_group.commit(f"m{batch}", batch_id=batch, owner=owner)
        assert seen(cast) == ["m1", "m2"]


@pytest.mark.parametrize("batch_id", ["1", None])
async def test_a_commit_that_was_decided_while_the_brokers_are_asked_is_not_called_aborted(
    batch_id: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first copy of a request has no response; the second has read the log before the first one is decided."""
    async with at_home() as cast:
        a, b = await member_groups(cast, "ab")
        await a.initialize()
        await written(a, "m1")
        votes = b.control._members._ports._told.votes
        asks = votes._describe

        async def overtaken() -> bool:
            await a.commit("m1", batch_id=batch_id)
            await eventually(lambda: states(cast) == [TxnState.COMPLETE_COMMIT])
            return await asks()

        monkeypatch.setattr(votes, "_describe", overtaken)
        if batch_id is not None:
            await b.commit("m1", batch_id=batch_id)
        else:
            assert await refused(b.commit("m1")) is ErrorCode.INVALID_REQUEST
        assert seen(cast) == ["m1"]


async def test_a_late_copy_of_the_request_that_begins_a_member_does_not_abort_it(level: int) -> None:
    """An InitProducerId without a response may still come; it would abort what the member has written since."""
    late: list[Call] = []

    def hold(call: Call) -> Fault | None:
        if not (call.request.transactional_id or "").startswith("kproxy-member-") or late:
            return None
        late.append(call)
        return Close()

    async with at_home(level) as cast:
        (a,) = await member_groups(cast, "a")
        await a.initialize()
        cast.fake.cluster.control(ApiKey.INIT_PRODUCER_ID, hold)
        await written(a, "m1")
        await APIS[ApiKey.INIT_PRODUCER_ID].handle(late[0])
        await a.commit("m1", batch_id="1")
        assert seen(cast) == ["m1"]


class Held:
    """The first requests of members for which the broker gives no response; they arrive when a test says so."""

    def __init__(self, cast: Cast, key: ApiKey, name: str, most: int = 1, after: int = 0) -> None:
        self.calls: list[Call] = []
        self._key, self._name, self._most, self._after = key, name, most, after
        cast.fake.cluster.control(key, self._hold)

    def _hold(self, call: Call) -> Fault | None:
        if not (getattr(call.request, self._name) or "").startswith("kproxy-member-"):
            return None
        if self._after or len(self.calls) == self._most:
            self._after -= bool(self._after)
            return None
        self.calls.append(call)
        return Close()

    async def arrive(self) -> None:
        for call in self.calls:
            await APIS[self._key].handle(call)


def adds_held(cast: Cast) -> Held:
    return Held(cast, ApiKey.ADD_PARTITIONS_TO_TXN, "v3_and_below_transactional_id")


async def test_partitions_that_are_added_after_the_end_leave_nothing_open() -> None:
    """Below transaction.version 2 the late request has the epoch that the transactional id still has."""
    async with at_home(1) as cast:
        (a,) = await member_groups(cast, "a")
        await a.initialize()
        late = adds_held(cast)
        await written(a, "m1")
        await a.commit("m1", batch_id="1")
        await eventually(lambda: ended(cast) == 1)
        await late.arrive()
        await eventually(lambda: states(cast) == [TxnState.COMPLETE_ABORT] or late_is_refused(cast))
        assert seen(cast) == ["m1"]


def late_is_refused(cast: Cast) -> bool:
    """The epoch was raised before the request came."""
    return states(cast) == [TxnState.EMPTY]


async def test_an_id_whose_fence_may_come_late_is_not_used_again() -> None:
    async with at_home(1) as cast:
        (a,) = await member_groups(cast, "a")
        await a.initialize()
        late = Held(cast, ApiKey.INIT_PRODUCER_ID, "transactional_id", after=1)
        await written(a, "m1")
        await a.commit("m1", batch_id="1")
        await eventually(lambda: late_is_refused(cast))  # the fence was repeated
        assert len(late.calls) == 1
        await written(a, "m2")
        await late.arrive()
        await a.commit("m2", batch_id="2")
        assert seen(cast) == ["m1", "m2"]
        assert len(states(cast)) == 2


@pytest.mark.usefixtures("slow_ends")
async def test_another_instance_decides_after_the_end_of_the_members(level: int) -> None:
    async with at_home(level) as cast:
        a, b = await member_groups(cast, "ab")
        owner = (await a.initialize()).owner
        await written(a, "m1", owner=owner)
        await written(b, "m2", owner=owner)
        await a.at.kill()
        await b.at.kill()
        (again,) = await member_groups(cast, "a")
        found = await again.describe()
        assert [(part.name, part.prepared) for part in found.parts] == [("m1", True), ("m2", True)]
        assert all(part.expires_ms is not None for part in found.parts)
        await again.commit("m1", "m2", batch_id="1", owner=owner)
        assert seen(cast) == ["m1", "m2"]


@pytest.mark.usefixtures("quick_ends")
@pytest.mark.parametrize("decided", [True, False], ids=["commit", "abort"])
async def test_the_deciding_instance_dies_before_the_broker_is_informed(
    level: int, decided: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with at_home(level) as cast:
        a, b = await member_groups(cast, "ab")
        owner = (await a.initialize()).owner
        await written(a, "m1", owner=owner)
        await written(b, "m2", owner=owner)
        told, end_now = trio.Event(), BrokerEnds._end_now

        async def later(ends: BrokerEnds, left: Any) -> None:
            await told.wait()
            await end_now(ends, left)

        monkeypatch.setattr(BrokerEnds, "_end_now", later)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_ends_or_not, a.commit if decided else a.abort, "m1", "m2")
            await eventually(lambda: any(entry.kind is RecordKind.DECISION for entry in log_of(cast)))
            await a.at.kill()
            nursery.cancel_scope.cancel()
        assert seen(cast) == []
        assert (await b.describe()).state == ("PrepareCommit" if decided else "PrepareAbort")
        told.set()  # at the other instance, which may have begun to wait for it
        await eventually(lambda: ended(cast) == 2)
        assert seen(cast) == (["m1", "m2"] if decided else [])
        assert (await b.describe()).state == ("CompleteCommit" if decided else "CompleteAbort")


async def _ends_or_not(work: Callable[..., Any], *members: str) -> None:
    with suppress(TxnError):  # it is killed
        await work(*members)


@pytest.mark.usefixtures("quick_ends")
async def test_a_crash_between_the_broker_and_the_log_is_repeated(level: int, monkeypatch: pytest.MonkeyPatch) -> None:
    async with at_home(level) as cast:
        a, b = await member_groups(cast, "ab")
        owner = (await a.initialize()).owner
        await b.describe()  # from now on it follows the log
        await written(a, "m1", owner=owner)
        with monkeypatch.context() as held:
            log = a.at.transactions.log
            held.setattr(log, "append_unfenced", _refuse)
            await a.commit("m1", batch_id="1", owner=owner)
            assert seen(cast) == ["m1"]
            await a.at.kill()
        await eventually(lambda: ended(cast) == 1)
        assert b.at.stats.transactions.torn == 0
        assert (await b.describe()).state == "CompleteCommit"
        assert seen(cast) == ["m1"]


async def _refuse(*_: Any) -> None:
    raise OSError("the log can't be had")


@pytest.mark.usefixtures("quick_ends")
async def test_members_that_died_open_are_ended_with_what_they_joined(level: int) -> None:
    async with at_home(level) as cast:
        a, b = await member_groups(cast, "ab")
        owner = (await a.initialize()).owner
        await b.begin("m1", owner)
        await b.write("m1", "lost")
        await b.at.kill()
        assert states(cast) == [TxnState.ONGOING]
        await a.initialize()
        await eventually(lambda: ended(cast) == 1)
        assert states(cast) == [TxnState.COMPLETE_ABORT]
        assert seen(cast) == []


@pytest.mark.usefixtures("slow_ends")
async def test_a_member_that_is_given_up_holds_no_reader_up(level: int) -> None:
    async with at_home(level) as cast:
        (a,) = await member_groups(cast, "a")
        await a.initialize()
        await a.begin("m1")
        await a.write("m1", "lost")
        await a.abort_member("m1")
        assert states(cast) == [TxnState.COMPLETE_ABORT]
        assert await refused(a.prepare("m1")) is ErrorCode.INVALID_TXN_STATE
        assert await refused(a.commit("m1")) is ErrorCode.INVALID_REQUEST


async def test_ids_of_the_brokers_are_used_again_once_the_log_knows(level: int) -> None:
    async with at_home(level) as cast:
        (a,) = await member_groups(cast, "a")
        await a.initialize()
        for batch in range(5):
            for name in ("m", "n"):
                await written(a, f"{name}{batch}")
            await a.commit(f"m{batch}", f"n{batch}", batch_id=str(batch))
        assert len(states(cast)) == 2
        assert len(seen(cast)) == 10


async def test_an_empty_member_is_committed_without_the_broker(level: int) -> None:
    async with at_home(level) as cast:
        (a,) = await member_groups(cast, "a")
        await a.initialize()
        await a.begin("m1")
        await a.prepare("m1")
        await a.commit("m1")
        assert (states(cast), ended(cast)) == ([TxnState.EMPTY], 1)


# -- limits


@pytest.mark.usefixtures("slow_ends")
async def test_what_the_broker_has_ended_is_not_committed_in_part(level: int) -> None:
    async with at_home(level) as cast:
        (a,) = await member_groups(cast, "a")
        await a.initialize()
        await written(a, "m1")
        await written(a, "m2")
        name = next(name for name in sorted(cast.fake.cluster.transactional_ids) if name.startswith("kproxy-member-"))
        cast.fake.cluster.transactional_ids[name].fence()
        assert await refused(a.commit("m1", "m2", batch_id="1")) is ErrorCode.TRANSACTION_ABORTABLE
        assert [part.name for part in (await a.describe()).parts] == ["m1", "m2"]
        await a.abort(abort_others=True)
        assert (seen(cast), a.at.stats.transactions.torn) == ([], 0)


async def test_a_member_may_not_take_longer_than_the_broker_lets_it() -> None:
    async with at_home(longest_ms=50_000) as cast:
        (a,) = await member_groups(cast, "a")
        assert await refused(a.initialize(timeout_ms=60_000)) is ErrorCode.INVALID_TRANSACTION_TIMEOUT
        await a.initialize(timeout_ms=40_000)
        assert await refused(a.begin("m1", timeout_ms=60_000)) is ErrorCode.INVALID_TRANSACTION_TIMEOUT
        found = await a.begin("m2", timeout_ms=50_000)
        assert [part.name for part in found.parts] == ["m2"]


async def test_who_has_no_time_left_is_not_committed() -> None:
    async with at_home(longest_ms=400) as cast:
        (a,) = await member_groups(cast, "a")
        await a.initialize(timeout_ms=400)
        await written(a, "m1")
        a.at.transactions._time.observe(trio.current_time(), cast.fake.cluster.clock() + 390)
        assert await refused(a.commit("m1")) is ErrorCode.TRANSACTION_ABORTABLE


# -- what can't be


async def test_what_the_id_itself_has_open_is_decided_alone() -> None:
    async with at_home() as cast:
        (a,) = await member_groups(cast, "a")
        owner = (await a.begin_own()).owner
        await a.begin("m1")
        prepare = a.control.prepare("id", owner=owner)
        for work in (a.commit("m1"), a.commit(abort_others=True), a.abort("m1"), prepare):
            assert await refused(work) is ErrorCode.INVALID_REQUEST
        await a.write("own", "1")
        assert (await a.commit()).state == "CompleteCommit"
        assert seen(cast) == ["1"]


async def test_an_id_that_nobody_knows_is_the_brokers() -> None:
    async with at_home() as cast:
        (a,) = await member_groups(cast, "a")
        for work in (a.commit("m1"), a.abort(), a.describe()):
            assert await refused(work) is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
