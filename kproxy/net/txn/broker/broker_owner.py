"""One transactional id whose transactions the broker decides: what its owners have in common, whoever the client is.

The client's identity is the producer id and epoch that InitProducerId gave it. Behind it each transaction has an epoch
of its own at the broker, with sequences from 0: what is late of one can't touch the next (KIP-890). A broker that keeps
the epoch at an end is asked for a new one before the next transaction begins.
"""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import TYPE_CHECKING, Final

import trio

from kproxy.codec.messages import ErrorCode
from kproxy.codec.topic_partition import TopicPartition
from kproxy.net.txn.broker.broker_requests import FIRST, BrokerRequests, Protocol
from kproxy.net.txn.broker.wait_queue import WaitQueue
from kproxy.net.txn.id_lock import Interrupted, Turns
from kproxy.net.txn.transaction import Transaction, outcome_of
from kproxy.net.txn.writer import BrokerWrites, TransactionWriter
from kproxy.net.txn.writer_connections import WriterConnections
from kproxy.txn.claims import NOBODY
from kproxy.txn.client_sequences import ClientSequences
from kproxy.txn.ids import Producer
from kproxy.txn.requests import ClientBatch, TxnRequest, Written
from kproxy.txn.txn_error import TxnError

if TYPE_CHECKING:
    from kproxy.proxy.transaction_stats import TransactionStats
    from kproxy.txn.writes import TxnSend


#: Behind each request the line is looked at again, so often: data that come in between would wait for it.
_ROUNDS: Final = 3
#: Answers to AddPartitionsToTxn where a partition was refused, and so none was added.
_NOT_ADDED: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.OPERATION_NOT_ATTEMPTED,
    }
)


def places_of(batches: Iterable[ClientBatch]) -> list[TopicPartition]:
    """The partitions of batches."""
    return [(batch.topic, batch.partition) for batch in batches]


class BrokerOwner(ABC):
    """Asks the broker's coordinator on behalf of one client at a time."""

    def __init__(
        self, transactional_id: str, requests: BrokerRequests, connections: WriterConnections, stats: "TransactionStats"
    ) -> None:
        """``connections``: closed by ``close``."""
        #: When it was asked for something last, by trio's clock.
        self.used_at = trio.current_time()
        self._name = transactional_id
        self._requests = requests
        self._connections = connections
        self._stats = stats
        self._turns = Turns()
        self._lock = self._turns.lock
        #: Who wants to write, and waits for the lock.
        self._line = WaitQueue()
        self._protocol: Protocol = FIRST
        #: Something was refused; it may be that the cluster agreed on less since.
        self._is_outdated = False
        self._timeout_ms = 0
        #: As the client knows itself.
        self._client = NOBODY
        #: As the broker knows it. No transaction begins under it once it is used up.
        self._upstream = NOBODY
        self._is_used = False
        self._transaction: Transaction | None = None
        self._sequences: ClientSequences[TxnSend] = ClientSequences()
        #: Why the client's transaction is lost, until the client has been told or has aborted it.
        self._doomed: TxnError | None = None

    @property
    def is_busy(self) -> bool:
        """Whether something that it was asked for is under way."""
        return self._lock.locked()

    @property
    def is_open(self) -> bool:
        """Whether a transaction has begun and is not decided."""
        return self._transaction is not None

    @property
    def _may_be_committed(self) -> bool:
        """Whether the broker was asked to commit the open transaction, and has not refused."""
        return False

    @abstractmethod
    async def _renew(self) -> None:
        """Has an identity that is not used up. TxnError."""

    def _take(self, producer: Producer, protocol: Protocol, timeout_ms: int) -> None:
        """Begins anew, as the broker has said."""
        self._client = self._upstream = producer
        self._protocol, self._timeout_ms = protocol, timeout_ms
        self._is_used = self._is_outdated = False
        self._doomed = None

    def _refuse_doomed(self) -> None:
        if self._doomed is not None:
            raise self._doomed

    def _turn_to_abort(self, why: str) -> AbstractAsyncContextManager[None]:
        """A turn that waits for no data broker; the open transaction can only be aborted from now on.

        One that may have been committed already stays as it is.
        """
        if self._transaction is not None and not self._may_be_committed:
            self._transaction.writer.abandon()
        return self._turns.urgent(why)

    async def _agreed(self) -> Protocol:
        """The protocol that the cluster has agreed on, as far as is known. TxnError.

        A coordinator of Kafka 4.3 is stuck with an id for good if an end raises its epoch at level 0.
        """
        if self._is_outdated:
            self._protocol, self._is_outdated = await self._requests.protocol(doubted=True), False
        return self._protocol

    async def _begin(self) -> Transaction:
        if self._transaction is None:
            protocol = await self._agreed()
            if self._is_used:
                await self._renew()
            native = BrokerWrites(self._name, protocol.produce, self._line)
            writer = TransactionWriter(self._connections, *self._upstream, native)
            self._transaction = Transaction(self._upstream, writer)
            self._stats.open += 1
        return self._transaction

    async def _announce(self, transaction: Transaction, places: Iterable[TopicPartition]) -> None:
        """Has partitions added at the broker, with those of waiting requests. TxnError in the first protocol.

        Partitions of other requests can't fail this one.
        """
        if transaction.announced.issuperset(places):
            return
        for _ in range(_ROUNDS):
            unknown = transaction.unannounced(dict.fromkeys([*places, *transaction.joined, *self._line.places]))
            if not unknown:
                return
            if self._protocol.adds and not await self._add(transaction, places, unknown):
                return
            transaction.announced.update(unknown)  # whatever is answered, the broker may have heard of them
            if not self._protocol.adds:
                await self._requests.add_ahead(transaction.producer, unknown)

    async def _add(
        self, transaction: Transaction, places: Iterable[TopicPartition], unknown: Sequence[TopicPartition]
    ) -> bool:
        """Adds partitions; False if only those in ``places`` were, since one of the others was refused. TxnError."""
        own = transaction.unannounced(dict.fromkeys(places))
        try:
            await self._requests.add_partitions(transaction.producer, unknown)
        except trio.Cancelled:
            transaction.announced.update(unknown)  # the broker may have them, and has to hear of the abort
            raise
        except TxnError as error:
            if error.error_code not in _NOT_ADDED or len(own) == len(unknown):
                raise
            if own:
                await self._requests.add_partitions(transaction.producer, own)
                transaction.announced.update(own)
            return False
        return True

    def takes_at_once(self, batches: Sequence[ClientBatch]) -> bool:
        """Whether produce would not wait before it has accepted these."""
        transaction = self._transaction
        return (
            transaction is not None
            and not self._lock.locked()
            and transaction.announced.issuperset(places_of(batches))
            and transaction.writer.has_room(sum(len(batch.batch) for batch in batches))
        )

    @asynccontextmanager
    async def _turn(self, places: Collection[TopicPartition], accepted: Callable[[], None]) -> AsyncIterator[None]:
        """The lock, for who writes to these partitions; whoever comes behind may then come, too."""
        with self._line.standing(places):
            accepted()  # the next one waits behind this one for the lock: there is no checkpoint in between
            try:
                self._lock.acquire_nowait()  # where nobody waits a checkpoint would be much of what a batch costs
            except trio.WouldBlock:
                await self._lock.acquire()
            try:
                yield
            finally:
                self._lock.release()

    async def _accept(
        self, transaction: Transaction, request: TxnRequest, batches: Sequence[ClientBatch]
    ) -> "list[TxnSend | None]":
        """Gives batches their place in the order. TxnError."""
        places, size = places_of(batches), sum(len(batch.batch) for batch in batches)
        if not (transaction.announced.issuperset(places) and transaction.writer.has_room(size)):
            with suppress(Interrupted):  # the writer refuses the batches then, and their sequences are used up
                await self._wait(transaction, lambda: self._make_room(transaction, places, size))
        return transaction.accept(request.client, batches, self._sequences)

    async def _wait(self, transaction: Transaction, work: Callable[[], Awaitable[None]]) -> None:
        """Waits for data brokers or a group's coordinator; Interrupted by an abort or a new producer.

        The transaction lacks what was waited for then, and can only be aborted.
        """
        try:
            await self._turns.wait(work)
        except Interrupted:
            if not self._may_be_committed:
                transaction.writer.abandon()
            raise

    async def _make_room(self, transaction: Transaction, places: Sequence[TopicPartition], size: int) -> None:
        await self._announce(transaction, places)
        await transaction.writer.room(size)

    async def _settled(self, transaction: Transaction, sends: "Sequence[TxnSend | None]") -> list[Written]:
        """What became of them. One that was not written dooms the transaction."""
        await transaction.writer.settled([send for send in sends if send is not None])
        if self._transaction is transaction:
            self._look_at(transaction)
        return [outcome_of(send) for send in sends]

    def _look_at(self, transaction: Transaction) -> None:
        if transaction.writer.failed is not None and self._doomed is None:
            self._is_outdated = True
            self._doomed = TxnError(ErrorCode.TRANSACTION_ABORTABLE, "a batch of the transaction was not written")

    def _ended(self, committed: bool) -> None:
        """The broker has decided as the client asked."""
        self._transaction = None
        self._stats.open -= 1
        if committed:
            self._stats.commits += 1
        else:
            self._stats.aborted("client")

    def _drop(self, reason: str) -> None:
        """Gives up what is open: the broker has ended it, or will when the next epoch is asked for."""
        if self._transaction is not None:
            self._transaction.writer.abandon()
            self._transaction = None
            self._stats.open -= 1
            self._stats.aborted(reason)

    def close(self) -> None:
        """Closes its connections; what is open is ended by whoever takes the id next, or by its time-out."""
        self._drop("failed")
        self._connections.close()
