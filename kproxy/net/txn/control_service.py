"""Transactions by hand, for the control API (``kproxy.control.transaction_control.TransactionControl``)."""

from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Final, TypeVar

import trio

from kproxy.codec.messages import ErrorCode
from kproxy.errors import RemoteProtocolError
from kproxy.net.brokers.cluster import Cluster
from kproxy.net.txn.broker.broker_control import BrokerControl, not_here
from kproxy.net.txn.broker.participants import Participants
from kproxy.net.txn.coordinator import Coordinator
from kproxy.net.txn.managed_transactions import ManagedTransaction, ManagedTransactions
from kproxy.net.txn.members import Joining, Members, MemberTransaction
from kproxy.net.txn.rejects import Rejects
from kproxy.net.txn.transaction_log import TransactionLog
from kproxy.txn.claims import fenced
from kproxy.txn.described import Described, Listed, OwnerId
from kproxy.txn.describing import describe, listed
from kproxy.txn.ids import Producer
from kproxy.txn.prepared_parts import EVERYTHING, DecisionScope, covered_parts, prepared_parts, refuse_ambiguous
from kproxy.txn.states import TransactionState
from kproxy.txn.txn_error import TxnError
from kproxy.txn.view import IdView
from kproxy.txn.view_values import HAND, LOST_MEMBERS

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
        self._told = told
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
        capture = ManagedTransaction(self._coordinator, name, client_id, timeout_ms)
        with self._begun.beginning(capture):
            await capture.initialize()
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
        view, also = await self._owned(transactional_id, owner), DecisionScope(batch_id, members)
        meant = covered_parts(view, self._scope(transactional_id, owner, also))
        if not view.has_committed(batch_id):
            await self._commit(view, also, owner)
        if abort_others:
            await self._abort(transactional_id, owner, None, EVERYTHING)
        elif owner is not None:
            await self._end_other_try(transactional_id, meant, owner)
        await self._told.ends.finish(transactional_id)
        return self._describe(transactional_id)

    def _scope(self, name: str, owner: OwnerId | None, also: DecisionScope) -> DecisionScope:
        """The scope of a decision, by what the owner has begun itself."""
        return also._replace(former=self._open_here(name, owner) is None)

    async def _commit(self, view: IdView, also: DecisionScope, owner: OwnerId | None) -> None:
        name = view.transactional_id
        if await self._was_committed(view, also, owner):
            return
        capture, also = self._open_here(name, owner), self._scope(name, owner, also)
        if not view.has_committed(also.batch_id):  # by another copy of this request
            refuse_ambiguous(view, also)
        if capture is not None:
            with self._begun.ending(capture):
                await capture.commit(also)
            return
        self._refuse_torn(view)
        if also.batch_id is None and not view.prepared:
            raise TxnError(ErrorCode.INVALID_TXN_STATE, f"{name} has nothing to be decided")
        await self._coordinator.decide(name, _producer(owner), committed=True, also=also)

    async def _end_other_try(self, name: str, meant: Collection[Producer], owner: OwnerId) -> None:
        """Aborts what a commit meant and has not decided: it is of another try of a batch that was committed.

        Otherwise the owner's own part would be committed with its next batch.
        """
        view = self._log.views.of(name)
        parts = sorted(part for part in meant if view is not None and part in view.prepared)
        capture = self._open_here(name, owner)
        if capture is not None or parts:
            await self._abort(name, owner, capture, DecisionScope(parts=parts))

    async def _abort(
        self, name: str, owner: OwnerId | None, capture: ManagedTransaction | None, also: DecisionScope
    ) -> None:
        """Aborts what the owner has open here (``capture``) or elsewhere, with parts that are prepared. TxnError."""
        if capture is not None:
            with self._begun.ending(capture):
                await capture.abort(also)
        else:
            await self._coordinator.decide(name, _producer(owner), committed=False, also=also)

    async def _was_committed(self, view: IdView, also: DecisionScope, owner: OwnerId | None) -> bool:
        """Asks the brokers whether the members can be committed; whether another copy of this request has done it.

        TxnError. Where a member's transaction has ended at its broker, that copy may have been the cause.
        """
        try:
            await self._told.votes.check(view, also)
        except TxnError:
            view = await self._owned(view.transactional_id, owner)
            if also.batch_id in view.batch_ids:
                return True
            prepared_parts(view, also)
            raise
        return False

    def _open_here(self, name: str, owner: OwnerId | None) -> ManagedTransaction | None:
        """The transaction that the owner has open here; a newer owner does not decide what an older one has left."""
        capture = self._begun.named(name)
        if capture is None or owner is None or capture.request.client == _producer(owner):
            return capture
        return None

    def _refuse_torn(self, view: IdView) -> None:
        """TxnError where the owner's own data would be left out."""
        assert view.claim is not None
        if view.has_own_data() and not self._was_mine(view):
            where = view.claim.instance_id
            raise TxnError(ErrorCode.CONCURRENT_TRANSACTIONS, f"it has an open transaction at another kproxy, {where}")
        lost = view.is_doomed and view.last is not None and view.last.reason not in (LOST_MEMBERS, HAND)
        if lost or view.has_own_data():
            why = "what the owner itself wrote is aborted: abort the rest, or initialize the id again"
            raise TxnError(ErrorCode.TRANSACTION_ABORTABLE, why)

    async def abort(
        self, transactional_id: str, *, owner: OwnerId, members: Sequence[str] = (), abort_others: bool = False
    ) -> Described:
        if self._at_broker.is_open(transactional_id):
            _refuse_parts(transactional_id, members or abort_others)
            return await self._at_broker.abort(transactional_id, _producer(owner))
        view = await self._owned(transactional_id, owner)
        capture = self._open_here(transactional_id, owner)
        also = EVERYTHING if abort_others else self._scope(transactional_id, owner, DecisionScope(None, members))
        if capture is None and not (abort_others or view.prepared or view.open_since() is not None):
            raise TxnError(ErrorCode.INVALID_TXN_STATE, f"{transactional_id} has nothing to be decided")
        await self._abort(transactional_id, owner, capture, also)
        await self._told.ends.finish(transactional_id)
        return self._describe(transactional_id)

    async def prepare(self, transactional_id: str, *, owner: OwnerId) -> Described:
        _refuse_parts(transactional_id, self._at_broker.has(transactional_id))
        await self._owned(transactional_id, owner)
        capture = self._open_here(transactional_id, owner)
        if capture is None:
            raise TxnError(ErrorCode.INVALID_TXN_STATE, f"{transactional_id} has no open transaction")
        with self._begun.ending(capture):
            await capture.prepare()
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
        at_broker = self._at_broker.has(transactional_id)
        wanted = Joining(transactional_id, member, _producer(owner), client_id, longest, at_broker)
        known = self._begun.named(transactional_id, member)
        if isinstance(known, MemberTransaction) and known.is_new(wanted, await self._read(transactional_id)):
            return self._describe(transactional_id)
        capture = MemberTransaction(self._coordinator, self._members, wanted)
        with self._begun.beginning(capture):
            await capture.join()
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
        capture = self._open_here(name, OwnerId(*view.client))
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

    async def _owned(self, name: str, owner: OwnerId | None) -> IdView:
        view = await self._found(name)
        if owner is not None and _producer(owner) != view.client:
            raise fenced(view.client)
        return view

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
