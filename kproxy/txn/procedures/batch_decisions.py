"""The rules of a commit and an abort that a driver asks for by hand: what each covers, and what is refused.

A driver may have its batch open here (``OpenBatch``), or prepared anywhere: then the log has it.
"""

from collections.abc import Collection
from typing import NamedTuple, Protocol

from kproxy.codec.messages import ErrorCode
from kproxy.txn.claims import fenced
from kproxy.txn.ids import Producer
from kproxy.txn.prepared_parts import (
    EVERYTHING,
    DecisionScope,
    covered_parts,
    prepared_parts,
    refuse_ambiguous,
    refuse_other_batch,
)
from kproxy.txn.txn_error import TxnError
from kproxy.txn.verdict import Verdict
from kproxy.txn.view import IdView
from kproxy.txn.view_values import HAND, LOST_MEMBERS


class OpenBatch(Protocol):
    """The transaction that an owner has open at this instance. Its methods raise TxnError."""

    async def commit(self, also: DecisionScope) -> None:
        """Commits it, and what ``also`` names."""

    async def abort(self, also: DecisionScope) -> None:
        """Aborts it, and what ``also`` names."""


class DecisionPorts(Protocol):
    """The outside of ``BatchDecisions``. All methods that wait raise TxnError."""

    #: Of this instance.
    instance_id: str

    async def found(self, name: str) -> IdView:
        """The view of an id at the end of the log; TRANSACTIONAL_ID_NOT_FOUND if there is none."""
        ...

    def view_of(self, name: str) -> IdView | None:
        """The view of an id as far as the log is read."""

    def open_here(self, name: str, owner: Producer | None) -> OpenBatch | None:
        """The transaction that the owner (None: the present one) has open at this instance."""

    async def decide(self, name: str, owner: Producer | None, *, committed: bool, also: DecisionScope) -> None:
        """Decides prepared parts, as ``LogOwner.decide``."""

    async def check_members(self, view: IdView, also: DecisionScope) -> None:
        """Asks the brokers that keep members' data whether these can be committed."""

    async def finish_members(self, name: str) -> None:
        """Has decided members ended at their brokers."""


class BatchDecision(NamedTuple):
    """A driver's request."""

    transactional_id: str
    #: None: the present owner of the id.
    owner: Producer | None
    #: Of a commit: it counts once.
    batch_id: str | None = None
    members: Collection[str] = ()
    #: Whether all else of the id is aborted.
    abort_others: bool = False


class BatchDecisions:
    """Commits and aborts by hand, of ids that kproxy's log decides."""

    def __init__(self, ports: DecisionPorts) -> None:
        """Nothing is asked."""
        self._ports = ports

    async def commit(self, asked: BatchDecision) -> None:
        """Commits what the owner has open here, or what was prepared of the batch; a repeated one changes nothing.

        TxnError: PRODUCER_FENCED, INVALID_REQUEST, INVALID_TXN_STATE, CONCURRENT_TRANSACTIONS, TRANSACTION_ABORTABLE.
        """
        name, owner = asked.transactional_id, asked.owner
        view, also = await self.owned(name, owner), DecisionScope(asked.batch_id, tuple(asked.members))
        meant = covered_parts(view, self._scope(name, owner, also))
        if not view.has_committed(asked.batch_id):
            await self._commit(view, also, owner)
        if asked.abort_others:
            await self._abort(name, owner, None, EVERYTHING)
        elif owner is not None:
            await self._end_other_try(name, meant, owner)
        await self._ports.finish_members(name)

    async def abort(self, asked: BatchDecision) -> None:
        """Aborts what is open, and what was prepared of the batch. TxnError: PRODUCER_FENCED, INVALID_TXN_STATE.

        INVALID_TXN_STATE, too, if a commit that was asked for before came first: a kproxy that was killed since may
        have sent its decision to the log.
        """
        name, owner = asked.transactional_id, asked.owner
        view, part = await self.owned(name, owner), self._ports.open_here(name, owner)
        also = EVERYTHING if asked.abort_others else self._scope(name, owner, DecisionScope(None, tuple(asked.members)))
        if part is None and not (asked.abort_others or view.prepared or view.open_since() is not None):
            raise TxnError(ErrorCode.INVALID_TXN_STATE, f"{name} has nothing to be decided")
        ongoing = view.ongoing
        await self._abort(name, owner, part, also)
        await self._ports.finish_members(name)
        after = self._ports.view_of(name)
        if ongoing is not None and after is not None and after.verdict(ongoing.producer) is Verdict.COMMITTED:
            raise TxnError(ErrorCode.INVALID_TXN_STATE, f"a commit of {name} that was asked for before came first")

    async def owned(self, name: str, owner: Producer | None) -> IdView:
        """The view of an id that the owner has. TxnError (PRODUCER_FENCED) if a newer one has it."""
        view = await self._ports.found(name)
        if owner is not None and owner != view.client:
            raise fenced(view.client)
        return view

    def _scope(self, name: str, owner: Producer | None, also: DecisionScope) -> DecisionScope:
        """The scope of a decision, by what the owner has begun itself."""
        return also._replace(former=self._ports.open_here(name, owner) is None)

    async def _commit(self, view: IdView, also: DecisionScope, owner: Producer | None) -> None:
        name = view.transactional_id
        if await self._was_committed(view, also, owner):
            return
        part, also = self._ports.open_here(name, owner), self._scope(name, owner, also)
        if not view.has_committed(also.batch_id):  # by another copy of this request
            refuse_ambiguous(view, also)
        if part is not None:
            await part.commit(also)
            return
        self._refuse_torn(view)
        if also.batch_id is None and not view.prepared:
            raise TxnError(ErrorCode.INVALID_TXN_STATE, f"{name} has nothing to be decided")
        if not view.has_committed(also.batch_id):
            refuse_other_batch(view, also)
        await self._ports.decide(name, owner, committed=True, also=also)

    async def _end_other_try(self, name: str, meant: Collection[Producer], owner: Producer) -> None:
        """Aborts what a commit meant and has not decided: it is of another try of a batch that was committed.

        Otherwise the owner's own part would be committed with its next batch.
        """
        view = self._ports.view_of(name)
        parts = sorted(part for part in meant if view is not None and part in view.prepared)
        open_here = self._ports.open_here(name, owner)
        if open_here is not None or parts:
            await self._abort(name, owner, open_here, DecisionScope(parts=parts))

    async def _abort(self, name: str, owner: Producer | None, part: OpenBatch | None, also: DecisionScope) -> None:
        """Aborts what the owner has open here (``part``) or elsewhere, with parts that are prepared. TxnError."""
        if part is not None:
            await part.abort(also)
        else:
            await self._ports.decide(name, owner, committed=False, also=also)

    async def _was_committed(self, view: IdView, also: DecisionScope, owner: Producer | None) -> bool:
        """Asks the brokers whether the members can be committed; whether another copy of this request has done it.

        TxnError. Where a member's transaction has ended at its broker, that copy may have been the cause.
        """
        try:
            await self._ports.check_members(view, also)
        except TxnError:
            view = await self.owned(view.transactional_id, owner)
            if view.has_committed(also.batch_id):
                return True
            prepared_parts(view, also)
            raise
        return False

    def _refuse_torn(self, view: IdView) -> None:
        """TxnError where the owner's own data would be left out."""
        assert view.claim is not None
        if view.has_own_data() and view.claim.instance_id != self._ports.instance_id:
            where = view.claim.instance_id
            raise TxnError(ErrorCode.CONCURRENT_TRANSACTIONS, f"it has an open transaction at another kproxy, {where}")
        lost = view.is_doomed and view.last is not None and view.last.reason not in (LOST_MEMBERS, HAND)
        if lost or view.has_own_data():
            why = "what the owner itself wrote is aborted: abort the rest, or initialize the id again"
            raise TxnError(ErrorCode.TRANSACTION_ABORTABLE, why)
