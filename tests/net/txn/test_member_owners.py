"""Owners with data of their own beside their members', after they were replaced."""

import pytest

from kproxy.codec.messages import ErrorCode
from kproxy.net.txn import offset_mirror
from kproxy.net.txn.managed_transactions import ManagedTransaction
from tests.net.txn.instances import stage
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
