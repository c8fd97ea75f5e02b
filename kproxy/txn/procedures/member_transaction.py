"""A member's part that a client which knows nothing of transactions writes."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from kproxy.codec.messages import ErrorCode
from kproxy.txn.prepared_parts import ALONE, DecisionScope
from kproxy.txn.procedures.managed_outside import ManagedTools
from kproxy.txn.procedures.managed_transaction import ManagedTransaction
from kproxy.txn.procedures.members import Joining, Members
from kproxy.txn.requests import ClientBatch, Written
from kproxy.txn.txn_error import TxnError
from kproxy.txn.view import IdView

if TYPE_CHECKING:
    from kproxy.txn.procedures.member import Member


class MemberTransaction(ManagedTransaction):
    """Data that a client which knows nothing of transactions writes as a member of one."""

    def __init__(self, tools: ManagedTools, members: Members, wanted: Joining) -> None:
        """Nothing is asked for before ``join``."""
        super().__init__(tools, wanted.transactional_id, wanted.client_id, wanted.timeout_ms)
        self.member = wanted.name
        self._wanted = wanted
        self._members = members
        self._joined: Member | None = None

    async def join(self) -> None:
        self._joined = await self._members.join(self._wanted)

    def is_new(self, wanted: Joining, view: IdView | None) -> bool:
        """Whether it is the member that is wanted, and nothing was written in it: a client has repeated its request."""
        is_unused = self._records == 0 and not self._connections and not self._open
        is_alive = self._joined is not None and self._joined.has_joined(view) and not self.ends
        return wanted == self._wanted and is_alive and is_unused

    def takes_at_once(self, batches: Sequence[ClientBatch]) -> bool:
        """A member's data are not the owner's."""
        return False

    async def _produce(self, batches: Sequence[ClientBatch], accepted: Callable[[], None]) -> Sequence[Written]:
        if self._joined is None:
            raise TxnError(ErrorCode.TRANSACTION_ABORTABLE, "the member has not joined")
        return await self._joined.produce(batches, accepted)

    async def prepare(self, records: int | None = None, batch_id: str | None = None) -> None:
        """Has what was taken wait for a decision. TxnError if it is aborted, or that can't be known."""
        try:
            await super().prepare(records, batch_id)
        finally:
            self._leave()

    async def _prepare(self, batch_id: str | None) -> None:
        if self._joined is None:
            raise TxnError(ErrorCode.TRANSACTION_ABORTABLE, "the member has not joined")
        try:
            await self._joined.prepare()
        except TxnError as error:
            if error.error_code is ErrorCode.TRANSACTION_ABORTABLE:  # else it may be prepared
                await self._joined.give_up()
            raise

    async def abort(self, also: DecisionScope = ALONE) -> None:
        """Takes nothing any more; what was written is never seen."""
        self.doomed = self.doomed or "it was aborted"
        await self._abort_the_open()
        await self._quiet()

    async def _abort_the_open(self, also: DecisionScope = ALONE) -> None:
        if self._joined is not None:
            await self._joined.give_up()
        self._leave()

    def _leave(self) -> None:
        if self._joined is not None:
            self._members.leave(self._joined)
            self._joined = None
