"""One transactional id whose client speaks KIP-98 itself, whose transactions the broker decides and kproxy asks for.

What the client sends late to kproxy is known by its connection, its partitions and its own sequences (KAFKA-17754).
Who is fenced is for the broker to say: kproxy asks in the name of the identity that it has there (KIP-360).
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager, suppress
from typing import Final, NamedTuple

import trio

from kproxy.codec._generated.transaction_offsets import TransactionOffsets
from kproxy.codec.messages import ErrorCode
from kproxy.codec.topic_partition import TopicPartition
from kproxy.net.txn.broker.broker_owner import BrokerOwner, places_of
from kproxy.net.txn.broker.broker_requests import BrokerRequests
from kproxy.net.txn.id_lock import Interrupted
from kproxy.net.txn.transaction import Transaction
from kproxy.net.txn.writer_connections import WriterConnections
from kproxy.proxy.transaction_stats import TransactionStats
from kproxy.txn.claims import NOBODY, is_retry
from kproxy.txn.ids import Producer
from kproxy.txn.late_requests import COORDINATOR, AddedGroups, NewestConnections
from kproxy.txn.requests import ClientBatch, TxnRequest, Written
from kproxy.txn.txn_error import TxnError

#: A newer producer has the id, or the broker has ended the transaction, which took too long: to Kafka that is the same.
_FENCED: Final = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH})


class _Ended(NamedTuple):
    """The last end that the broker has confirmed, by whom it was asked for, and who goes on."""

    client: Producer
    committed: bool
    next_client: Producer


class FencedOwner(BrokerOwner):
    """Asks the broker's coordinator on behalf of a client of the first protocol, or of the second."""

    def __init__(
        self, transactional_id: str, requests: BrokerRequests, connections: WriterConnections, stats: TransactionStats
    ) -> None:
        """As ``BrokerOwner``."""
        super().__init__(transactional_id, requests, connections, stats)
        #: The identity that the last InitProducerId named, and the one that it gave.
        self._resumed = self._given = NOBODY
        #: The end that was asked of the broker and has had no definite answer: to commit, or to abort.
        self._ending: bool | None = None
        self._last: _Ended | None = None
        self._is_fenced = False
        #: The connections by which the open transaction was asked for anything.
        self._parties: set[int] = set()
        self._connections_used = NewestConnections()

    @property
    def is_open(self) -> bool:
        """Whether a transaction has begun, is not decided, and may still be: its time is not over."""
        if self._transaction is None:
            return False
        return trio.current_time() <= self._transaction.began_at + self._timeout_ms / 1000

    def parties(self) -> Collection[int]:
        """The connections of the open transaction; none if none is open."""
        return self._parties if self.is_open else ()

    # -- who may ask

    async def initialize(self, timeout_ms: int, resumed: Producer) -> Producer:
        """InitProducerId; ``resumed``: the identity that the client has (KIP-360), or NOBODY. TxnError."""
        async with self._turn_to_initialize(resumed):
            self.used_at = trio.current_time()
            if is_retry(resumed, self._resumed, self._given, self._client):
                if self._is_fenced:
                    raise self._replaced()
                return self._client
            expected = await self._known_as(resumed)
            protocol = await self._requests.protocol()
            producer = await self._requests.init(timeout_ms, expected)
            # not before: who has the id and is not fenced must not take nothing for all that it wrote
            self._drop("initialized")
            self._take(producer, protocol, timeout_ms)
            self._resumed, self._given = resumed, self._client
            self._last, self._is_fenced = None, False
            self._connections_used.clear()
            return self._client

    def _turn_to_initialize(self, resumed: Producer) -> AbstractAsyncContextManager[None]:
        """The turn; an urgent one unless the client asks again, or may have been replaced by another."""
        if resumed != NOBODY and (resumed != self._client or self._is_fenced):
            return self._turns.ordinary()
        return self._turns.urgent(f"{self._name} was initialized again")

    async def _known_as(self, resumed: Producer) -> Producer:
        """The identity at the broker of a client that goes on; its open transaction is ended first, as it must be.

        A broker that is asked in the name of an older identity aborts what the newer has open before it refuses.
        """
        if resumed == NOBODY or resumed.producer_id != self._client.producer_id or resumed > self._client:
            return resumed
        if resumed < self._client or self._is_fenced:
            raise self._replaced()
        if self._transaction is not None:
            # an end that may have come through stays what it was
            await self._decide(self._transaction, committed=self._ending is True)
        return self._upstream

    def _admit(self, request: TxnRequest, coordinator: str | None) -> None:
        """Admits a request of the client that has the id. TxnError with the error for any other.

        ``coordinator``: the one that the client asked, as ``NewestConnections.admit``; None for requests that clients
        send over any number of connections.
        """
        self.used_at = trio.current_time()
        if request.client.producer_id != self._client.producer_id:
            raise TxnError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, f"producer id {request.client.producer_id}")
        if request.client.epoch > self._client.epoch:
            raise TxnError(ErrorCode.INVALID_PRODUCER_EPOCH, f"epoch {request.client.epoch} was never given")
        if request.client.epoch < self._client.epoch or self._is_fenced:
            raise self._replaced()
        if coordinator is not None:
            self._connections_used.admit(coordinator, request.connection)
        if self._transaction is None:
            self._parties = set()
        self._parties.add(request.connection)

    def _replaced(self) -> TxnError:
        self._stats.fenced += 1
        return TxnError(ErrorCode.PRODUCER_FENCED, f"a newer producer has {self._name}, or its time was over")

    def _refuse(self) -> None:
        """TxnError where the open transaction can't grow."""
        self._refuse_doomed()
        if self._ending is not None:
            raise TxnError(ErrorCode.CONCURRENT_TRANSACTIONS, "the last transaction is being decided")

    @contextmanager
    def _asking(self) -> Iterator[None]:
        """Where the broker says that the client is fenced it is so from now on."""
        try:
            yield
        except TxnError as error:
            if error.error_code not in _FENCED:
                raise
            self._is_fenced = True
            self._drop("fenced")
            raise self._replaced() from error

    # -- a transaction begins, and grows

    async def _renew(self) -> None:
        """As who it is; the broker refuses if somebody else is newer."""
        self._upstream, self._is_used = await self._requests.init(self._timeout_ms, self._upstream), False

    async def join(self, request: TxnRequest, places: Sequence[TopicPartition]) -> None:
        """AddPartitionsToTxn. In the second protocol the broker hears of them with the first data. TxnError."""
        async with self._lock:
            self._admit(request, COORDINATOR)
            self._refuse()
            with self._asking():
                transaction = await self._begin()
                if self._protocol.adds:
                    await self._announce(transaction, places)
            transaction.joined.update(places)

    async def add_offsets(self, request: TxnRequest, group_id: str) -> None:
        """AddOffsetsToTxn: the broker hears of the group with the offsets. TxnError."""
        async with self._lock:
            self._admit(request, COORDINATOR)
            self._refuse()
            with self._asking():
                transaction = await self._begin()
            transaction.added_groups.add(group_id)

    async def produce(
        self, request: TxnRequest, batches: Sequence[ClientBatch], *, implicit: bool, accepted: Callable[[], None]
    ) -> list[Written]:
        """As ``Decider.produce``; unless ``implicit``, only what was added: what is late is not taken for the next."""
        of_this = implicit and request.client == self._client  # else only what was added is added
        async with self._turn(places_of(batches) if of_this else (), accepted):
            self._admit(request, None)
            self._refuse()
            joined = self._transaction.joined if self._transaction is not None else ()
            if not implicit and any((batch.topic, batch.partition) not in joined for batch in batches):
                raise TxnError(ErrorCode.INVALID_TXN_STATE, "the partition was not added to the transaction")
            with self._asking():
                transaction = await self._begin()
                sends = await self._accept(transaction, request, batches)
        return await self._settled(transaction, sends)

    async def commit_offsets(self, request: TxnRequest, offsets: TransactionOffsets, *, implicit: bool) -> None:
        """TxnOffsetCommit: the group's coordinator checks member and generation. TxnError with its error."""
        async with self._lock:
            self._admit(request, offsets.group_id)
            self._refuse()
            added = self._transaction.added_groups if self._transaction is not None else AddedGroups()
            if not implicit:
                if offsets.group_id not in added:
                    raise TxnError(ErrorCode.INVALID_TXN_STATE, f"group {offsets.group_id} was not added")
                self._doomed = added.receive(offsets, request.connection)
                self._refuse_doomed()
            with self._asking():
                transaction = await self._begin()
                transaction.groups.append(offsets)
                commit = self._requests.commit_offsets
                await self._wait(transaction, lambda: commit(transaction.producer, self._protocol, offsets))

    # -- the end

    async def end(self, request: TxnRequest, *, committed: bool, bumps: bool) -> Producer:
        """EndTxn; the client's identity from now on. ``bumps``: its epoch rises with each end (KIP-890). TxnError."""
        async with self._turn_to_end(request, committed):
            last = self._last
            if last is not None and last.next_client == self._client != last.client == request.client:
                return self._again(last, committed)  # the answer was lost, and the epoch has risen
            self._admit(request, COORDINATOR)
            if committed:
                self._refuse_doomed()
            self._doomed = None
            if self._transaction is not None:
                if self._ending not in (None, committed):
                    raise TxnError(ErrorCode.CONCURRENT_TRANSACTIONS, "the transaction is being decided otherwise")
                await self._decide(self._transaction, committed=committed)
                last = self._last = _Ended(self._client, committed, self._client)
            if last is not None and last.client == request.client:
                self._again(last, committed)
                if bumps:
                    await self._raise(last)
            return self._client

    def _turn_to_end(self, request: TxnRequest, committed: bool) -> AbstractAsyncContextManager[None]:
        """The turn; an urgent one for an abort by the client that has the id. TxnError."""
        if committed or request.client != self._client:
            return self._turns.ordinary()
        self._admit(request, COORDINATOR)
        return self._turn_to_abort("the client aborted the transaction")

    @property
    def _may_be_committed(self) -> bool:
        return self._ending is True

    def _again(self, last: _Ended, committed: bool) -> Producer:
        if last.committed is not committed:
            ended = "committed" if last.committed else "aborted"
            raise TxnError(ErrorCode.INVALID_TXN_STATE, f"the last transaction was {ended}")
        return self._client

    async def _raise(self, last: _Ended) -> None:
        """The client's epoch, behind an end."""
        if self._is_used:
            with self._asking():
                await self._renew()
        self._client = self._upstream
        self._last = last._replace(next_client=self._client)

    async def _decide(self, transaction: Transaction, *, committed: bool) -> None:
        """Has the broker end it; TxnError if it was to be committed and can't be, or nothing definite was heard."""
        if committed:
            with suppress(Interrupted):
                await self._wait(transaction, transaction.writer.flush)
            self._look_at(transaction)
            self._refuse_doomed()
        else:
            transaction.writer.abandon()
        if transaction.announced or transaction.groups:
            with self._asking():
                await self._ask_to_end(transaction, committed=committed)
        self._ending = None
        self._ended(committed)

    async def _ask_to_end(self, transaction: Transaction, *, committed: bool) -> None:
        protocol = await self._agreed()
        self._ending = committed
        try:
            following = await self._requests.end(transaction.producer, protocol, committed=committed)
        except TxnError as error:
            if error.error_code is ErrorCode.COORDINATOR_NOT_AVAILABLE:
                raise
            self._ending = None  # it was refused: nothing is decided
            if error.error_code is not ErrorCode.INVALID_TXN_STATE:
                raise
            if committed:
                # the broker takes it for the repeated end of its own abort, as it will the client's abort
                self._doomed = TxnError(ErrorCode.TRANSACTION_ABORTABLE, "it took longer than it may")
                raise self._doomed from error
            following = None  # the broker has heard of nothing that could be aborted
        self._upstream, self._is_used = following or transaction.producer, following is None

    def _drop(self, reason: str) -> None:
        self._ending = None
        super()._drop(reason)
