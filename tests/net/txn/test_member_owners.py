"""Owners with data of their own beside their members', after they were replaced."""

import pytest

from kproxy.codec.messages import ErrorCode
from kproxy.net.txn import offset_mirror
from kproxy.txn.described import OwnerId
from kproxy.txn.procedures.managed_transaction import ManagedTransaction
from tests.net.txn.instances import Cast, stage
from tests.net.txn.member_scene import MemberGroup, refused, seen
from tests.net.txn.takeover_scene import log_of


@pytest.fixture(autouse=True)
def no_errands(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is committed stays in the log alone."""
    monkeypatch.setattr(offset_mirror, "_LINGER_SECONDS", 1000.0)


async def test_a_newer_owner_decides_where_an_older_one_has_left_something_open() -> None:
    async with stage() as cast:
        a, b = MemberGroup(await cast.instance("a")), MemberGroup(await cast.instance("b"))
        old = (await a.begin_own()).owner
        await a.write("own", "1")
        new = (await b.initialize()).owner
        await b.begin("m", new)
        await b.write("m", "2")
        await b.prepare("m")
        await a.commit("m", batch_id="1", owner=new)
        assert (await a.abort(owner=new, abort_others=True)).parts == ()
        assert await refused(a.commit(owner=old)) is ErrorCode.PRODUCER_FENCED
        assert await seen(cast, a, b) == ["2"]


async def test_a_commit_that_is_repeated_after_an_abort_of_the_owners_data_does_not_commit_the_members_alone() -> None:
    async with stage() as cast:
        a = MemberGroup(await cast.instance("a"))
        owner = (await a.begin_own()).owner
        await a.write("own", "1")
        await a.begin("m", owner)
        await a.write("m", "2")
        await a.prepare("m")
        capture = a.at.transactions.implicit_transactions.of("own")
        assert isinstance(capture, ManagedTransaction)
        capture.failed("a batch of the client was refused")
        for _ in range(2):  # the first response is lost
            assert await refused(a.commit("m", batch_id="1", owner=owner)) is ErrorCode.TRANSACTION_ABORTABLE
        assert await seen(cast, a) == []
        assert (await a.abort(owner=owner, abort_others=True)).parts == ()
        await a.begin("n", owner)
        await a.write("n", "3")
        await a.prepare("n")
        await a.commit("n", batch_id="1", owner=owner)
        assert await seen(cast, a) == ["3"]


@pytest.mark.parametrize("written", [True, False])
async def test_what_another_kproxy_aborted_by_hand_is_not_open_any_more(written: bool) -> None:
    """Else the next commit at the first kproxy is refused, or takes what its client has written since."""
    async with stage() as cast:
        a, b = MemberGroup(await cast.instance("a")), MemberGroup(await cast.instance("b"))
        owner = (await a.begin_own()).owner
        if written:
            await a.write("own", "aborted")
        await a.begin("old", owner)
        await b.abort(owner=owner, abort_others=True)
        await b.begin("m", owner)
        await b.write("m", "1")
        await b.prepare("m")
        done = await a.commit("m", batch_id="1", owner=owner)
        assert done.state == "CompleteCommit"
        assert a.at.transactions.implicit_transactions.of("own") is None
        assert await seen(cast, a, b) == ["1"]
        await a.begin_own()
        await a.write("own", "2")
        await a.commit(batch_id="2")
        assert await seen(cast, a, b) == ["1", "2"]


async def test_what_was_begun_since_stays_open() -> None:
    async with stage() as cast:
        a, b = MemberGroup(await cast.instance("a")), MemberGroup(await cast.instance("b"))
        await a.begin_own()
        await a.abort()
        await a.begin_own()
        await a.write("own", "1")
        begun = a.at.transactions.implicit_transactions.begun
        for entry in log_of(cast):  # as when the log is read from its beginning again
            begun.view_changed(entry)
        await a.commit(batch_id="1")
        assert await seen(cast, a, b) == ["1"]


async def begun(at: MemberGroup, partition: int, *members: str) -> OwnerId:
    """Another driver writes its batch to a partition: a part of its own, and members, which are prepared."""
    await at.initialize()
    owner = (await at.begin_own()).owner
    await at.write("own", f"own-{partition}", ("t", partition))
    for member in members:
        await has_prepared(at, partition, member, owner)
    return owner


async def has_prepared(at: MemberGroup, partition: int, member: str, owner: OwnerId) -> None:
    await at.begin(member, owner)
    await at.write(member, member, ("t", partition))
    await at.prepare(member)


async def prepared(at: MemberGroup, partition: int, *members: str, batch_id: str | None = None) -> OwnerId:
    """As ``begun``, with the driver's own part prepared, too."""
    owner = await begun(at, partition, *members)
    await at.control.prepare("id", owner=owner, batch_id=batch_id)
    return owner


async def shown(cast: Cast, at: MemberGroup) -> list[str]:
    """What readers see of the batches."""
    return [value for partition in range(3) for value in await seen(cast, at, partition=partition)]


async def waiting(at: MemberGroup) -> list[str]:
    """What is prepared; the owners' own parts have no name."""
    return sorted(part.name for part in (await at.describe()).parts if part.prepared)


async def test_a_driver_commits_its_own_batch_and_not_what_another_one_has_prepared_for_its() -> None:
    async with stage() as cast:
        a, b = MemberGroup(await cast.instance("a")), MemberGroup(await cast.instance("b"))
        await prepared(a, 0, "m0")
        second = await begun(b, 1, "m1")
        for _ in range(2):  # the first response is lost
            await b.commit("m1", batch_id="second", owner=second)
        assert await shown(cast, a) == ["own-1", "m1"]
        assert await waiting(a) == ["", "m0"]
        third = (await a.initialize()).owner
        await b.commit("m0", batch_id="first", owner=third)
        assert await shown(cast, a) == ["own-0", "m0", "own-1", "m1"]
        assert await waiting(a) == []


async def test_the_next_driver_commits_a_batch_of_members_that_began_before_and_after_its_own_part() -> None:
    async with stage() as cast:
        a, b = MemberGroup(await cast.instance("a")), MemberGroup(await cast.instance("b"))
        owner = await prepared(a, 0, "before")
        await has_prepared(b, 0, "after", owner)
        await prepared(b, 1, "other")
        third = (await b.initialize()).owner
        await a.commit("after", batch_id="first", owner=third)
        assert await waiting(b) == ["", "before", "other"]
        await a.abort("before", "other", owner=third)
        assert await waiting(b) == []
        assert await shown(cast, a) == ["own-0", "after"]


async def test_a_batch_without_members_is_finished_by_the_next_driver_or_aborted() -> None:
    async with stage() as cast:
        a, b = MemberGroup(await cast.instance("a")), MemberGroup(await cast.instance("b"))
        await prepared(a, 0)
        second = (await b.initialize()).owner
        await b.commit(batch_id="first", owner=second)
        assert await shown(cast, a) == ["own-0"]
        await prepared(a, 1)
        third = (await b.initialize()).owner
        await b.commit(batch_id="first", owner=third)  # another try of what was committed
        assert await shown(cast, a) == ["own-0"]
        assert await waiting(b) == []


async def test_a_driver_with_a_part_of_its_own_finishes_no_former_drivers_batch() -> None:
    async with stage() as cast:
        a, b = MemberGroup(await cast.instance("a")), MemberGroup(await cast.instance("b"))
        await prepared(a, 0)
        second = await begun(b, 1)
        await b.commit(batch_id="second", owner=second)
        assert await shown(cast, a) == ["own-1"]
        third = await prepared(b, 2)
        await a.commit(batch_id="third", owner=third)
        assert await shown(cast, a) == ["own-1", "own-2"]
        assert await waiting(b) == [""]


async def test_a_commit_without_members_is_refused_where_two_former_drivers_have_prepared() -> None:
    async with stage() as cast:
        a, b = MemberGroup(await cast.instance("a")), MemberGroup(await cast.instance("b"))
        await prepared(a, 0)
        await prepared(b, 1)
        third = (await a.initialize()).owner
        assert await refused(b.commit(batch_id="one", owner=third)) is ErrorCode.INVALID_REQUEST
        await b.abort(owner=third)
        assert await waiting(a) == []
        assert await shown(cast, a) == []


async def test_a_commit_is_refused_where_its_owner_has_begun_a_part_beside_that_of_the_members_owner() -> None:
    async with stage() as cast:
        a, b = MemberGroup(await cast.instance("a")), MemberGroup(await cast.instance("b"))
        await prepared(a, 0, "m0")
        second = await begun(b, 1)
        assert await refused(b.commit("m0", batch_id="one", owner=second)) is ErrorCode.INVALID_REQUEST
        await b.control.prepare("id", owner=second)
        assert await refused(a.commit("m0", batch_id="one", owner=second)) is ErrorCode.INVALID_REQUEST
        await a.abort(owner=second)
        await a.commit("m0", batch_id="one", owner=second)
        assert await shown(cast, a) == ["own-0", "m0"]


async def test_a_repeated_commit_leaves_alone_what_another_driver_has_prepared_under_its_batch_id() -> None:
    """Without that id it would be taken for another try of the batch, and aborted."""
    async with stage() as cast:
        a, b = MemberGroup(await cast.instance("a")), MemberGroup(await cast.instance("b"))
        first = await prepared(a, 0, batch_id="first")
        await a.commit(batch_id="first", owner=first)  # its response is lost
        await prepared(b, 1, batch_id="second")
        again = (await a.initialize()).owner
        await a.commit(batch_id="first", owner=again)
        assert [part.batch_id for part in (await b.describe()).parts] == ["second"]
        restarted = (await b.initialize()).owner
        await b.commit(batch_id="second", owner=restarted)
        assert await shown(cast, a) == ["own-0", "own-1"]
        assert await waiting(a) == []


async def test_another_try_of_a_batch_that_was_committed_is_aborted_by_its_batch_id() -> None:
    async with stage() as cast:
        a, b = MemberGroup(await cast.instance("a")), MemberGroup(await cast.instance("b"))
        first = await prepared(a, 0, batch_id="first")
        await a.commit(batch_id="first", owner=first)
        await prepared(b, 1, batch_id="first")
        again = (await a.initialize()).owner
        await a.commit(batch_id="first", owner=again)
        assert await waiting(a) == []
        assert await shown(cast, a) == ["own-0"]


async def test_a_batch_whose_part_somebody_has_aborted_is_not_committed_without_it() -> None:
    async with stage() as cast:
        a, b = MemberGroup(await cast.instance("a")), MemberGroup(await cast.instance("b"))
        await prepared(a, 0, batch_id="first")
        other = (await b.initialize()).owner
        await b.commit(batch_id="empty", owner=other, abort_others=True)
        again = (await a.initialize()).owner
        assert await refused(a.commit(batch_id="first", owner=again)) is ErrorCode.TRANSACTION_ABORTABLE
        await a.commit(batch_id="another", owner=again)
        rewritten = await prepared(a, 1, batch_id="first")
        await a.commit(batch_id="first", owner=rewritten)
        assert await shown(cast, a) == ["own-1"]


async def test_an_owner_that_commits_another_batch_than_it_has_prepared_is_refused() -> None:
    async with stage() as cast:
        a = MemberGroup(await cast.instance("a"))
        owner = await prepared(a, 0, batch_id="first")
        assert await refused(a.commit(batch_id="second", owner=owner)) is ErrorCode.INVALID_REQUEST
        await a.commit(batch_id="first", owner=owner)
        assert await shown(cast, a) == ["own-0"]


async def test_the_owner_decides_what_it_has_prepared_under_a_batch_id_without_naming_it() -> None:
    async with stage() as cast:
        a = MemberGroup(await cast.instance("a"))
        owner = await prepared(a, 0, batch_id="first")
        await a.commit(owner=owner)
        assert await shown(cast, a) == ["own-0"]
