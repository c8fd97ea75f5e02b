"""Members of a transaction, at instances of kproxy beside its owner's: decided together, or not at all."""

import pytest

from kproxy.net.txn import offset_mirror
from tests.net.txn.instances import stage
from tests.net.txn.member_scene import Crew, seen


@pytest.fixture(autouse=True)
def no_errands(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is committed stays in the log alone."""
    monkeypatch.setattr(offset_mirror, "_LINGER_SECONDS", 1000.0)


async def test_members_at_several_instances_are_decided_by_one_append() -> None:
    async with stage(2) as cast:
        a, b, c = [Crew(await cast.instance(name)) for name in "abc"]
        owner = (await a.initialize()).owner
        for crew, name in ((a, "m1"), (b, "m2"), (c, "m3")):
            await crew.begin(name, owner)
            await crew.write(name, name)
            await crew.prepare(name)
        assert await seen(cast, a, b, c) == []
        done = await a.commit("m1", "m2", "m3", batch_id="1", owner=owner)
        assert done.last is not None
        assert done.last.committed
        assert done.parts == ()
        assert await seen(cast, a, b, c) == ["m1", "m2", "m3"]


async def test_any_instance_decides() -> None:
    async with stage(2) as cast:
        a, b, c = [Crew(await cast.instance(name)) for name in "abc"]
        owner = (await a.initialize()).owner
        for batch in ("1", "2"):
            await b.begin(f"m{batch}", owner)
            await b.write(f"m{batch}", batch)
            await b.prepare(f"m{batch}")
            await c.commit(f"m{batch}", batch_id=batch, owner=owner)
            await a.commit(f"m{batch}", batch_id=batch, owner=owner)  # it is asked again
        assert await seen(cast, a, b, c) == ["1", "2"]
        assert (await a.describe()).owner == owner
