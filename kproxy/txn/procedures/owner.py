"""The common part of both owners of a transactional id: whose turn it is, what is open, what counts as committed."""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Final, TypeVar

from kproxy.codec._generated.transaction_offsets import TransactionOffsets
from kproxy.codec.topic_partition import TopicPartition
from kproxy.txn.client_sequences import ClientSequences
from kproxy.txn.ids import Producer
from kproxy.txn.late_requests import COORDINATOR
from kproxy.txn.prepared_parts import DecisionScope
from kproxy.txn.procedures.id_lock import IdLock, Interrupted
from kproxy.txn.procedures.outside import Connections, Counters, Time
from kproxy.txn.procedures.transaction import Transaction, why_not_written, written_of
from kproxy.txn.requests import ClientBatch, TxnRequest, Written, places_of
from kproxy.txn.states import TransactionEvent
from kproxy.txn.transactional_id import TransactionalId, not_added
from kproxy.txn.txn_error import TxnError

if TYPE_CHECKING:
    from kproxy.txn.writes import TxnSend

T = TypeVar("T")

#: An owner at rest keeps its connections to brokers for so long after it was used last, in seconds.
_CONNECTED_S: Final = 60.0
#: So many owners at rest keep them at most, those that were used last.
_MOST_CONNECTED: Final = 100


class Owner(ABC):
    """One transactional id at this instance, decided on kproxy's log (``LogOwner``) or by the broker (``BrokerOwner``).

    All requests raise TxnError with the error for the client.
    """

    def __init__(self, stats: Counters, connections: Connections, time: Time) -> None:
        """``connections``: for the data; closed by ``close``."""
        #: Which requests are admitted, and what they are answered.
        self.id = TransactionalId(stats.count_fenced)
        self.transaction: Transaction | None = None
        #: When it was asked for something last, by ``Time.now``.
        self.used_at = time.now()
        self._now = time.now
        self._stats = stats
        self._connections = connections
        self._turns = IdLock(time)
        self._lock = self._turns.lock
        self._sequences: ClientSequences[TxnSend] = ClientSequences()

    @property
    def is_open(self) -> bool:
        """Whether a transaction has begun here and is not decided."""
        return self.transaction is not None

    def parties(self) -> Collection[int]:
        """The connections of the open transaction; none if none is open."""
        return self.id.parties() if self.is_open else ()

    @abstractmethod
    async def join(self, request: TxnRequest, places: Sequence[TopicPartition]) -> None:
        """AddPartitionsToTxn."""

    async def add_offsets(self, request: TxnRequest, group_id: str) -> None:
        """AddOffsetsToTxn: the group's offsets may follow, and only they make it known to anybody else."""
        async with self._turn_to_grow(request, COORDINATOR):
            (await self._begin()).added_groups.add(group_id)

    @abstractmethod
    async def commit_offsets(self, request: TxnRequest, offsets: TransactionOffsets, *, implicit: bool) -> None:
        """TxnOffsetCommit: they hold once the transaction is committed.

        ``implicit``: the group joins by them (KIP-890). Otherwise AddOffsetsToTxn must have added it.
        """

    def takes_at_once(self, batches: Sequence[ClientBatch]) -> bool:
        """Whether nothing has to be waited for before these have their place in the order, if they are admitted."""
        transaction = self.transaction
        if transaction is None or self._lock.locked():
            return False
        size = 0
        for batch in batches:
            if not transaction.is_announced(batch, self.id.client, self._sequences):
                return False
            size += len(batch.batch)
        return transaction.writer.has_room(size)

    def produce_at_once(
        self,
        request: TxnRequest,
        batches: Sequence[ClientBatch],
        written: Callable[[Sequence[Written]], None],
        *,
        implicit: bool,
    ) -> None:
        """Writes batches that it ``takes_at_once``, like ``produce``: they have their place in the order now.

        ``written`` is called with what became of each. No task has to wait: what is accepted is the writer's, and
        ends with the transaction.
        """
        self._admit(request, None)
        self.id.refuse_growth()
        transaction = self.transaction
        assert transaction is not None
        self._check_joined(places_of(batches), implicit=implicit)
        sends = transaction.accept(request.client, batches, self._sequences)
        known = [send for send in sends if send is not None]
        transaction.writer.when_settled(known, lambda: written(self._written(transaction, sends)))

    @abstractmethod
    async def produce(
        self, request: TxnRequest, batches: Sequence[ClientBatch], *, implicit: bool, accepted: Callable[[], None]
    ) -> Sequence[Written]:
        """Writes batches; the result of each. ``accepted`` is called when they have their place in the order.

        ``implicit``: partitions join the transaction by being written (KIP-890).
        """

    @abstractmethod
    async def end(self, request: TxnRequest, *, committed: bool, bumps: bool, also: DecisionScope) -> Producer:
        """EndTxn; the client's identity from now on. ``bumps``: its epoch rises with each end (KIP-890)."""

    @abstractmethod
    async def prepare(self, request: TxnRequest, batch_id: str | None = None) -> None:
        """Leaves what is open to a later decision, for as long as it takes.

        ``batch_id``: a commit with another one leaves it out.
        """

    def close(self) -> None:
        """Closes its connections."""
        self._connections.close()

    @property
    def is_at_rest(self) -> bool:
        """Whether no transaction is open, and nothing that it was asked for is under way."""
        return self.transaction is None and not self._lock.locked()

    @property
    def is_connected(self) -> bool:
        """Whether it has connections to brokers."""
        return self._connections.is_open

    def disconnect(self) -> None:
        """Closes its connections, to be opened again when it needs them; to be called while it ``is_at_rest``."""
        self._connections.rest()

    # -- for the owners themselves

    @abstractmethod
    async def _begin(self) -> Transaction:
        """The open transaction; a new one if none is open."""

    @abstractmethod
    def _admit(self, request: TxnRequest, coordinator: str | None) -> None:
        """TxnError unless the client has the id; ``coordinator`` as ``TransactionalId.admit``."""

    def _not_added(self, what: str) -> TxnError:
        """The error for what was not added to the transaction, as far as this kproxy knows."""
        return not_added(what)

    def _check_joined(self, places: Iterable[TopicPartition], *, implicit: bool) -> None:
        """TxnError for data of partitions that were not added: they may be late. In ``implicit`` they need not be."""
        if not (implicit or (self.transaction is not None and self.transaction.joined.issuperset(places))):
            raise self._not_added("the partition")

    def _check_group_added(self, group_id: str, *, implicit: bool) -> None:
        """Raises TxnError if the client has not added a group, like ``_check_joined`` for a partition."""
        added = self.transaction.added_groups if self.transaction is not None else ()
        if not (implicit or group_id in added):
            raise self._not_added(f"group {group_id}")

    @asynccontextmanager
    async def _growing(self, request: TxnRequest, coordinator: str | None) -> AsyncIterator[None]:
        async with self._turns.ordinary():
            self._admit(request, coordinator)
            self.id.refuse_growth()
            yield

    def _turn_to_grow(self, request: TxnRequest, coordinator: str | None) -> AbstractAsyncContextManager[None]:
        """The turn of a request that adds something to the transaction, if it is admitted."""
        return self._growing(request, coordinator)

    async def _wait(self, work: Callable[[], Awaitable[T]]) -> T:
        """Waits for data brokers, or a group's coordinator; Interrupted by an abort or a new producer.

        The open transaction lacks what was waited for then, and can only be aborted.
        """
        try:
            return await self._turns.wait(work)
        except Interrupted:
            if self.transaction is not None and not self.id.may_be_committed:
                self.transaction.writer.abandon()
            raise

    async def _results(self, transaction: Transaction, sends: "Sequence[TxnSend | None]") -> list[Written]:
        """The results of batches, once they are definite. A batch that was not written dooms the transaction."""
        await transaction.writer.settled([send for send in sends if send is not None])
        return self._written(transaction, sends)

    def _written(self, transaction: Transaction, sends: "Sequence[TxnSend | None]") -> list[Written]:
        if self.transaction is transaction:
            self._check_written(transaction)
        return [written_of(send) for send in sends]

    def _check_written(self, transaction: Transaction) -> None:
        if (why := why_not_written(transaction)) is not None:
            self.id.doom_unwritten(why)

    def _drop(self, reason: str) -> None:
        """Drops what is open: it is aborted, or will be by the next epoch.

        The batches that an abort gives up may doom the transaction meanwhile; they do not doom the next one.
        """
        if self.id.drop():
            self._count_aborted(reason)
            self.id.doomed = None
        self._abandon()

    def _abandon(self) -> None:
        if self.transaction is not None:
            self.transaction.writer.abandon()
            self.transaction = None

    def _count_aborted(self, reason: str) -> None:
        self._stats.open -= 1
        self._stats.aborted(reason)

    def _committed(self) -> None:
        self.transaction = None
        self.id.apply(TransactionEvent.COMMITTED)
        self._stats.open -= 1
        self._stats.commits += 1


def disconnect_idle(owners: Iterable[Owner], now: float) -> None:
    """Closes the connections of owners at rest that were not used of late; called every now and then.

    Each id has connections of its own, so their number is that of the clients' ids. ``now``: by ``Time.now``.
    """
    resting = sorted(
        (owner for owner in owners if owner.is_connected and owner.is_at_rest), key=lambda one: one.used_at
    )
    for number, owner in enumerate(reversed(resting)):
        if number >= _MOST_CONNECTED or now > owner.used_at + _CONNECTED_S:
            owner.disconnect()
