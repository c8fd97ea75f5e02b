"""One kproxy and its clients where kproxy's own log decides, or the broker: the same rules hold."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from kproxy.txn.logged_group_offsets import unmirrored
from tests.net.txn import instances
from tests.net.txn.broker import native_stage
from tests.net.txn.broker.fenced_client import Client

#: kproxy's log; the broker, by the level of ``transaction.version`` that the cluster has agreed on.
HOMES = pytest.mark.parametrize("home", ["kproxy", "TV1", "TV2"])


@dataclass
class Scene:
    """What happens at one home."""

    kproxy: Any
    #: The committed values of a partition.
    read: Callable[[int], list[str]]
    #: The committed offsets of a group, by partition.
    offsets: Callable[[str], dict[int, int]]

    def client(self, *, second: bool = False) -> Client:
        """A client that has not asked for the id; ``second``: it speaks KIP-890's protocol."""
        return Client(self.kproxy, second=second)

    async def begun(self, *, second: bool = False) -> Client:
        """A client that has the id."""
        client = self.client(second=second)
        await client.init()
        return client


@asynccontextmanager
async def at_home(home: str) -> AsyncIterator[Scene]:
    """A scene at a home of ``HOMES``."""
    if home == "kproxy":
        async with instances.stage() as cast:
            at = await cast.instance()
            coordinator, nothing = at.transactions.coordinator, None
            kproxy = native_stage.Kproxy(coordinator, nothing, nothing, at.stats, nothing, at.scope, at.gone)  # type: ignore[arg-type]
            views = at.transactions.views

            def logged(group: str) -> dict[int, int]:
                return {place[1]: row.offset for place, row in unmirrored(views, group).offsets.items()}

            yield Scene(kproxy, lambda index: cast.visible(views, partition=index), logged)
        return
    async with native_stage.stage(int(home[-1])) as stage:
        groups = stage.server.cluster.groups

        def kept(group: str) -> dict[int, int]:
            rows = groups[group].offsets if group in groups else {}
            return {place[1]: row.offset for place, row in rows.items()}

        yield Scene(await stage.kproxy(), stage.read, kept)
