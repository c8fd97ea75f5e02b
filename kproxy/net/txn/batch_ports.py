"""The outside of ``kproxy.txn.procedures.batch_decisions``: the log, the brokers, and what is open at this instance."""

from collections.abc import Awaitable, Callable

from kproxy.net.txn.broker.participants import Participants
from kproxy.net.txn.coordinator import Coordinator
from kproxy.txn.ids import Producer
from kproxy.txn.prepared_parts import DecisionScope
from kproxy.txn.procedures.batch_decisions import OpenBatch
from kproxy.txn.procedures.managed_transaction import ManagedTransaction
from kproxy.txn.procedures.managed_transactions import ManagedTransactions
from kproxy.txn.view import IdView
from kproxy.txn.views import Views


class BatchPorts:
    """The ``DecisionPorts`` of one instance."""

    def __init__(
        self,
        coordinator: Coordinator,
        begun: ManagedTransactions,
        told: Participants,
        views: Views,
        found: Callable[[str], Awaitable[IdView]],
    ) -> None:
        """``found``: as ``DecisionPorts.found``."""
        self.instance_id = coordinator.instance_id
        self._coordinator = coordinator
        self._begun = begun
        self._told = told
        self._found = found
        self.view_of = views.of

    async def found(self, name: str) -> IdView:
        return await self._found(name)

    def capture(self, name: str, owner: Producer | None) -> ManagedTransaction | None:
        """The transaction that the owner has open here; a newer owner does not decide what an older one has left."""
        capture = self._begun.named(name)
        return capture if capture is not None and owner in (None, capture.request.client) else None

    def open_here(self, name: str, owner: Producer | None) -> OpenBatch | None:
        capture = self.capture(name, owner)
        return _Open(self._begun, capture) if capture is not None else None

    async def decide(self, name: str, owner: Producer | None, *, committed: bool, also: DecisionScope) -> None:
        await self._coordinator.decide(name, owner, committed=committed, also=also)

    async def check_members(self, view: IdView, also: DecisionScope) -> None:
        await self._told.votes.check(view, also)

    async def finish_members(self, name: str) -> None:
        await self._told.ends.finish(name)


class _Open:
    """A transaction whose client's later writes are no part of it once it ends."""

    def __init__(self, begun: ManagedTransactions, capture: ManagedTransaction) -> None:
        self._begun = begun
        self._capture = capture

    async def commit(self, also: DecisionScope) -> None:
        with self._begun.ending(self._capture):
            await self._capture.commit(also)

    async def abort(self, also: DecisionScope) -> None:
        with self._begun.ending(self._capture):
            await self._capture.abort(also)
