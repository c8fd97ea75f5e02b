"""A coordinator of transactions that are begun for clients without transactions."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import trio

from kproxy.net.txn.managed_tools import managed_tools
from kproxy.txn.ids import Producer
from kproxy.txn.prepared_parts import DecisionScope
from kproxy.txn.procedures.managed_outside import ManagedTools
from kproxy.txn.procedures.managed_transaction import ManagedTransaction
from kproxy.txn.requests import TxnRequest, Written
from kproxy.txn.txn_error import TxnError
from tests.txn.procedures.memory_log import TRIO_TIME

if TYPE_CHECKING:
    from kproxy.codec.messages import ErrorCode

ME = Producer(4000, 7)
DONE = [Written(0, 5, -1)]


class FakeCoordinator:
    """Does at once what it is asked, or fails as a test says."""

    instance_id = "box"

    def __init__(self, nursery: trio.Nursery) -> None:
        self.asked: list[Any] = []
        self.rows = DONE
        self.takes = True
        self.renews = False
        self.error: ErrorCode | None = None
        #: An end, or a prepare, waits for it.
        self.go = trio.Event()
        self.go.set()
        self._in_flight: set[str] = set()
        self._nursery = nursery

    def offsets_wait(self, _: str) -> bool:
        return False

    def renews_timestamps(self, client_id: str) -> bool:
        return self.renews

    def start(self, work: Any) -> None:
        self._nursery.start_soon(work)

    async def init_producer_id(self, *what: Any) -> Producer:
        await self._decide(what[0], "init", *what)
        return ME

    async def produce(self, request: TxnRequest, batches: Any, *, implicit: bool, accepted: Any, is_job: bool) -> Any:
        self.asked.append(("produce", request, len(batches), implicit, is_job))
        accepted()
        return self.rows

    def takes_at_once(self, transactional_id: str, batches: Any) -> bool:
        return self.takes

    def produce_at_once(self, request: TxnRequest, batches: Any, written: Any, *, implicit: bool) -> None:
        self.asked.append(("at once", request, len(batches), implicit))
        written(self.rows)

    async def end(self, request: TxnRequest, *, committed: bool, bumps: bool, also: DecisionScope) -> None:
        assert request.client == ME
        assert not bumps
        await self._decide(request.transactional_id, "commit" if committed else "abort", also)

    async def prepare(self, request: TxnRequest, batch_id: str | None) -> None:
        await self._decide(request.transactional_id, "prepare", request)

    async def _decide(self, name: str, *what: Any) -> None:
        self.asked.append(what)
        assert name not in self._in_flight
        self._in_flight.add(name)
        await self.go.wait()
        self._in_flight.discard(name)
        if self.error is not None:
            raise TxnError(self.error, "as the test says")


@asynccontextmanager
async def coordinated() -> AsyncIterator[FakeCoordinator]:
    async with trio.open_nursery() as nursery:
        yield FakeCoordinator(nursery)


def managed_by(coordinator: Any) -> ManagedTools:
    """The tools of one instance with this coordinator."""
    return managed_tools(coordinator, TRIO_TIME)


def made(at: FakeCoordinator, client_id: str = "c", name: str = "id", timeout_ms: int = 5_000) -> ManagedTransaction:
    return ManagedTransaction(managed_by(at), name, client_id, timeout_ms)


async def begun(at: FakeCoordinator, client_id: str = "c", name: str = "id") -> ManagedTransaction:
    """One whose id is taken; what was asked for that is forgotten."""
    one = made(at, client_id, name)
    await one.initialize()
    at.asked.clear()
    return one
