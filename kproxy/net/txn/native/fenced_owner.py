"""One transactional id whose client speaks KIP-98 itself, whose transactions the broker decides and kproxy asks for.

The client keeps the producer id and epoch that InitProducerId gave it. Behind it each transaction has an epoch of its
own at the broker, with sequences from 0: what is late of one can't touch the next (KIP-890). What the client sends late
to kproxy is known by its connection, its partitions and its own sequences (KAFKA-17754).

Who is fenced is for the broker to say: kproxy asks in the name of the identity that it has there (KIP-360).
"""

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

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
from kproxy.txn.view import Place

if TYPE_CHECKING:
    from kproxy.proxy.transaction_stats import TransactionStats
    from kproxy.txn.writes import TxnSend

#: The way of requests to the transaction's coordinator. That of offsets is their group's.
_COORDINATOR: Final = ("coordinator", "")
#: A newer producer has the id, or the broker has ended the transaction, which took too long: to Kafka that is the same.
_FENCED: Final = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH})


class _Ended(NamedTuple):
    """The last end that the broker has confirmed, by whom it was asked for, and who goes on."""

    client: Producer
    committed: bool
    next_client: Producer


class FencedOwner:
    """Asks the broker's coordinator on behalf of a client of the first protocol, or of the second."""

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
        #: As the client knows itself, and the identity for which it was given.
        self._client = self._resumed = NOBODY
        #: As the broker knows it; it has written a transaction that ended without giving it a new epoch.
        self._upstream = NOBODY
        self._is_used = False
        self._transaction: Transaction | None = None
        #: Groups that were added to it.
        self._groups: set[str] = set()
        #: The end that was asked of the broker and has had no definite answer: to commit, or to abort.
        self._ending: bool | None = None
        self._last: _Ended | None = None
        self._sequences: ClientSequences[TxnSend] = ClientSequences()
        #: Why the client's transaction is lost, until it has aborted it.
        self._doomed: TxnError | None = None
        self._is_fenced = False
        #: The newest connection by which requests came, by their way.
        self._newest: dict[tuple[str, str], int] = {}
        self._parties: set[int] = set()

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
        async with self._lock:
            self.used_at = trio.current_time()
            if resumed != NOBODY and resumed == self._resumed and self._last is None and self._transaction is None:
                return self._client  # it asks again, since it has not had the answer
            expected = await self._known_as(resumed)
            self._drop("initialized")
            self._protocol = await self._requests.protocol()
            self._upstream = self._client = await self._requests.init(timeout_ms, expected)
            self._timeout_ms, self._resumed = timeout_ms, resumed
            self._is_used = self._is_fenced = False
            self._last = self._doomed = None
            self._newest.clear()
            return self._client

    async def _known_as(self, resumed: Producer) -> Producer:
        """The identity at the broker of a client that goes on; its open transaction is aborted first, as it must be."""
        if resumed == NOBODY or resumed != self._client:
            return resumed
        if self._transaction is not None and not self._is_fenced:
            await self._decide(self._transaction, committed=False)
        return self._upstream

    def _admit(self, request: TxnRequest, way: tuple[str, str] | None) -> None:
        """Lets in the client that has the id; TxnError says to others what they are told.

        ``way``: what comes by it over an older connection than the newest was held up, and speaks of what is over.
        """
        self.used_at = trio.current_time()
        if request.client.producer_id != self._client.producer_id:
            raise TxnError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, f"producer id {request.client.producer_id}")
        if request.client.epoch > self._client.epoch:
            raise TxnError(ErrorCode.INVALID_PRODUCER_EPOCH, f"epoch {request.client.epoch} was never given")
        if request.client.epoch < self._client.epoch or self._is_fenced:
            self._stats.fenced += 1
            raise TxnError(ErrorCode.PRODUCER_FENCED, f"a newer producer has {self._name}, or its time was over")
        if way is not None:
            if request.connection < self._newest.get(way, -1):
                raise TxnError(ErrorCode.NETWORK_EXCEPTION, "a newer connection of the producer is in use")
            self._newest[way] = request.connection
        if self._transaction is None:
            self._parties = set()
        self._parties.add(request.connection)

    def _refuse(self) -> None:
        """TxnError where the open transaction can't grow."""
        if self._doomed is not None:
            raise self._doomed
        if self._ending is not None:
            raise TxnError(ErrorCode.CONCURRENT_TRANSACTIONS, "the last transaction is being decided")

    def _fence(self, error: TxnError) -> TxnError:
        """What to tell; where the broker has said that the client is fenced it is so from now on."""
        if error.error_code not in _FENCED:
            return error
        self._is_fenced = True
        self._stats.fenced += 1
        self._drop("fenced")
        return TxnError(ErrorCode.PRODUCER_FENCED, error.message)

    # -- a transaction begins, and grows

    async def join(self, request: TxnRequest, places: Sequence[Place]) -> None:
        """AddPartitionsToTxn. In the second protocol the broker hears of them by what is written. TxnError."""
        async with self._lock:
            self._admit(request, _COORDINATOR)
            self._refuse()
            transaction = await self._begin()
            await self._announce(transaction, places)
            transaction.joined.update(places)

    async def add_offsets(self, request: TxnRequest, group_id: str) -> None:
        """AddOffsetsToTxn: the broker hears of the group with the offsets. TxnError."""
        async with self._lock:
            self._admit(request, _COORDINATOR)
            self._refuse()
            await self._begin()
            self._groups.add(group_id)

    async def _begin(self) -> Transaction:
        if self._transaction is None:
            await self._renew()
            native = Native(self._name, self._protocol.produce)
            writer = TransactionWriter(self._connections, *self._upstream, native)
            self._transaction = Transaction(self._upstream, writer)
            self._stats.open += 1
        return self._transaction

    async def _renew(self) -> None:
        """An epoch that nothing was written under, where the last end has not given one. TxnError."""
        if not self._is_used:
            return
        try:
            self._upstream = await self._requests.init(self._timeout_ms, self._upstream)
        except TxnError as error:
            raise self._fence(error) from error
        self._is_used = False

    async def _announce(self, transaction: Transaction, places: Sequence[Place]) -> None:
        unknown = transaction.unannounced(dict.fromkeys(places))
        if unknown and self._protocol.adds:
            try:
                await self._requests.add_partitions(transaction.producer, unknown)
            except TxnError as error:
                raise self._fence(error) from error
            transaction.announced.update(unknown)

    async def produce(
        self, request: TxnRequest, batches: Sequence[ClientBatch], *, implicit: bool, accepted: Callable[[], None]
    ) -> list[Written]:
        """As ``Decider.produce``; unless ``implicit``, only what was added: what is late is not taken for the next."""
        places = [(batch.topic, batch.partition) for batch in batches]
        async with self._lock:
            self._admit(request, None)
            self._refuse()
            transaction = self._transaction or (await self._begin() if implicit else None)
            if transaction is None or not (implicit or transaction.joined.issuperset(places)):
                raise TxnError(ErrorCode.INVALID_TXN_STATE, "the partition was not added to the transaction")
            await self._announce(transaction, places)
            await transaction.writer.room(sum(len(batch.batch) for batch in batches))
            sends = transaction.accept(request.client, batches, self._sequences)
            transaction.announced.update(places)
            accepted()
        await transaction.writer.settled([send for send in sends if send is not None])
        self._look_at(transaction)
        return [told(send) for send in sends]

    def _look_at(self, transaction: Transaction) -> None:
        """A batch that was not written dooms the transaction; it may be the broker's way to say who is fenced."""
        failed = transaction.writer.failed
        if failed is None or self._transaction is not transaction or self._doomed is not None:
            return
        if failed in _FENCED:
            self._fence(TxnError(ErrorCode.PRODUCER_FENCED, "the broker refused a batch"))
        else:
            self._doomed = TxnError(ErrorCode.TRANSACTION_ABORTABLE, "a batch of the transaction was not written")

    async def commit_offsets(self, request: TxnRequest, offsets: TransactionOffsets, *, implicit: bool) -> None:
        """TxnOffsetCommit: the group's coordinator checks member and generation. TxnError with its error."""
        async with self._lock:
            self._admit(request, ("group", offsets.group_id))
            self._refuse()
            if not implicit and offsets.group_id not in self._groups:
                raise TxnError(ErrorCode.INVALID_TXN_STATE, "the group was not added to the transaction")
            transaction = await self._begin()
            transaction.groups.append(offsets)
            try:
                await self._requests.commit_offsets(transaction.producer, self._protocol, offsets)
            except TxnError as error:
                raise self._fence(error) from error

    # -- the end

    async def end(self, request: TxnRequest, *, committed: bool, bumps: bool) -> Producer:
        """EndTxn; the client's identity from now on. ``bumps``: its epoch rises with each end (KIP-890). TxnError."""
        async with self._lock:
            last = self._last
            if last is not None and last.next_client == self._client != last.client == request.client:
                return self._again(last, committed)  # the answer was lost, and the epoch has risen
            self._admit(request, _COORDINATOR)
            if committed and self._doomed is not None:
                raise self._doomed
            self._doomed = None
            if self._transaction is None:
                return self._client if last is None else self._again(last, committed)
            if self._ending not in (None, committed):
                raise TxnError(ErrorCode.CONCURRENT_TRANSACTIONS, "the transaction is being decided otherwise")
            await self._decide(self._transaction, committed=committed)
            if bumps:
                await self._renew()
                self._client = self._upstream
            self._last = _Ended(request.client, committed, self._client)
            return self._client

    def _again(self, last: _Ended, committed: bool) -> Producer:
        if last.committed is not committed:
            ended = "committed" if last.committed else "aborted"
            raise TxnError(ErrorCode.INVALID_TXN_STATE, f"the last transaction was {ended}")
        return self._client

    async def _decide(self, transaction: Transaction, *, committed: bool) -> None:
        """Has the broker end it; TxnError if it was to be committed and can't be, or nothing definite was heard."""
        if committed:
            await transaction.writer.flush()
            self._look_at(transaction)
            if self._doomed is not None:
                raise self._doomed
        else:
            transaction.writer.abandon()
        if transaction.announced or transaction.groups:
            await self._ask_to_end(transaction, committed=committed)
        self._over()
        if committed:
            self._stats.commits += 1
        else:
            self._stats.aborted("client")

    async def _ask_to_end(self, transaction: Transaction, *, committed: bool) -> None:
        self._ending = committed
        try:
            if self._is_fenced:
                raise TxnError(ErrorCode.PRODUCER_FENCED, "the broker refused a batch")
            following = await self._requests.end(transaction.producer, self._protocol, committed=committed)
        except TxnError as error:
            if error.error_code is not ErrorCode.COORDINATOR_NOT_AVAILABLE:
                self._ending = None  # it was refused: nothing is decided
            if committed and error.error_code is ErrorCode.INVALID_TXN_STATE:
                # the broker takes it for the repeated end of its own abort, as it will the client's abort
                self._doomed = TxnError(ErrorCode.TRANSACTION_ABORTABLE, "it took longer than it may")
                raise self._doomed from error
            raise self._fence(error) from error
        self._upstream, self._is_used = following or transaction.producer, following is None

    def _drop(self, reason: str) -> None:
        """Gives up what is open: the broker has ended it, or will."""
        if self._transaction is not None:
            self._transaction.writer.abandon()
            self._stats.aborted(reason)
            self._over()

    def _over(self) -> None:
        self._transaction = self._ending = None
        self._groups.clear()
        self._stats.open -= 1

    def close(self) -> None:
        """Closes its connections."""
        self._connections.close()
