"""Owners with data of their own beside their members', after they were replaced."""

import pytest

from kproxy.codec.messages import ErrorCode
from kproxy.net.txn import offset_mirror
from kproxy.net.txn.captures import Capture
from tests.net.txn.instances import stage
from tests.net.txn.member_scene import Crew, refused, seen


@pytest.fixture(autouse=True)
def no_errands(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is committed stays in the log alone."""
    monkeypatch.setattr(offset_mirror, "_LINGER_SECONDS", 1000.0)


async def test_a_newer_owner_decides_where_an_older_one_has_left_something_open() -> None:
    async with stage() as cast:
        a, b = Crew(await cast.instance("a")), Crew(await cast.instance("b"))
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


async def test_a_commit_that_is_repeated_behind_an_abort_of_the_owners_data_does_not_commit_the_members_alone() -> None:
    async with stage() as cast:
        a = Crew(await cast.instance("a"))
        owner = (await a.begin_own()).owner
        await a.write("own", "1")
        await a.begin("m", owner)
        await a.write("m", "2")
        await a.prepare("m")
        capture = a.at.transactions.ways_in.of("own")
        assert isinstance(capture, Capture)
        capture.failed("a batch of the client was refused")
        for _ in range(2):  # the first answer is lost
            assert await refused(a.commit("m", batch_id="1", owner=owner)) is ErrorCode.TRANSACTION_ABORTABLE
        assert await seen(cast, a) == []
        assert (await a.abort(owner=owner, abort_others=True)).parts == ()
        await a.begin("n", owner)
        await a.write("n", "3")
        await a.prepare("n")
        await a.commit("n", batch_id="1", owner=owner)
        assert await seen(cast, a) == ["3"]
