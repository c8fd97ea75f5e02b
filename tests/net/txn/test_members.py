"""Members of a transaction, at instances of kproxy beside its owner's: decided together, or not at all."""

from typing import Any

import pytest
import trio
import trio.testing

from kproxy.codec._generated.transaction_expiry import TransactionExpiry
from kproxy.codec.messages import ErrorCode
from kproxy.net.txn import offset_mirror
from kproxy.net.txn.log_appender import AppendUnknown
from kproxy.proxy.coordinator_rules import Home, HomeRule
from kproxy.txn.ids import BLOCK_EPOCHS, LAST_EPOCH, Producer
from kproxy.txn.log_records import Entry, RecordKind
from kproxy.txn.procedures.member import Member
from kproxy.txn.procedures.member_transaction import MemberTransaction
from kproxy.txn.procedures.members import Joining, MakersByRule, Members, PlainMembers
from kproxy.txn.requests import Written
from kproxy.txn.txn_error import TxnError
from kproxy.txn.verdict import Verdict
from tests.net.harness import eventually
from tests.net.txn.instances import Cast, Client, Instance, stage
from tests.net.txn.log_harness import PATIENCE
from tests.net.txn.member_scene import MemberGroup, batch, refused, seen
from tests.net.txn.takeover_scene import Gate, Point, log_of
from tests.txn.procedures.managed_scene import managed_by

pytestmark = pytest.mark.idle_clock


@pytest.fixture(autouse=True)
def no_errands(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is committed stays in the log alone."""
    monkeypatch.setattr(offset_mirror, "_LINGER_SECONDS", 1000.0)


async def member_groups(cast: Cast, names: str) -> list[MemberGroup]:
    return [MemberGroup(await cast.instance(name)) for name in names]


def decisions(cast: Cast) -> int:
    return sum(entry.kind is RecordKind.DECISION for entry in log_of(cast))


async def test_members_at_several_instances_are_decided_by_one_append() -> None:
    async with stage(2) as cast:
        a, b, c = await member_groups(cast, "abc")
        owner = (await a.initialize()).owner
        for member_group, name in ((a, "m1"), (b, "m2"), (c, "m3")):
            await member_group.begin(name, owner)
            await member_group.write(name, name)
            found = await member_group.prepare(name)
            assert [part.prepared for part in found.parts if part.name == name] == [True]
        assert await seen(cast, a, b, c) == []
        done = await a.commit("m1", "m2", "m3", batch_id="1", owner=owner)
        assert done.last is not None
        assert (done.last.committed, done.parts) == (True, ())
        assert await seen(cast, a, b, c) == ["m1", "m2", "m3"]
        assert decisions(cast) == 1


async def test_any_instance_decides_and_a_batch_that_was_committed_is_a_success_everywhere() -> None:
    async with stage() as cast:
        a, b, c = await member_groups(cast, "abc")
        owner = (await a.initialize()).owner
        for batch in ("1", "2"):
            await b.begin(f"m{batch}", owner)
            await b.write(f"m{batch}", batch)
            await b.prepare(f"m{batch}")
            await b.prepare(f"m{batch}")  # its response was lost
            for member_group in (c, a, b):
                await member_group.commit(f"m{batch}", batch_id=batch, owner=owner)
        assert await seen(cast, a, b, c) == ["1", "2"]
        assert decisions(cast) == 2
        assert (await a.describe()).owner == owner


async def test_two_that_commit_one_batch_at_once_are_both_told_success() -> None:
    async with stage() as cast:
        a, b = await member_groups(cast, "ab")
        await a.initialize()
        await b.begin("m")
        await b.write("m", "1")
        await b.prepare("m")
        with trio.fail_after(PATIENCE):
            async with trio.open_nursery() as nursery:
                for member_group in (a, b, a, b):
                    nursery.start_soon(_commit_until_told, member_group)
        assert await seen(cast, a, b) == ["1"]


async def _commit_until_told(member_group: MemberGroup) -> None:
    while True:
        try:
            await member_group.commit("m", batch_id="1")
        except Exception as error:
            if getattr(error, "error_code", None) is not ErrorCode.CONCURRENT_TRANSACTIONS:
                raise
            continue
        return


async def test_an_older_owner_is_fenced_with_its_members() -> None:
    async with stage() as cast:
        a, b = await member_groups(cast, "ab")
        old = (await a.initialize()).owner
        await b.begin("old-open", old)
        await b.begin("old", old)
        await b.write("old", "1")
        await b.prepare("old")
        new = (await b.initialize()).owner
        for member_group in (a, b):
            assert await refused(member_group.commit("old", batch_id="1", owner=old)) is ErrorCode.PRODUCER_FENCED
            assert await refused(member_group.abort(owner=old, abort_others=True)) is ErrorCode.PRODUCER_FENCED
            assert await refused(member_group.begin("late", old)) is ErrorCode.PRODUCER_FENCED
        assert await refused(b.prepare("old-open")) is ErrorCode.TRANSACTION_ABORTABLE
        await a.begin("new", new)
        await a.write("new", "2")
        await a.prepare("new")
        done = await a.commit("new", batch_id="1", owner=new, abort_others=True)
        assert done.parts == ()
        assert await seen(cast, a, b) == ["2"]


async def test_a_member_that_is_not_prepared_is_named_and_nothing_is_decided() -> None:
    async with stage() as cast:
        a, b = await member_groups(cast, "ab")
        await a.initialize()
        await b.begin("m")
        await b.begin("n")
        await b.write("m", "1")
        await b.prepare("m")
        assert await refused(a.commit("m", "n")) is ErrorCode.INVALID_REQUEST
        assert await refused(b.begin("m")) is ErrorCode.INVALID_REQUEST
        assert await refused(a.prepare("n")) is ErrorCode.INVALID_TXN_STATE
        assert await seen(cast, a) == []
        await a.commit("m")
        assert await seen(cast, a, b) == ["1"]


async def test_a_late_attempt_that_prepares_after_the_decision_is_never_seen() -> None:
    async with stage() as cast:
        a, b = await member_groups(cast, "ab")
        await a.initialize()
        for name in ("m", "again"):
            await b.begin(name)
            await b.write(name, name)
        await b.prepare("m")
        await a.commit("m", batch_id="1", abort_others=True)
        await b.write("again", "late")
        assert await refused(b.prepare("again")) is ErrorCode.TRANSACTION_ABORTABLE
        assert await seen(cast, a, b) == ["m"]


async def test_others_that_are_prepared_are_aborted_also_when_the_batch_is_committed_already() -> None:
    async with stage() as cast:
        a, b = await member_groups(cast, "ab")
        await a.initialize()
        for name in ("m", "again"):
            await b.begin(name)
            await b.write(name, name)
            await b.prepare(name)
        await a.commit("m", batch_id="1")
        assert [part.name for part in (await a.describe()).parts] == ["again"]
        assert await seen(cast, a) == ["m"]
        await b.begin("open")
        assert (await b.commit("m", batch_id="1", abort_others=True)).parts == ()
        assert await refused(b.prepare("open")) is ErrorCode.TRANSACTION_ABORTABLE
        appended = len(log_of(cast))
        await b.commit("m", batch_id="1", abort_others=True)
        await b.abort(abort_others=True)
        assert len(log_of(cast)) == appended  # there is nothing more to be said
        assert await seen(cast, a, b) == ["m"]


async def test_an_abort_covers_members_by_name_or_all() -> None:
    async with stage() as cast:
        a, b = await member_groups(cast, "ab")
        await a.initialize()
        for name in ("m", "n", "o"):
            await b.begin(name)
            await b.write(name, name)
            await b.prepare(name)
        found = await a.abort("m")
        assert [part.name for part in found.parts] == ["n", "o"]
        await b.commit("n")
        assert (await a.abort(abort_others=True)).parts == ()
        assert await seen(cast, a, b) == ["n"]
        assert await refused(a.abort()) is ErrorCode.INVALID_TXN_STATE


async def test_own_data_and_members_are_one_transaction() -> None:
    async with stage() as cast:
        a, b = await member_groups(cast, "ab")
        owner = (await a.begin_own()).owner
        await a.write("own", "1")
        await b.begin("m", owner)
        await b.write("m", "2")
        await b.prepare("m")
        # what the owner wrote is known to its own instance alone
        assert await refused(b.commit("m", owner=owner)) is ErrorCode.CONCURRENT_TRANSACTIONS
        assert await seen(cast, a, b) == []
        await a.commit("m", batch_id="1", owner=owner)
        assert await seen(cast, a, b) == ["1", "2"]
        assert decisions(cast) == 1


async def test_members_alone_are_not_committed_where_the_owners_data_are_lost() -> None:
    async with stage() as cast:
        a, b = await member_groups(cast, "ab")
        owner = (await a.begin_own()).owner
        await a.write("own", "1")
        await b.begin("m", owner)
        await b.write("m", "2")
        await b.prepare("m")
        await a.at.kill()
        (again,) = await member_groups(cast, "a")
        views = again.at.transactions.views
        await eventually(lambda: not views.of("id").has_own_data())
        assert await refused(again.commit("m", owner=owner)) is ErrorCode.TRANSACTION_ABORTABLE
        assert await refused(b.commit("m", owner=owner)) is ErrorCode.TRANSACTION_ABORTABLE
        await again.abort("m")
        assert await seen(cast, again, b) == []


@pytest.mark.parametrize("killed", ["owners", "members", "both"])
async def test_what_is_prepared_outlives_every_instance(killed: str) -> None:
    async with stage() as cast:
        a, b = await member_groups(cast, "ab")
        owner = (await a.initialize()).owner
        await b.begin("m", owner)
        await b.write("m", "1")
        await b.prepare("m")
        await b.begin("open", owner)
        await b.write("open", "2")
        if killed != "members":
            await a.at.kill()
        if killed != "owners":
            await b.at.kill()
        c, d = await member_groups(cast, "cd")
        await c.commit("m", batch_id="1", owner=owner)
        await d.commit("m", batch_id="1", owner=owner)
        assert await seen(cast, c, d) == ["1"]


async def test_a_member_that_dies_before_it_is_prepared_is_none() -> None:
    async with stage() as cast:
        a, b = await member_groups(cast, "ab")
        owner = (await a.initialize()).owner
        await b.begin("m", owner)
        await b.write("m", "1")
        await b.at.kill()
        assert await refused(a.commit("m", owner=owner)) is ErrorCode.INVALID_REQUEST
        await a.begin("m-again", owner)
        await a.write("m-again", "2")
        await a.prepare("m-again")
        await a.commit("m-again", owner=owner)
        assert await seen(cast, a) == ["2"]


@pytest.mark.parametrize("point", [Point.LATE, Point.UNACKNOWLEDGED])
@pytest.mark.parametrize("kind", [RecordKind.MEMBER, RecordKind.PREPARE])
async def test_a_claim_comes_before_or_after_a_members_record(kind: RecordKind, point: Point) -> None:
    async with stage() as cast:
        a, b = await member_groups(cast, "ab")
        await a.initialize()
        gate = Gate(kind, point)
        told: list[ErrorCode | None] = []

        async def work() -> None:
            try:
                await b.begin("m")
                await b.write("m", "1")
                await b.prepare("m")
                told.append(None)
            except Exception as error:
                told.append(error.error_code)  # type: ignore[attr-defined]

        with trio.fail_after(PATIENCE):
            async with trio.open_nursery() as nursery:
                gate.close(cast)
                nursery.start_soon(work)
                await gate.reached.wait()
                new = (await a.initialize()).owner
                gate.go.set()
        prepared = {part.name for part in (await a.describe()).parts if part.prepared}
        if told == [None]:
            assert prepared == {"m"}
            await a.commit("m", owner=new)
            assert await seen(cast, a, b) == ["1"]
        else:
            assert told == [ErrorCode.TRANSACTION_ABORTABLE]
            assert await seen(cast, a, b) == []
        if kind is RecordKind.PREPARE:
            assert (told == [None]) is (point is Point.UNACKNOWLEDGED)


async def test_an_id_that_nobody_has_is_claimed_by_its_first_member() -> None:
    async with stage() as cast:
        a, b = await member_groups(cast, "ab")
        owner = (await b.begin("m", timeout_ms=5_000)).owner
        assert owner.producer_id >= 0
        assert (await a.describe()).timeout_ms == 5_000
        await b.write("m", "1")
        await b.prepare("m")
        await a.commit("m", owner=owner)
        assert await seen(cast, a, b) == ["1"]


async def test_members_take_turns_with_their_producer_ids() -> None:
    async with stage() as cast:
        a, b = await member_groups(cast, "ab")
        await a.initialize()
        ids: set[int] = set()
        for batch in range(BLOCK_EPOCHS // 16 + 2):
            for member in ("m", "n"):
                found = await b.begin(f"{member}{batch}")
                ids |= {part.producer_id for part in found.parts}
                await b.write(f"{member}{batch}", f"{member}{batch}")
                await b.prepare(f"{member}{batch}")
            await a.commit(f"m{batch}", f"n{batch}", batch_id=str(batch))
        assert len(ids) == 1  # one after another
        view = a.at.transactions.views.of("id")
        assert view is not None
        assert not view.members
        assert view.producer_ids() == {*view.generations, *ids}
        assert len(await seen(cast, a, b)) == 2 * (BLOCK_EPOCHS // 16 + 2)


async def test_members_that_nobody_decides_are_aborted_when_their_time_has_passed() -> None:
    async with stage() as cast:
        a, b = await member_groups(cast, "ab")
        await a.initialize(timeout_ms=500)
        await b.begin("kept")
        await b.write("kept", "1")
        await b.prepare("kept")
        await b.begin("open", timeout_ms=60_000)
        await b.write("open", "2")
        views = a.at.transactions.views
        view = views.of("id")
        assert view is not None
        (member,) = [part for part, one in view.members.items() if one.name == "open"]
        await eventually(lambda: views.verdict(*member) is not Verdict.UNDECIDED)
        assert await refused(b.prepare("open")) is ErrorCode.TRANSACTION_ABORTABLE
        await b.commit("kept")
        assert await seen(cast, a, b) == ["1"]


async def test_a_member_that_is_given_up_is_not_seen_and_its_client_writes_plainly_again() -> None:
    async with stage() as cast:
        a, b = await member_groups(cast, "ab")
        await a.initialize()
        await b.begin("m")
        await b.write("m", "1")
        await b.abort_member("m")
        assert b.at.transactions.implicit_transactions.of("m") is None
        assert await refused(b.prepare("m")) is ErrorCode.INVALID_TXN_STATE
        await b.begin("n")
        await b.write("n", "2")
        await b.prepare("n")
        await a.commit("n")
        assert await seen(cast, a, b) == ["2"]


async def test_a_client_that_may_send_again_dooms_its_part() -> None:
    async with stage() as cast:
        a, b = await member_groups(cast, "ab")
        await a.initialize()
        await b.begin("m")
        await b.write("m", "1")
        b.at.transactions.implicit_transactions.begun.closed(1, received_all=False)
        assert await refused(b.prepare("m")) is ErrorCode.TRANSACTION_ABORTABLE
        assert await seen(cast, a) == []


async def test_an_empty_batch_is_known_again() -> None:
    async with stage() as cast:
        a, b = await member_groups(cast, "ab")
        owner = (await a.initialize()).owner
        assert await refused(a.commit(owner=owner)) is ErrorCode.INVALID_TXN_STATE
        for member_group in (a, b):
            await member_group.commit(batch_id="1", owner=owner, abort_others=True)
        assert decisions(cast) == 1


async def test_a_member_that_was_committed_before_its_kproxy_read_that_it_is_prepared_gets_that_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with stage() as cast:
        a, b = await member_groups(cast, "ab")
        await a.initialize()
        await b.begin("m")
        await b.write("m", "1")
        log = b.at.transactions.log
        append = log.append

        async def unheard(entry: Entry, *details: int) -> None:
            await append(entry, *details)
            if entry.kind is RecordKind.PREPARE:
                await a.commit("m")
                raise AppendUnknown(0, ErrorCode.NETWORK_EXCEPTION)

        monkeypatch.setattr(log, "append", unheard)
        assert (await b.prepare("m")).parts == ()
        assert await seen(cast, a, b) == ["1"]


@pytest.mark.parametrize("late", [1, 2], ids=["before the next try", "after the next try was begun"])
async def test_a_member_is_not_refused_its_own_name_where_its_record_comes_late(
    late: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker does not answer the record that joins, and has it in the log when kproxy tries again."""
    async with stage() as cast:
        a, b = await member_groups(cast, "ab")
        await a.initialize()
        log, waiting, tries, reads = b.at.transactions.log, list[tuple[Any, ...]](), list[str](), list[str]()
        append, read = log.append, log.read_to_end

        async def unheard(*record: Any) -> Any:
            if record[0].kind is not RecordKind.MEMBER or len(tries) == late:
                return await append(*record)
            tries.append(record[0].body.name)
            waiting.append(record)
            raise AppendUnknown(0, ErrorCode.REQUEST_TIMED_OUT)

        async def read_late(transactional_id: str) -> Any:
            reads.extend(["after the last try"] if len(tries) == late else [])
            if len(reads) == 2:
                await append(*waiting[0])
            return await read(transactional_id)

        monkeypatch.setattr(log, "append", unheard)
        monkeypatch.setattr(log, "read_to_end", read_late)
        await b.begin("m")
        assert len(reads) >= 2
        await b.write("m", "1")
        await b.prepare("m")
        await a.commit("m")
        assert await seen(cast, a, b) == ["1"]


async def test_a_request_that_begins_a_member_is_repeated_until_the_member_has_data() -> None:
    async with stage() as cast:
        a, b = await member_groups(cast, "ab")
        owner = (await a.initialize()).owner
        first = await b.begin("m", owner)
        assert await b.begin("m", owner) == first  # its response was lost
        again = b.control.begin_member("id", "m", client_id="another", owner=owner)
        assert await refused(again) is ErrorCode.CONCURRENT_TRANSACTIONS
        await b.write("m", "1")
        assert await refused(b.begin("m", owner)) is ErrorCode.CONCURRENT_TRANSACTIONS
        assert await refused(a.begin("m", owner)) is ErrorCode.INVALID_REQUEST
        await b.prepare("m")
        await a.commit("m")
        assert await seen(cast, a, b) == ["1"]


async def test_a_member_that_a_newer_owner_has_aborted_is_not_begun_by_a_repeated_request() -> None:
    async with stage() as cast:
        a, b = await member_groups(cast, "ab")
        owner = (await a.initialize()).owner
        await b.begin("m", owner)
        await a.initialize()
        assert await refused(b.begin("m", owner)) is ErrorCode.CONCURRENT_TRANSACTIONS


@pytest.mark.parametrize("home", [(), (HomeRule("*", Home.BROKER),)], ids=["kproxy", "broker"])
async def test_a_member_is_aborted_unless_all_records_of_its_client_came_here(home: tuple[HomeRule, ...]) -> None:
    """The client wrote to a broker, or to another kproxy, where its records are outside of the transaction."""
    async with stage(transactions_home=home) as cast:
        member_group = MemberGroup(await cast.instance())
        await member_group.initialize()
        for member, written in (("none", 0), ("some", 2), ("all", 3)):
            await member_group.begin(member)
            for value in range(written):
                await member_group.write(member, f"{member} {value}")
        assert await refused(member_group.prepare("none", 3)) is ErrorCode.TRANSACTION_ABORTABLE
        assert await refused(member_group.prepare("some", 3)) is ErrorCode.TRANSACTION_ABORTABLE
        await member_group.prepare("all", 3)
        await member_group.prepare("all", 3)  # the response was lost
        assert await refused(member_group.commit("some", "all")) is ErrorCode.INVALID_REQUEST
        assert [part.name for part in (await member_group.describe()).parts if part.prepared] == ["all"]


class FakeMember:
    """Joins, and prepares, as a test says."""

    def __init__(self, at: "Brokers", transactional_id: str, name: str, producer: Producer) -> None:
        self.transactional_id, self.name, self.producer = transactional_id, name, producer
        self._at = at

    async def join(self, *_: object) -> bool:
        result = self._at.results.pop(0) if self._at.results else True
        if isinstance(result, Exception):
            raise result
        return result

    def has_joined(self, _: object) -> bool:
        return False

    async def produce(self, batches: Any, accepted: Any) -> Any:
        return [Written(0, 5, -1)] * len(batches)

    async def prepare(self) -> None:
        self._at.done.append("prepare")
        if self._at.results:
            raise self._at.results.pop(0)

    async def give_up(self) -> None:
        self._at.done.append("give up")

    def close(self) -> None:
        self._at.done.append("close")


class Brokers:
    """Makes such members; also for a transaction that has one."""

    def __init__(self, *results: Any) -> None:
        #: Of the next attempts to join, or to prepare: an error is raised.
        self.results = list(results)
        self.made: list[tuple[str, str, Producer, int]] = []
        self.done: list[str] = []
        self.serve = True

    async def make(self, transactional_id: str, name: str, producer: Producer, _: object, timeout_ms: int) -> Any:
        self.made.append((transactional_id, name, producer, timeout_ms))
        return FakeMember(self, transactional_id, name, producer)

    async def join(self, wanted: Joining) -> Any:
        return FakeMember(self, wanted.transactional_id, wanted.name, Producer(1, 0))

    def leave(self, member: Any) -> None:
        self.done.append("leave")


def wanted(name: str = "m", *, transactional_id: str = "id", prefers_broker: bool = False) -> Joining:
    return Joining(transactional_id, name, None, "first", 5_000, prefers_broker)


def members_at(at: Instance, brokers: Brokers) -> Members:
    """Members of "own" are plain, and those of "auto" what they wish for."""

    def is_at_broker(name: str) -> bool | None:
        return {"own": False, "auto": None}.get(name, True)

    async def brokers_serve() -> bool:
        return brokers.serve

    makers = MakersByRule(PlainMembers(), brokers, is_at_broker, brokers_serve)
    return Members(at.transactions.coordinator.log._tools, makers)


class TestJoining:
    async def test_its_transactional_id_says_who_makes_a_member(self) -> None:
        async with stage() as cast:
            brokers = Brokers()
            members = members_at(await cast.instance(), brokers)
            with trio.fail_after(PATIENCE):
                assert isinstance(await members.join(wanted("n", transactional_id="own")), Member)
                await members.join(wanted())
            assert [(row[0], row[1], row[3]) for row in brokers.made] == [("id", "m", 5_000)]

    async def test_without_a_rule_its_wish_counts_where_brokers_serve_transactions(self) -> None:
        async with stage() as cast:
            brokers = Brokers()
            members = members_at(await cast.instance(), brokers)
            with trio.fail_after(PATIENCE):
                await members.join(wanted("a", transactional_id="own", prefers_broker=True))
                await members.join(wanted("b", transactional_id="auto"))
                await members.join(wanted("c", transactional_id="auto", prefers_broker=True))
                brokers.serve = False
                await members.join(wanted("d", transactional_id="auto", prefers_broker=True))
            assert [row[1] for row in brokers.made] == ["c"]

    async def test_one_that_others_came_before_tries_again_with_the_next_epoch(self) -> None:
        async with stage() as cast:
            brokers = Brokers(False, False)
            members = members_at(await cast.instance(), brokers)
            with trio.fail_after(PATIENCE):
                member = await members.join(wanted())
            assert [row[2].epoch for row in brokers.made] == [0, 1, 2]
            assert len({row[2].producer_id for row in brokers.made}) == 1
            assert member.producer == brokers.made[-1][2]
            assert brokers.done == ["close", "close"]

    async def test_it_does_not_try_for_ever(self) -> None:
        async with stage() as cast:
            brokers = Brokers(*[False] * 20)
            members = members_at(await cast.instance(), brokers)
            assert await refused(members.join(wanted())) is ErrorCode.CONCURRENT_TRANSACTIONS
            assert len(brokers.made) == 9  # the first try has claimed the id

    async def test_one_that_fails_is_closed_and_its_producer_id_is_not_used_again(self) -> None:
        async with stage() as cast:
            brokers = Brokers(TxnError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the log"))
            members = members_at(await cast.instance(), brokers)
            assert await refused(members.join(wanted())) is ErrorCode.COORDINATOR_NOT_AVAILABLE
            assert brokers.done == ["close"]
            with trio.fail_after(PATIENCE):
                await members.join(wanted())
            first, second = (row[2] for row in brokers.made)
            assert (first.epoch, second.epoch) == (0, 0)
            assert first.producer_id != second.producer_id

    async def test_producer_ids_are_those_of_one_transactional_id(self) -> None:
        async with stage() as cast:
            brokers = Brokers()
            members = members_at(await cast.instance(), brokers)
            with trio.fail_after(PATIENCE):
                for name in ("a", "z", "id"):
                    await members.join(wanted(transactional_id=name))
                for name in ("a", "z"):
                    at = next(row for row in brokers.made if row[0] == name)
                    members.leave(await brokers.make(name, "left", at[2], None, 0))
                await members.join(wanted(transactional_id="id"))
                await members.join(wanted(transactional_id="z"))
            ids = {row[2] for row in brokers.made if row[0] == "id"}
            assert {one.epoch for one in ids} == {0}
            assert len(ids) == 2
            assert brokers.made[-1][2].epoch == 1

    @pytest.mark.parametrize(("epoch", "is_used"), [(LAST_EPOCH - 1, True), (LAST_EPOCH, False)])
    async def test_a_producer_id_is_used_up_to_its_last_epoch(self, epoch: int, *, is_used: bool) -> None:
        async with stage() as cast:
            brokers = Brokers()
            members = members_at(await cast.instance(), brokers)
            members.leave(await brokers.make("id", "left", Producer(7, epoch), None, 0))
            with trio.fail_after(PATIENCE):
                await members.join(wanted())
            assert (brokers.made[-1][2].producer_id == 7) is is_used

    async def test_a_member_elsewhere_claims_for_the_owner(self) -> None:
        """The owner's claim has no epoch left, or has expired."""
        async with stage() as cast:
            a, b, client = await cast.instance("a"), await cast.instance("b"), Client("id")
            await client.init(a)
            view = a.transactions.views.of("id")
            assert view is not None
            assert view.claim is not None
            await a.transactions.log.append_unfenced(Entry("id", TransactionExpiry(view.claim.nonce)))
            with trio.fail_after(PATIENCE):
                await members_at(b, Brokers()).join(wanted())
                after = await a.transactions.log.read_to_end("id")
            assert after is not None
            assert after.claim is not None
            assert not after.expired
            assert (after.client, after.claim.instance_id, after.claim.client_id) == (client.producer, "a", "test")


class FakeCoordinator:
    """Of a transaction that takes everything at once."""

    instance_id = "box"

    def renews_timestamps(self, client_id: str) -> bool:
        return False

    def takes_at_once(self, *_: object) -> bool:
        return True

    def start(self, work: object) -> None:
        """Nothing is open at the owner's."""


def member_transaction(brokers: Brokers) -> MemberTransaction:
    members: Any = brokers
    return MemberTransaction(managed_by(FakeCoordinator()), members, wanted())


class TestTransaction:
    async def test_a_member_that_has_not_joined_writes_and_prepares_nothing(self) -> None:
        brokers = Brokers()
        one = member_transaction(brokers)
        write = one.write([batch("1", ("t", 0))], refused=False, accepted=lambda: None)
        for work in (write, one.prepare()):
            with pytest.raises(TxnError, match="TRANSACTION_ABORTABLE: the member has not joined"):
                await work
        await one.abort()
        assert brokers.done == []

    async def test_it_leaves_once_it_is_prepared(self) -> None:
        brokers = Brokers()
        one = member_transaction(brokers)
        await one.join()
        rows = await one.write([batch("1", ("t", 0))], refused=False, accepted=lambda: None)
        assert list(rows) == [Written(0, 5, -1)]
        assert not one.takes_at_once([])
        await one.prepare()
        assert brokers.done == ["prepare", "leave"]
        await one.abort()
        assert brokers.done == ["prepare", "leave"]

    @pytest.mark.parametrize(
        ("error", "gives_up"), [(ErrorCode.TRANSACTION_ABORTABLE, True), (ErrorCode.COORDINATOR_NOT_AVAILABLE, False)]
    )
    async def test_one_that_may_be_prepared_is_not_given_up(self, error: ErrorCode, *, gives_up: bool) -> None:
        brokers = Brokers(TxnError(error, "as the test says"))
        one = member_transaction(brokers)
        await one.join()
        assert await refused(one.prepare()) is error
        assert brokers.done == ["prepare", *(["give up"] if gives_up else []), "leave"]

    @pytest.mark.parametrize("why", [None, "a batch was refused"])
    async def test_an_abort_gives_it_up_and_waits_for_what_is_in_flight(self, why: str | None) -> None:
        brokers = Brokers()
        one = member_transaction(brokers)
        await one.join()
        one.doomed = why
        one.took(1, answered=True)
        ended: list[str] = []

        async def abort() -> None:
            await one.abort()
            ended.append("now")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(abort)
            await trio.testing.wait_all_tasks_blocked()
            assert ended == []
            assert brokers.done == ["give up", "leave"]
            one.done()
        assert ended == ["now"]
        assert one.doomed == (why or "it was aborted")
