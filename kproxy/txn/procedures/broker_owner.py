"""One transactional id whose transactions the broker's coordinator decides and kproxy asks for.

The client's identity is the producer id and epoch that InitProducerId gave it. The epochs under which its transactions
are written are the broker's (``TransactionAtBroker``).

What a client sends late to kproxy is known by its connection, its partitions and its own sequences (KAFKA-17754). Which
client is fenced is for the broker to say: kproxy asks in the name of the identity that it has there (KIP-360).
"""

from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from kproxy.codec._generated.transaction_offsets import TransactionOffsets
from kproxy.codec.messages import ErrorCode
from kproxy.codec.topic_partition import TopicPartition
from kproxy.txn.claims import NOBODY, is_retry, refuse_former
from kproxy.txn.client_sequences import ClientSequences
from kproxy.txn.first_batches import FirstBatches
from kproxy.txn.ids import Producer
from kproxy.txn.late_requests import COORDINATOR
from kproxy.txn.prepared_parts import ALONE, DecisionScope
from kproxy.txn.procedures.broker_protocol import Protocol
from kproxy.txn.procedures.continuing import continue_client
from kproxy.txn.procedures.transaction_at_broker import FENCED, TransactionAtBroker
from kproxy.txn.repeated_ends import Ended
from kproxy.txn.requests import ClientBatch, TxnRequest, Written, places_of
from kproxy.txn.resting_client import RestingClient
from kproxy.txn.states import TransactionState
from kproxy.txn.stored_epochs import LastEnd, StoredEpoch
from kproxy.txn.txn_error import TxnError


class BrokerOwner(TransactionAtBroker):
    """Asks the broker's coordinator on behalf of one client at a time."""

    @property
    def is_busy(self) -> bool:
        """Whether something that it was asked for is under way."""
        return self._lock.locked()

    # -- which requests are admitted

    async def initialize(self, timeout_ms: int, resumed: Producer = NOBODY) -> Producer:
        """InitProducerId; ``resumed``: the identity that the client has (KIP-360), or NOBODY. TxnError."""
        async with self._turn_to_initialize(resumed):
            if is_retry(resumed, self._resumed, self._given, self.id.client):
                if self.id.is_fenced:
                    raise self.id.replaced()
                return self.id.client
            expected = await self._known_as(resumed)
            protocol = await self._requests.protocol()
            producer = await self._requests.init(timeout_ms, expected)
            # not before: a client that has the id and is not fenced must not lose what it wrote
            self._drop("initialized")
            self.id.initialize()
            self.id.client = self._upstream = producer
            self._protocol, self._timeout_ms = protocol, timeout_ms
            self._is_used = self._is_outdated = self._owes_epoch = False
            self._resumed, self._given, self._last = resumed, producer, None
            self._first_batches, self._is_continued, self._last_end = None, False, LastEnd.NONE
            if self.policy.resumes:
                self._kept.begin(producer, timeout_ms)
                self._kept.put(producer, LastEnd.NONE)
                await self._kept.written()
            return producer

    @property
    def is_unknown(self) -> bool:
        """Whether no client has received the id here."""
        return self.id.is_unknown

    async def resume(self, stored: StoredEpoch) -> None:
        """The client had the id before kproxy was restarted; nothing if a client has it by now. TxnError."""
        async with self._turns.ordinary():
            if not self.is_unknown:
                return
            self._kept.begin(stored.client, stored.timeout_ms)
            self._protocol, self._timeout_ms = await self._requests.protocol(), stored.timeout_ms
            try:
                self._upstream, last = await continue_client(
                    stored, self._requests, self._protocol, self._kept, self._time
                )
            except TxnError as error:
                if error.error_code not in FENCED:
                    raise
                # asked again, the broker might abort what the newer producer has open
                self.id.client, self.id.is_fenced = stored.client, True
                self._kept.leave(replaced=True)
                raise self.id.replaced() from error
            self._last_end, self.id.client = last, stored.client
            self._first_batches, self._is_continued = FirstBatches(), True
            self._kept.put(self._upstream, self._beside(last))
            if last is LastEnd.LOST:
                self._doom_continued()
            elif last is not LastEnd.NONE:
                self.id.restore(committed=last is LastEnd.COMMITTED)
            self._stats.continued += 1

    def _turn_to_initialize(self, resumed: Producer) -> AbstractAsyncContextManager[None]:
        """The turn; an urgent one unless the client asks again, or was replaced by another."""
        if resumed not in (NOBODY, self.id.client):
            return self._turns.ordinary()
        return self._turns.urgent(f"{self._name} was initialized again")

    async def _known_as(self, resumed: Producer) -> Producer:
        """The identity at the broker of a client that continues; its open transaction is ended first, as it must be.

        A broker that is asked in the name of an older identity aborts what the newer has open before it refuses.
        """
        client = self.id.client
        if resumed == NOBODY or resumed.producer_id != client.producer_id or resumed > client:
            return resumed
        if self.id.is_fenced:
            raise self.id.replaced()
        try:
            refuse_former(resumed, client, self._last, is_open=self.transaction is not None)
        except TxnError:
            self._stats.count_fenced()
            raise
        if self.transaction is not None:
            # an end that may have come through stays what it was
            await self._decide(self.transaction, committed=self.id.may_be_committed)
        return self._upstream

    def _admit(self, request: TxnRequest, coordinator: str | None) -> None:
        self.used_at = self._now()
        self.id.admit(request, coordinator)

    def takes_at_once(self, batches: Sequence[ClientBatch]) -> bool:
        known = self._first_batches is None or self._first_batches.knows(places_of(batches))
        return known and super().takes_at_once(batches)

    # -- a transaction grows

    async def join(self, request: TxnRequest, places: Sequence[TopicPartition]) -> None:
        """AddPartitionsToTxn; in the second protocol the broker receives the partitions with the first data."""
        async with self._turn_to_grow(request, COORDINATOR):
            transaction = await self._begin()
            if self._protocol.adds:
                with self._asking():
                    await self._added.announce(transaction, self._protocol, places)
            transaction.joined.update(places)

    async def produce(
        self, request: TxnRequest, batches: Sequence[ClientBatch], *, implicit: bool, accepted: Callable[[], None]
    ) -> list[Written]:
        """Writes batches; of added partitions only, unless ``implicit``: what is late is not taken for the next."""
        places = places_of(batches)
        of_this = implicit and request.client == self.id.client  # else only what was added is added
        async with self._turn(places if of_this else (), accepted):
            self._admit(request, None)
            self.id.refuse_growth()
            self._check_joined(places, implicit=implicit)
            if self._first_batches is not None and not self._first_batches.admit(places, request.connection):
                self._sequences, self._first_batches = ClientSequences(), FirstBatches()
                raise self.id.doom("a batch from before the restart of kproxy may be in the transaction")
            transaction = await self._begin()
            with self._asking():
                sends = await self._accept(transaction, request, batches)
        return await self._results(transaction, sends)

    @asynccontextmanager
    async def _turn(self, places: Collection[TopicPartition], accepted: Callable[[], None]) -> AsyncIterator[None]:
        """The lock, for the call that writes to these partitions; the next call may begin after it."""
        with self._added.line.waiting(places):
            accepted()  # the next one waits for the lock after this one: there is no checkpoint in between
            async with self._turns.ordinary():
                yield

    async def commit_offsets(self, request: TxnRequest, offsets: TransactionOffsets, *, implicit: bool) -> None:
        """The group's coordinator checks member and generation. TxnError with its error."""
        async with self._turn_to_grow(request, offsets.group_id):
            self._check_group_added(offsets.group_id, implicit=implicit)
            transaction = await self._begin()
            if not implicit:
                self.id.take_offsets(transaction.added_groups, offsets, request.connection)
            transaction.moves_groups = True
            commit = self._requests.commit_offsets
            with self._asking():
                await self._wait(lambda: commit(transaction.producer, self._protocol, offsets))

    # -- the end

    async def prepare(self, request: TxnRequest, batch_id: str | None = None) -> None:
        """The broker has no such state. TxnError (INVALID_REQUEST)."""
        raise _only_at_home("prepare")

    async def end(self, request: TxnRequest, *, committed: bool, bumps: bool, also: DecisionScope = ALONE) -> Producer:
        """Ends the transaction as ``Owner.end``, for one part alone."""
        if also.members is not None or also.every or also.batch_id is not None:
            raise _only_at_home("members")
        async with self._turn_to_end(request, committed):
            repeated = self.id.repeated_end(request, self._last, committed=committed)
            if repeated is not None:
                return repeated
            self._admit(request, COORDINATOR)
            self._refuse_unknown(committed=committed, bumps=bumps)
            self.id.begin_to_end(committed=committed)
            if self.transaction is not None:
                self.id.refuse_other_end(committed=committed)
                await self._decide(self.transaction, committed=committed)
                self._owes_epoch = bumps
                self._last = Ended(self.id.client, committed, self.id.client)
            elif not bumps or self._owes_epoch:
                self.id.end_nothing(committed=committed)
            self._is_continued = False
            if self._first_batches is not None:
                self._first_batches.ended()
            if bumps:
                await self._raise_epoch(committed)
                self._kept.leave()
            return self.id.client

    def _refuse_unknown(self, *, committed: bool, bumps: bool) -> None:
        """TxnError for the first end of a client that continues, if kproxy does not know what it means."""
        if not self._is_continued:
            return
        if bumps:
            why = "kproxy was restarted; transactions.home: broker is for clients of this protocol"
            raise TxnError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, why)
        if committed and self.transaction is None and self.id.state is not TransactionState.COMPLETE_COMMIT:
            raise self._doom_continued()

    def _turn_to_end(self, request: TxnRequest, committed: bool) -> AbstractAsyncContextManager[None]:
        """The turn; an urgent one for an abort by the client that has the id. TxnError."""
        if committed or request.client != self.id.client:
            return self._turns.ordinary()
        self._admit(request, COORDINATOR)
        if self.transaction is not None and not self.id.may_be_committed:
            self.transaction.writer.abandon()
        return self._turns.urgent("the client aborted the transaction")

    async def _raise_epoch(self, committed: bool) -> None:
        """The client's epoch rises with each of its ends, also where nothing was open.

        The client's sequences begin at 0 after each EndTxn (KIP-890): under the same epoch a late batch would be taken
        into the next transaction. TxnError; one that says that the client was replaced would deny its commit, and is
        left to the next request.
        """
        if self._is_used or self._upstream == self.id.client:
            try:
                with self._asking():
                    await self._renew()
            except TxnError as error:
                if not (committed and self.id.is_fenced):
                    raise
                why = "the transaction is committed, and another producer has the id"
                raise TxnError(ErrorCode.COORDINATOR_NOT_AVAILABLE, why) from error
        self._last = Ended(self.id.client, committed, self._upstream)
        self.id.client, self._owes_epoch = self._upstream, False

    # -- at rest

    def pack(self) -> bytes | None:
        """All that is known of an id at rest, for ``unpack``; None if it does not rest.

        Anyone who may use a transactional id leaves an owner, for as long as brokers know the id.
        """
        known, kept = self.id.pack(), self._kept.pack()
        if known is None or kept is None or self.is_connected or not self.is_at_rest:
            return None
        state = RestingClient(
            known=known,
            kept=kept,
            sequences=self._sequences.pack(),
            first_batches=self._first_batches and self._first_batches.pack(),
            level=self._protocol.level,
            timeout_ms=self._timeout_ms,
            upstream=self._upstream,
            resumed=self._resumed,
            given=self._given,
            last_end=int(self._last_end),
            last=self._last,
            is_continued=self._is_continued,
            is_outdated=self._is_outdated,
            is_used=self._is_used,
            owes_epoch=self._owes_epoch,
        )
        return state.to_bytes()

    def unpack(self, packed: bytes) -> None:
        """Takes the bytes that ``pack`` returned."""
        state = RestingClient.of_bytes(packed)
        self.id.unpack(state.known)
        self._kept.unpack(state.kept)
        self._sequences.unpack(state.sequences)
        self._first_batches = None if state.first_batches is None else FirstBatches.unpack(state.first_batches)
        self._protocol, self._timeout_ms = Protocol.of(state.level), state.timeout_ms
        self._upstream, self._resumed, self._given = state.upstream, state.resumed, state.given
        self._last_end, self._last = LastEnd(state.last_end), state.last
        self._is_continued, self._is_outdated = state.is_continued, state.is_outdated
        self._is_used, self._owes_epoch = state.is_used, state.owes_epoch

    def expire(self) -> None:
        """The brokers have forgotten the client, so the next kproxy need not know it."""
        self._kept.forget()


def _only_at_home(what: str) -> TxnError:
    return TxnError(ErrorCode.INVALID_REQUEST, f"{what}: only for ids whose transactions.home is kproxy")
