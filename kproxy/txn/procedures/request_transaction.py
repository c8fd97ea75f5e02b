"""One Produce request after another of a client that knows nothing of transactions, each a transaction of its own."""

from collections.abc import Callable, Sequence

from kproxy.codec.messages import ErrorCode
from kproxy.txn.claims import NOBODY
from kproxy.txn.prepared_parts import ALONE
from kproxy.txn.procedures.broker_protocol import REPLACED
from kproxy.txn.procedures.id_lock import IdLock
from kproxy.txn.procedures.managed_outside import ManagedTools
from kproxy.txn.procedures.managed_transaction import ManagedTransaction
from kproxy.txn.requests import ClientBatch, Written
from kproxy.txn.txn_error import TxnError


class RequestTransaction(ManagedTransaction):
    """The requests of one client.id, one after another."""

    def __init__(self, tools: ManagedTools, transactional_id: str, client_id: str, timeout_ms: int) -> None:
        super().__init__(tools, transactional_id, client_id, timeout_ms)
        self._turns = IdLock(tools.time)

    @property
    def is_idle(self) -> bool:
        return not self._open

    def came(self, connection: int, batches: Sequence[ClientBatch], arrival_ms: int) -> None:
        """A repetition is another transaction."""

    def takes_at_once(self, batches: Sequence[ClientBatch]) -> bool:
        """Each begins a transaction and ends it."""
        return False

    async def write(
        self, batches: Sequence[ClientBatch], *, refused: bool, accepted: Callable[[], None]
    ) -> Sequence[Written]:
        accepted()  # the next one waits for the lock after this one: there is no checkpoint in between
        async with self._turns.ordinary():
            if refused:
                raise TxnError(ErrorCode.OPERATION_NOT_ATTEMPTED, "another batch of the request was refused")
            try:
                return await self._write_once(batches)
            except TxnError as error:
                if error.error_code not in REPLACED:
                    raise
            # What a killed process asked of the broker arrived late, and took the id. So nothing of it was committed.
            return await self._write_once(batches)

    async def _write_once(self, batches: Sequence[ClientBatch]) -> Sequence[Written]:
        try:
            return await self._write(batches)
        except TxnError:
            self._producer = NOBODY  # the next one's claim aborts what may be open
            raise

    async def _write(self, batches: Sequence[ClientBatch]) -> Sequence[Written]:
        if self._producer == NOBODY:
            await self.initialize()
        rows = await self._requests.produce(self.request, batches, implicit=True, accepted=lambda: None, is_job=True)
        if any(row.error_code for row in rows):
            await self._abort_the_open()
            return [row if row.error_code else Written(ErrorCode.OPERATION_NOT_ATTEMPTED, -1, -1) for row in rows]
        await self._requests.end(self.request, committed=True, bumps=False, also=ALONE)
        return rows

    def failed(self, why: str) -> None:
        """Nothing of it is open any more: the next request is another transaction."""
