"""Transactions by hand, for the control API (``kproxy.control.transaction_control.TransactionControl``)."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

import trio

from kproxy.codec.messages import ErrorCode
from kproxy.errors import RemoteProtocolError
from kproxy.net.brokers.cluster import Cluster
from kproxy.net.txn.batch_ports import BatchPorts
from kproxy.net.txn.broker.broker_control import BrokerControl, not_here
from kproxy.net.txn.broker.participants import Participants
from kproxy.net.txn.coordinator import Coordinator
from kproxy.net.txn.rejects import Rejects
from kproxy.net.txn.transaction_log import TransactionLog
from kproxy.txn.described import Described, Listed, OwnerId
from kproxy.txn.describing import describe, listed
from kproxy.txn.ids import Producer
from kproxy.txn.procedures.batch_decisions import BatchDecision, BatchDecisions
from kproxy.txn.procedures.managed_transactions import ManagedTransactions
from kproxy.txn.procedures.member_transaction import MemberTransaction
from kproxy.txn.procedures.members import Joining, Members
from kproxy.txn.states import TransactionState
from kproxy.txn.txn_error import TxnError
from kproxy.txn.view import IdView

T = TypeVar("T")

_DEFAULT_PREFIX: Final = "kproxy-"
#: Of a member of an id that has no owner yet, ms.
DEFAULT_TIMEOUT_MS: Final = 60_000


class ControlService:
    """Begins and decides transactions for clients of this kproxy, and describes those of all instances."""

    def __init__(
        self,
        coordinator: Coordinator,
        at_broker: BrokerControl,
        log: TransactionLog,
        read_all: Callable[[], Awaitable[None]],
        rejects: Rejects,
        begun: ManagedTransactions,
        members: Members,
        told: Participants,
        cluster: Cluster,
    ) -> None:
        """``begun``: where clients' requests go. ``at_broker``: transactions that brokers decide.

        ``told``: asks and informs the brokers about members whose data they keep.

        ``read_all`` reads all of the log that there is. It raises OSError or RemoteProtocolError if it can't.
        """
        self._coordinator = coordinator
        self._at_broker = at_broker
        self._log = log
        self._read_all = read_all
        self._rejects = rejects
        self._begun = begun
        self._members = members
        self._open = BatchPorts(coordinator, begun, told, log.views, self._found)
        self._decisions = BatchDecisions(self._open)
        self._network = cluster.network

    async def begin(self, *, client_id: str | None, transactional_id: str | None, timeout_ms: int) -> Described:
        name = transactional_id or f"{_DEFAULT_PREFIX}{client_id}"
        if self._at_broker.has(name):
            return await self._at_broker.begin(name, client_id, timeout_ms)
        view = await self._read(name)
        known = view.claim.client_id if view is not None and view.claim is not None else ""
        client_id = client_id or known
        if not client_id:
            raise TxnError(ErrorCode.INVALID_REQUEST, f"{name} is new: say whose transaction it is to be by client_id")
        if view is not None and view.ongoing is not None and not self._was_mine(view):
            raise TxnError(ErrorCode.CONCURRENT_TRANSACTIONS, f"{name} has an open transaction at another kproxy")
        await self._begun.begin(name, client_id, timeout_ms)
        return self._describe(name)

    def _was_mine(self, view: IdView) -> bool:
        return view.claim is not None and view.claim.instance_id == self._coordinator.instance_id

    async def initialize(self, transactional_id: str, *, client_id: str, timeout_ms: int) -> Described:
        capture = self._begun.named(transactional_id)
        if capture is not None:
            with self._begun.ending(capture):
                await capture.abort()
        if self._at_broker.has(transactional_id):
            await self._at_broker.initialize(transactional_id, client_id, timeout_ms)
        await self._coordinator.initialize_at_log(transactional_id, timeout_ms, client_id)
        return self._describe(transactional_id)

    async def commit(
        self,
        transactional_id: str,
        *,
        batch_id: str | None = None,
        members: Sequence[str] = (),
        owner: OwnerId | None = None,
        abort_others: bool = False,
    ) -> Described:
        if self._at_broker.is_open(transactional_id) or self._at_broker.was_committed(transactional_id, batch_id):
            _refuse_parts(transactional_id, members or abort_others)
            return await self._at_broker.commit(transactional_id, batch_id, _producer(owner))
        await self._decisions.commit(BatchDecision(transactional_id, _producer(owner), batch_id, members, abort_others))
        return self._describe(transactional_id)

    async def abort(
        self, transactional_id: str, *, owner: OwnerId, members: Sequence[str] = (), abort_others: bool = False
    ) -> Described:
        if self._at_broker.is_open(transactional_id):
            _refuse_parts(transactional_id, members or abort_others)
            return await self._at_broker.abort(transactional_id, _producer(owner))
        await self._decisions.abort(BatchDecision(transactional_id, _producer(owner), None, members, abort_others))
        return self._describe(transactional_id)

    async def prepare(self, transactional_id: str, *, owner: OwnerId, batch_id: str | None = None) -> Described:
        _refuse_parts(transactional_id, self._at_broker.has(transactional_id))
        await self._decisions.owned(transactional_id, _producer(owner))
        capture = self._open.capture(transactional_id, _producer(owner))
        if capture is None:
            raise TxnError(ErrorCode.INVALID_TXN_STATE, f"{transactional_id} has no open transaction")
        with self._begun.ending(capture):
            await capture.prepare(batch_id=batch_id)
        return self._describe(transactional_id)

    # -- members

    async def begin_member(
        self,
        transactional_id: str,
        member: str,
        *,
        client_id: str,
        owner: OwnerId | None = None,
        timeout_ms: int | None = None,
    ) -> Described:
        longest = timeout_ms if timeout_ms is not None else await self._timeout_of(transactional_id)
        self._coordinator.log.check_timeout(longest)
        wanted = Joining(transactional_id, member, _producer(owner), client_id, longest)
        known = self._begun.named(transactional_id, member)
        if isinstance(known, MemberTransaction) and known.is_new(wanted, await self._read(transactional_id)):
            return self._describe(transactional_id)
        await self._begun.begin_member(self._members, wanted)
        return self._describe(transactional_id)

    async def _timeout_of(self, transactional_id: str) -> int:
        view = await self._read(transactional_id)
        return view.claim.timeout_ms if view is not None and view.claim is not None else DEFAULT_TIMEOUT_MS

    async def prepare_member(self, transactional_id: str, member: str, *, records: int | None = None) -> Described:
        view = await self._found(transactional_id)
        capture = self._begun.named(transactional_id, member)
        if capture is not None:
            with self._begun.ending(capture):
                await capture.prepare(records)
        elif all(part.name != member for part in view.prepared.values()):  # else it is asked again
            raise TxnError(ErrorCode.INVALID_TXN_STATE, f"no member {member} of {transactional_id} is open here")
        return self._describe(transactional_id)

    async def abort_member(self, transactional_id: str, member: str) -> Described:
        await self._found(transactional_id)
        capture = self._begun.named(transactional_id, member)
        if capture is None:
            raise TxnError(ErrorCode.INVALID_TXN_STATE, f"no member {member} of {transactional_id} is open here")
        with self._begun.ending(capture):
            await capture.abort()
        return self._describe(transactional_id)

    async def reject(self, producer_id: int) -> None:
        await self._rejects.reject(producer_id)

    # -- descriptions

    async def list(self) -> Sequence[Listed]:
        await self._asked(self._read_all)
        names = self._log.views.names
        return [*self._at_broker.list(), *(listed(self._describe(name)) for name in sorted(names))]

    async def describe(self, transactional_id: str) -> Described:
        if self._at_broker.is_open(transactional_id):
            return self._at_broker.describe(transactional_id)
        await self._found(transactional_id)
        return self._describe(transactional_id)

    def _describe(self, name: str) -> Described:
        """The description as of now; a transaction that was begun here is open though nothing was written yet."""
        view = self._log.views.of(name)
        if view is None:
            raise TxnError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, f"the log does not know {name}")
        capture = self._open.capture(name, view.client)
        found, owner = describe(view), self._coordinator.log.known(name)
        if owner is not None and owner.is_open and owner.id.state.is_pending:
            found = found._replace(state=owner.id.state.value)
        elif capture is not None:
            since = self._network.wall() - (trio.current_time() - capture.since)
            found = found._replace(
                state=TransactionState.ONGOING.value,
                client_id=capture.client_id,
                started_ms=found.started_ms or int(since * 1000),
            )
        return found

    async def _found(self, name: str) -> IdView:
        if not self._log.opened.is_set():
            await self._asked(self._read_all)  # where there is no log, none is made to look into it
        view = await self._read(name) if self._log.opened.is_set() else None
        if view is None and self._at_broker.has(name):
            raise not_here(name)
        if view is None:
            raise TxnError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, f"the log does not know {name}")
        return view

    async def _read(self, name: str) -> IdView | None:
        """The view of an id at the end of the log. TxnError if it can't be read."""
        return await self._asked(lambda: self._log.read_to_end(name))

    async def _asked(self, read: Callable[[], Awaitable[T]]) -> T:
        try:
            return await read()
        except (OSError, RemoteProtocolError) as error:
            raise TxnError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"the transaction log: {error}") from error


def _refuse_parts(name: str, asked: object) -> None:
    """TxnError where what the id itself has open is to be prepared, or decided with members: the broker can't."""
    if asked:
        why = f"the broker decides what {name} itself has open, alone: begin a member for what is decided with others"
        raise TxnError(ErrorCode.INVALID_REQUEST, why)


def _producer(owner: OwnerId | None) -> Producer | None:
    return Producer(*owner) if owner is not None else None
