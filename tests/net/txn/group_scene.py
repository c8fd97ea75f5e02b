"""A transactional producer at one kproxy and a consumer at another, on one fake cluster."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from tests.net.harness import FrameClient, Proxied, proxied, running
from tests.net.txn.group_client import fetched
from tests.net.txn.test_rpcs_whole import OPTIONS
from tests.net.txn.wire_producer import TV1, WireProducer


@dataclass
class Scene:
    """A producer at one kproxy, a consumer at another."""

    proxy: Proxied
    other: Proxied
    producer: WireProducer
    reader: FrameClient

    @property
    def groups(self) -> dict[str, Any]:
        return self.proxy.brokers.groups

    def broker_has(self, group: str = "g", place: tuple[str, int] = ("t", 0)) -> int | None:
        """The offset in the broker's own group offsets."""
        found = self.groups[group].offsets.get(place) if group in self.groups else None
        return found.offset if found is not None else None

    async def move(self, offset: int, group: str = "g", *, end: bool | None = True, index: int = 0) -> None:
        """A transaction with an offset; ``end``: None leaves it open."""
        assert await self.producer.add_offsets(group) == 0
        assert await self.producer.commit_offsets(group, [("t", index, offset)]) == [0]
        if end is not None:
            assert await self.producer.end(committed=end) == 0


@asynccontextmanager
async def scene(brokers: int = 1, *, opened: bool = True, **options: Any) -> AsyncIterator[Scene]:
    """Two kproxys on a fake cluster with a topic ``t`` of two partitions; ``opened``: both have read the log."""
    async with (
        proxied(brokers, instance_id="a", **{**OPTIONS, **options}) as proxy,
        running(proxy.fake.bootstrap, instance_id="b", **{**OPTIONS, **options}) as other,
    ):
        proxy.brokers.create_topic("t", 2)
        async with await proxy.client() as one, await other.client() as two:
            producer = WireProducer(one, "id", TV1)
            assert await producer.init() == 0
            if opened:
                assert await fetched(two, "none", 7, ("t", 0)) == [(-1, 0)]
            yield Scene(proxy, other, producer, two)
