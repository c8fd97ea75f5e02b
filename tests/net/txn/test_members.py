"""Members of a transaction, at instances of kproxy beside its owner's: decided together, or not at all."""

import pytest
import trio

from kproxy.codec.messages import ErrorCode
from kproxy.net.txn import offset_mirror
from kproxy.net.txn.log_appender import AppendUnknown
from kproxy.proxy.coordinator_rules import Home, HomeRule
from kproxy.txn.ids import BLOCK_EPOCHS
from kproxy.txn.log_records import Entry, Kind
from kproxy.txn.verdict import Verdict
from tests.net.harness import eventually
from tests.net.txn.instances import Cast, stage
from tests.net.txn.log_harness import PATIENCE
from tests.net.txn.member_scene import MemberGroup, refused, seen
from tests.net.txn.takeover_scene import Gate, Point, log_of

pytestmark = pytest.mark.idle_clock


@pytest.fixture(autouse=True)
def no_errands(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is committed stays in the log alone."""
    monkeypatch.setattr(offset_mirror, "_LINGER_SECONDS", 1000.0)


async def member_groups(cast: Cast, names: str) -> list[MemberGroup]:
    return [MemberGroup(await cast.instance(name)) for name in names]


def decisions(cast: Cast) -> int:
    return sum(entry.kind is Kind.DECISION for entry in log_of(cast))


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
@pytest.mark.parametrize("kind", [Kind.MEMBER, Kind.PREPARE])
async def test_a_claim_comes_before_or_after_a_members_record(kind: Kind, point: Point) -> None:
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
        if kind is Kind.PREPARE:
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
            if entry.kind is Kind.PREPARE:
                await a.commit("m")
                raise AppendUnknown(0, ErrorCode.NETWORK_EXCEPTION)

        monkeypatch.setattr(log, "append", unheard)
        assert (await b.prepare("m")).parts == ()
        assert await seen(cast, a, b) == ["1"]


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
