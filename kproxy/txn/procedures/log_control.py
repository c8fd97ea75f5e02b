"""Transactions by hand where kproxy's log decides the ids."""

from collections.abc import Sequence
from typing import Protocol

from kproxy.codec.messages import ErrorCode
from kproxy.txn.described import Described, Listing, Stale
from kproxy.txn.describing import describe, listed
from kproxy.txn.ids import Producer
from kproxy.txn.procedures.batch_decisions import BatchDecision, BatchDecisions, DecisionPorts
from kproxy.txn.procedures.hand_control import not_in_log
from kproxy.txn.procedures.log_owners import LogOwners
from kproxy.txn.procedures.managed_transactions import ManagedTransactions
from kproxy.txn.states import TransactionState
from kproxy.txn.txn_error import TxnError
from kproxy.txn.view import IdView


class LogPorts(DecisionPorts, Protocol):
    """The outside of ``LogControl``."""

    async def read(self, name: str) -> IdView | None:
        """The view of an id at the end of the log. A log is made where there is none."""
        ...

    async def refresh(self, name: str | None) -> Stale | None:
        """Reads the log of an id, or all of it (None), to its end, for a second at most; None if the views are current.

        No log is made where there is none. TxnError if nothing is known: of the id, or at all.
        """
        ...

    def names(self) -> Sequence[str]:
        """All ids that the views know, in order."""
        ...

    async def initialize(self, name: str, timeout_ms: int, client_id: str) -> None:
        """Initializes an id at kproxy's log."""
        ...


class LogControl:
    """Begins and decides transactions at this instance, and describes those of all instances."""

    def __init__(self, ports: LogPorts, owners: LogOwners, begun: ManagedTransactions) -> None:
        """``owners``: of this instance. ``begun``: where clients' requests go."""
        self._ports = ports
        self._owners = owners
        self._begun = begun
        self._decisions = BatchDecisions(ports)

    async def begin(self, transactional_id: str, client_id: str | None, timeout_ms: int) -> Described:
        view = await self._ports.read(transactional_id)
        known = view.claim.client_id if view is not None and view.claim is not None else ""
        client_id = client_id or known
        if not client_id:
            why = f"{transactional_id} is new: say whose transaction it is to be by client_id"
            raise TxnError(ErrorCode.INVALID_REQUEST, why)
        if view is not None and view.ongoing is not None and not self._was_mine(view):
            why = f"{transactional_id} has an open transaction at another kproxy"
            raise TxnError(ErrorCode.CONCURRENT_TRANSACTIONS, why)
        await self._begun.begin(transactional_id, client_id, timeout_ms)
        return self.described(transactional_id)

    def _was_mine(self, view: IdView) -> bool:
        return view.claim is not None and view.claim.instance_id == self._ports.instance_id

    async def initialize(self, transactional_id: str, client_id: str, timeout_ms: int) -> Described:
        await self._begun.end_own(transactional_id)
        return await self.take(transactional_id, client_id, timeout_ms)

    async def take(self, transactional_id: str, client_id: str, timeout_ms: int) -> Described:
        """Initializes an id at kproxy's log. TxnError."""
        await self._ports.initialize(transactional_id, timeout_ms, client_id)
        return self.described(transactional_id)

    async def commit(self, asked: BatchDecision) -> Described:
        await self._decisions.commit(asked)
        return self.described(asked.transactional_id)

    async def abort(self, asked: BatchDecision) -> Described:
        await self._decisions.abort(asked)
        return self.described(asked.transactional_id)

    async def prepare(self, transactional_id: str, owner: Producer, batch_id: str | None) -> Described:
        await self._decisions.owned(transactional_id, owner)
        capture = self._begun.owned(transactional_id, owner)
        if capture is None:
            raise TxnError(ErrorCode.INVALID_TXN_STATE, f"{transactional_id} has no open transaction")
        with self._begun.ending(capture):
            await capture.prepare(batch_id=batch_id)
        return self.described(transactional_id)

    async def describe(self, transactional_id: str) -> Described:
        stale = await self._ports.refresh(transactional_id)
        return self.described(transactional_id)._replace(stale=stale)

    async def list(self) -> Listing:
        stale = await self._ports.refresh(None)
        return Listing((listed(self.described(name)) for name in self._ports.names()), stale)

    def described(self, transactional_id: str) -> Described:
        """The description as of now; a transaction that was begun here is open though nothing was written yet."""
        view = self._ports.view_of(transactional_id)
        if view is None:
            raise not_in_log(transactional_id)
        capture = self._begun.owned(transactional_id, view.client)
        found, owner = describe(view), self._owners.known(transactional_id)
        if owner is not None and owner.is_open and owner.id.state.is_pending:
            found = found._replace(state=owner.id.state.value)
        elif capture is not None:
            found = found._replace(
                state=TransactionState.ONGOING.value,
                client_id=capture.client_id,
                started_ms=found.started_ms or capture.began_ms,
            )
        return found
