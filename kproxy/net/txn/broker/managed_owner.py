"""One transactional id whose transactions the broker decides, and whose producer is this kproxy."""

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, suppress

import trio

from kproxy.codec._generated.transaction_offsets import TransactionOffsets
from kproxy.codec.messages import ErrorCode
from kproxy.net.txn.broker.broker_owner import BrokerOwner, places_of
from kproxy.net.txn.broker.broker_requests import OVER
from kproxy.net.txn.id_lock import Interrupted
from kproxy.net.txn.transaction import Transaction
from kproxy.txn.ids import Producer
from kproxy.txn.requests import ClientBatch, TxnRequest, Written
from kproxy.txn.txn_error import TxnError


class ManagedOwner(BrokerOwner):
    """Asks the broker's coordinator on behalf of clients that know nothing of transactions."""

    async def initialize(self, timeout_ms: int) -> Producer:
        """As ``Decider.init_producer_id``."""
        async with self._turns.urgent(f"{self._name} was initialized again"):
            protocol = await self._requests.protocol()
            producer = await self._requests.init(timeout_ms)
            # not before: who has the id and is not fenced must not take nothing for all that it wrote
            self._drop("initialized")
            self._take(producer, protocol, timeout_ms)
            return self._client

    async def _renew(self) -> None:
        """As whoever comes last."""
        self._upstream, self._is_used = await self._requests.init(self._timeout_ms), False

    def _admit(self, request: TxnRequest) -> None:
        self.used_at = trio.current_time()
        if request.client != self._client:
            self._stats.fenced += 1
            raise TxnError(ErrorCode.PRODUCER_FENCED, f"{self._name} was initialized again")

    async def produce(
        self, request: TxnRequest, batches: Sequence[ClientBatch], accepted: Callable[[], None]
    ) -> list[Written]:
        """As ``Decider.produce``."""
        async with self._turn(places_of(batches) if request.client == self._client else (), accepted):
            self._admit(request)
            self._refuse_doomed()
            transaction = await self._begin()
            sends = await self._accept(transaction, request, batches)
        return await self._settled(transaction, sends)

    async def commit_offsets(self, request: TxnRequest, offsets: TransactionOffsets) -> None:
        """As ``Decider.commit_offsets``."""
        async with self._lock:
            self._admit(request)
            self._refuse_doomed()
            transaction = await self._begin()
            commit = self._requests.commit_offsets
            await self._wait(transaction, lambda: commit(transaction.producer, self._protocol, offsets))
            transaction.groups.append(offsets)

    async def end(self, request: TxnRequest, *, committed: bool) -> Producer:
        """As ``Decider.end``. Where nothing was begun both ends are successes: the broker need not know."""
        async with self._turn_to_end(request, committed):
            self._admit(request)
            if committed:
                self._refuse_doomed()
            self._doomed = None
            if self._transaction is not None:
                await self._decide(self._transaction, committed=committed)
            return self._client

    def _turn_to_end(self, request: TxnRequest, committed: bool) -> AbstractAsyncContextManager[None]:
        """The turn; an urgent one for an abort by the client that has the id."""
        if committed or request.client != self._client:
            return self._turns.ordinary()
        return self._turn_to_abort("the transaction was aborted")

    async def _decide(self, transaction: Transaction, *, committed: bool) -> None:
        if committed:
            with suppress(Interrupted):
                await self._wait(transaction, transaction.writer.flush)
            if transaction.writer.failed is not None:
                await self._decide(transaction, committed=False)
                raise TxnError(ErrorCode.TRANSACTION_ABORTABLE, "a batch of the transaction was not written")
        else:
            transaction.writer.abandon()
        try:
            following = await self._requests.end(transaction.producer, await self._agreed(), committed=committed)
        except TxnError as error:
            fenced = error.error_code in OVER
            self._forget("fenced" if fenced else "failed")
            if not fenced:
                raise
            self._stats.fenced += 1
            if committed:
                raise TxnError(ErrorCode.TRANSACTION_ABORTABLE, "the broker has ended the transaction") from error
            return
        self._upstream, self._is_used = following or transaction.producer, following is None
        self._ended(committed)

    def _forget(self, reason: str) -> None:
        """Gives up what is open; whatever becomes of it at the broker, the next epoch is behind it."""
        self._is_used = True
        self._drop(reason)
