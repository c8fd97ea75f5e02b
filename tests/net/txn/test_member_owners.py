"""Owners with data of their own beside their members', after they were replaced."""

import pytest

from kproxy.codec.messages import ErrorCode
from kproxy.net.txn import offset_mirror
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
