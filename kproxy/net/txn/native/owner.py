"""One transactional id whose transactions the broker decides, and whose producer is this kproxy.

The client's identity is the producer id and epoch that ``initialize`` gave it. Behind it each transaction has an epoch
of its own at the broker: what is late of one can't touch the next (KIP-890). A broker that keeps the epoch at an end is
asked for a new one before the next transaction begins.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

import trio

from kproxy.codec._generated.transaction_offsets import TransactionOffsets
from kproxy.codec.messages import ErrorCode
from kproxy.net.txn.native.requests import FIRST, NativeRequests, Protocol
from kproxy.net.txn.transaction import Transaction, told
from kproxy.net.txn.writer import Native, TransactionWriter
from kproxy.net.txn.writer_connections import WriterConnections
from kproxy.txn.claims import NOBODY
from kproxy.txn.client_sequences import ClientSequences
from kproxy.txn.errors import TxnError
from kproxy.txn.ids import Producer
from kproxy.txn.requests import ClientBatch, TxnRequest, Written

if TYPE_CHECKING:
    from kproxy.proxy.transaction_stats import TransactionStats
    from kproxy.txn.writes import TxnSend

#: Another kproxy has taken the id, or the broker has ended the transaction, which took too long. Where each end raises
#: the epoch the broker then takes a commit for the repeated end of that abort, and says that the state is another one.
_FENCED: Final = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.INVALID_TXN_STATE,
    }
)


class NativeOwner:
    """Asks the broker's coordinator on behalf of clients that know nothing of transactions."""

    def __init__(
        self, transactional_id: str, requests: NativeRequests, connections: WriterConnections, stats: "TransactionStats"
    ) -> None:
        """``connections``: closed by ``close``."""
        #: When it was asked for something last, by trio's clock.
        self.used_at = trio.current_time()
        self._name = transactional_id
        self._requests = requests
        self._connections = connections
        self._stats = stats
        self._lock = trio.Lock()
        self._protocol: Protocol = FIRST
        self._timeout_ms = 0
        self._client = NOBODY
        #: Who writes the next transaction; None: to be asked for.
        self._producer: Producer | None = None
        self._transaction: Transaction | None = None
        self._sequences: ClientSequences[TxnSend] = ClientSequences()
        #: Why the client's transaction is lost, until it has been told.
        self._doomed: TxnError | None = None

    @property
    def is_open(self) -> bool:
        """Whether a transaction has begun and is not decided."""
        return self._transaction is not None

    async def initialize(self, timeout_ms: int) -> Producer:
        """As ``Decider.init_producer_id``."""
        async with self._lock:
            self._forget("initialized")
            self._timeout_ms, self._doomed = timeout_ms, None
            self._protocol = await self._requests.protocol()
            self._client = self._producer = await self._requests.init(timeout_ms)
            return self._client

    def _admit(self, request: TxnRequest) -> None:
        self.used_at = trio.current_time()
        if request.client != self._client:
            self._stats.fenced += 1
            raise TxnError(ErrorCode.PRODUCER_FENCED, f"{self._name} was initialized anew")

    async def _begin(self) -> Transaction:
        if self._transaction is None:
            if self._producer is None:
                self._producer = await self._requests.init(self._timeout_ms)
            native = Native(self._name, self._protocol.produce)
            writer = TransactionWriter(self._connections, *self._producer, native)
            self._transaction = Transaction(self._producer, writer)
            self._stats.open += 1
        return self._transaction

    def _refuse_doomed(self) -> None:
        if self._doomed is not None:
            raise self._doomed

    async def produce(
        self, request: TxnRequest, batches: Sequence[ClientBatch], accepted: Callable[[], None]
    ) -> list[Written]:
        """As ``Decider.produce``."""
        async with self._lock:
            self._admit(request)
            self._refuse_doomed()
            transaction = await self._begin()
            if self._protocol.adds:
                places = transaction.unannounced({(batch.topic, batch.partition): None for batch in batches})
                if places:
                    await self._requests.add_partitions(transaction.producer, places)
                    transaction.announced.update(places)
            await transaction.writer.room(sum(len(batch.batch) for batch in batches))
            sends = transaction.accept(request.client, batches, self._sequences)
            accepted()
        await transaction.writer.settled([send for send in sends if send is not None])
        if transaction.writer.failed is not None and self._transaction is transaction and self._doomed is None:
            self._doomed = TxnError(ErrorCode.TRANSACTION_ABORTABLE, "a batch of the transaction was not written")
        return [told(send) for send in sends]

    async def commit_offsets(self, request: TxnRequest, offsets: TransactionOffsets) -> None:
        """As ``Decider.commit_offsets``."""
        async with self._lock:
            self._admit(request)
            self._refuse_doomed()
            transaction = await self._begin()
            await self._requests.commit_offsets(transaction.producer, self._protocol, offsets)
            transaction.groups.append(offsets)

    async def end(self, request: TxnRequest, *, committed: bool) -> Producer:
        """As ``Decider.end``. Where nothing was begun both ends are successes: the broker need not know."""
        async with self._lock:
            self._admit(request)
            if committed:
                self._refuse_doomed()
            self._doomed = None
            if self._transaction is not None:
                await self._decide(self._transaction, committed=committed)
            return self._client

    async def _decide(self, transaction: Transaction, *, committed: bool) -> None:
        if committed:
            await transaction.writer.flush()
            if transaction.writer.failed is not None:
                await self._decide(transaction, committed=False)
                raise TxnError(ErrorCode.TRANSACTION_ABORTABLE, "a batch of the transaction was not written")
        else:
            transaction.writer.abandon()
        try:
            self._producer = await self._requests.end(transaction.producer, self._protocol, committed=committed)
        except TxnError as error:
            fenced = error.error_code in _FENCED
            self._forget("fenced" if fenced else "failed")
            if not fenced:
                raise
            self._stats.fenced += 1
            if committed:
                raise TxnError(ErrorCode.TRANSACTION_ABORTABLE, "the broker has ended the transaction") from error
            return
        self._transaction = None
        self._stats.open -= 1
        if committed:
            self._stats.commits += 1
        else:
            self._stats.aborted("client")

    def _forget(self, reason: str) -> None:
        """Gives up what is open; whatever becomes of it at the broker, the next epoch is behind it."""
        self._producer = None
        if self._transaction is not None:
            self._transaction.writer.abandon()
            self._transaction = None
            self._stats.open -= 1
            self._stats.aborted(reason)

    def close(self) -> None:
        """Closes its connections; what is open is aborted by the next ``initialize`` or by its time-out."""
        self._connections.close()
