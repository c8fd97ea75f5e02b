"""The open transaction of an id that the broker's coordinator decides, from its first epoch to its end.

For the broker each transaction has an epoch of its own, with sequences from 0: what is late of one can't touch the next
(KIP-890). A broker that keeps the epoch at an end is asked for a new one before the next transaction begins.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from kproxy.codec.messages import ErrorCode
from kproxy.codec.topic_partition import TopicPartition
from kproxy.txn.claims import NOBODY
from kproxy.txn.procedures.added_partitions import AddedPartitions
from kproxy.txn.procedures.broker_protocol import FIRST, OVER, BrokerCoordinator, Protocol
from kproxy.txn.procedures.id_lock import Interrupted
from kproxy.txn.procedures.kept_epoch import KeptEpoch
from kproxy.txn.procedures.outside import Connections, Counters, Time, WriteTerms
from kproxy.txn.procedures.owner import Owner
from kproxy.txn.procedures.owner_policy import CLIENT
from kproxy.txn.procedures.transaction import Transaction
from kproxy.txn.requests import ClientBatch, TxnRequest, places_of, size_of
from kproxy.txn.states import TransactionEvent
from kproxy.txn.stored_epochs import LastEnd
from kproxy.txn.txn_error import TxnError

if TYPE_CHECKING:
    from kproxy.txn.first_batches import FirstBatches
    from kproxy.txn.repeated_ends import Ended
    from kproxy.txn.writes import TxnSend

#: A newer producer has the id, or the broker has ended the transaction, which took too long: to Kafka that is the same.
FENCED: Final = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH})


class TransactionAtBroker(Owner):
    """Begins it, has it decided, and knows the client's identity at the broker; ``BrokerOwner`` admits the requests."""

    def __init__(
        self,
        transactional_id: str,
        requests: BrokerCoordinator,
        connections: Connections,
        stats: Counters,
        kept: KeptEpoch,
        time: Time,
    ) -> None:
        """``requests``, ``connections``: closed by ``close``. ``kept``: the epoch that the next kproxy needs."""
        super().__init__(stats, connections, time)
        self._time = time
        self._kept = kept
        #: Of a client that continues after a restart of kproxy.
        self._first_batches: FirstBatches | None = None
        #: It has not ended a transaction since: it may have one open that it began before.
        self._is_continued = False
        self.policy = CLIENT
        self._name = transactional_id
        self._requests = requests
        self._added = AddedPartitions(requests)
        self._protocol: Protocol = FIRST
        #: Something was refused; it may be that the cluster agreed on less since.
        self._is_outdated = False
        self._timeout_ms = 0
        #: The client's identity for the broker. No transaction begins under it once it is used up.
        self._upstream = NOBODY
        self._is_used = False
        #: The identity that the last InitProducerId named, and the one that it gave.
        self._resumed = self._given = NOBODY
        self._last_end = LastEnd.NONE
        #: The last end that the broker has confirmed.
        self._last: Ended | None = None
        #: Whether the client was to get a new epoch with that end and has not got it.
        self._owes_epoch = False

    @property
    def is_open(self) -> bool:
        """Whether a transaction has begun, is not decided, and may still be: its time is not over."""
        if self.transaction is None:
            return False
        return self._now() <= self.transaction.began_at + self._timeout_ms / 1000

    @property
    def is_connected(self) -> bool:
        return super().is_connected or self._requests.is_connected

    def disconnect(self) -> None:
        super().disconnect()
        self._requests.disconnect()

    # -- it begins, and grows

    @contextmanager
    def _asking(self) -> Iterator[None]:
        """Records that the client is fenced if the broker says so, unless kproxy takes the id back."""
        try:
            yield
        except TxnError as error:
            if error.error_code not in FENCED or not self.policy.resumes:
                raise
            self.id.is_fenced = True
            self._drop("fenced")
            raise self.id.replaced() from error

    async def _agreed(self) -> Protocol:
        """The protocol that the cluster has agreed on, as far as is known. TxnError.

        A coordinator of Kafka 4.3 is stuck with an id for good if an end raises its epoch at level 0.
        """
        if self._is_outdated:
            self._protocol, self._is_outdated = await self._requests.protocol(refresh=True), False
        return self._protocol

    async def _begin(self) -> Transaction:
        if self.transaction is None:
            with self._asking():
                protocol = await self._agreed()
                if self._is_used:
                    await self._renew()
                # the next kproxy must know the epoch of whatever is written
                await self._kept.written()
            terms = WriteTerms(self._name, protocol.produce, self._added.line)
            writer = self._connections.writer(self._upstream, terms)
            self._sequences.begin()
            self.transaction = Transaction(self._upstream, writer, self._now())
            if self.id.begin():
                self._stats.open += 1
        return self.transaction

    async def _renew(self) -> None:
        """Has an epoch that is not used up. TxnError."""
        resumed = self._upstream if self.policy.resumes else NOBODY
        self._upstream, self._is_used = await self._requests.init(self._timeout_ms, resumed), False
        self._kept.put(self._upstream, self._beside(self._last_end))

    async def _accept(
        self, transaction: Transaction, request: TxnRequest, batches: Sequence[ClientBatch]
    ) -> "list[TxnSend | None]":
        """Gives batches their place in the order. TxnError."""
        places, size = places_of(batches), size_of(batches)
        if not (transaction.announced.issuperset(places) and transaction.writer.has_room(size)):
            with suppress(Interrupted):  # the writer refuses the batches then, and their sequences are used up
                await self._wait(lambda: self._make_room(transaction, places, size))
        return transaction.accept(request.client, batches, self._sequences)

    async def _make_room(self, transaction: Transaction, places: Sequence[TopicPartition], size: int) -> None:
        await self._added.announce(transaction, self._protocol, places)
        await transaction.writer.room(size)

    def _check_written(self, transaction: Transaction) -> None:
        self._is_outdated |= transaction.writer.failed is not None and self.id.doomed is None
        super()._check_written(transaction)

    # -- it is decided

    async def _decide(self, transaction: Transaction, *, committed: bool) -> None:
        """Has the broker end it; TxnError if it was to be committed and can't be, or there was no definite response."""
        if committed:
            with suppress(Interrupted):
                await self._wait(transaction.writer.flush)
            self._check_written(transaction)
            self.id.refuse_doomed()
        else:
            transaction.writer.abandon()
        if transaction.announced or transaction.moves_groups:
            with self._asking():
                await self._ask_to_end(transaction, committed=committed)
        else:
            self.id.ask_to_end(committed=committed)
        if committed:
            self._committed()
        else:
            self._drop("client")

    async def _ask_to_end(self, transaction: Transaction, *, committed: bool) -> None:
        protocol = await self._agreed()
        self.id.ask_to_end(committed=committed)
        try:
            following = await self._requests.end(transaction.producer, protocol, committed=committed)
        except TxnError as error:
            if self.policy.gives_up:
                self._give_up(error, committed)
                return
            if error.error_code is ErrorCode.COORDINATOR_NOT_AVAILABLE:
                raise
            if error.error_code is not ErrorCode.INVALID_TXN_STATE:
                self.id.apply(TransactionEvent.REFUSED)
                raise
            if committed:
                # the broker treats it as the repeated end of its own abort, as it will the client's abort
                self.id.apply(TransactionEvent.REFUSED)
                raise self.id.doom("it took longer than it may") from error
            following = None  # the broker has received nothing that could be aborted
        self._upstream, self._is_used = following or transaction.producer, following is None
        self._last_end = LastEnd.COMMITTED if committed else LastEnd.ABORTED
        if following is not None or not committed:
            self._kept.put(self._upstream, self._last_end)

    def _give_up(self, error: TxnError, committed: bool) -> None:
        """The end is not certain, or was not what was asked for; the next epoch comes after it in any case. TxnError.

        The error unless an abort was asked for, and the broker has made one.
        """
        is_over = error.error_code in OVER
        self._is_used = True
        self._drop("fenced" if is_over else "failed")
        if not is_over:
            raise error
        self._stats.count_fenced()
        if committed:
            raise TxnError(ErrorCode.TRANSACTION_ABORTABLE, "the broker has ended the transaction") from error

    def close(self) -> None:
        """Closes its connections; what is open is ended by the producer that takes the id next, or by its time-out."""
        self._drop("failed")
        super().close()
        self._requests.close()

    # -- of a client that continues after a restart

    def _beside(self, last: LastEnd) -> LastEnd:
        """The last end that is recorded beside the next epoch.

        Where ends keep the epoch an abort is recorded only beside the epoch that it ended: beside the next one it could
        be taken for that one's.
        """
        return LastEnd.NONE if last is LastEnd.ABORTED and self._protocol.adds else last

    def _doom_continued(self) -> TxnError:
        """Dooms the transaction that the client had open before kproxy was restarted; the error for the client."""
        if self.transaction is None:
            self.id.begin()
            self.id.drop()
        return self.id.doom("kproxy was restarted, and what was open is aborted")

    def _not_added(self, what: str) -> TxnError:
        return self._doom_continued() if self._is_continued else super()._not_added(what)
