"""Clients' requests about transactions, asked of the coordinator of this instance and answered in the wire's words."""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence, Sized
from contextlib import suppress
from functools import partial
from typing import Final

import trio

from kproxy.codec._generated.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from kproxy.codec._generated.add_partitions_to_txn import AddPartitionsToTxnRequest
from kproxy.codec._generated.end_txn import EndTxnRequest, EndTxnResponse
from kproxy.codec._generated.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kproxy.codec._generated.leave_group import LeaveGroupRequest, LeaveGroupResponse
from kproxy.codec._generated.offset_commit import OffsetCommitRequest
from kproxy.codec._generated.transaction_offsets import TransactionOffsets
from kproxy.codec._generated.txn_offset_commit import TxnOffsetCommitRequest
from kproxy.codec._generated.write_txn_markers import WriteTxnMarkersRequest
from kproxy.codec.batch import stored_crc
from kproxy.codec.messages import ErrorCode, Message
from kproxy.codec.produce_layout import FIRST_TOPIC_ID, TopicRef
from kproxy.errors import RemoteProtocolError
from kproxy.net.brokers.cluster import Cluster
from kproxy.net.end_of_turn import EndOfTurn
from kproxy.net.txn.coordinator import Coordinator
from kproxy.net.txn.implicit_transactions import ImplicitTransactions
from kproxy.proxy.applications import committed, has_left, offsets_committed_by
from kproxy.proxy.coordinator_requests import (
    AbortRequest,
    ApplicationCommit,
    CoordinatorAnswer,
    ImplicitProduce,
    Produced,
    ProducePart,
    TransactionalProduce,
    TransactionRequest,
)
from kproxy.proxy.handlers.transaction_admin import marked
from kproxy.proxy.implicit_produce import implicit_response
from kproxy.proxy.memberships import Memberships
from kproxy.proxy.routing import is_own_topic
from kproxy.proxy.transaction_messages import (
    NO_PRODUCER,
    failed,
    offsets_committed,
    offsets_of,
    partitions_added,
    places_of,
    produced,
)
from kproxy.txn.requests import ClientBatch, TxnRequest, Written
from kproxy.txn.txn_error import TxnError

#: From these versions on a client speaks the second version of the protocol (KIP-890, transaction.version 2):
#: partitions and groups join a transaction by being written, and each EndTxn raises the epoch.
_PRODUCE_V2: Final = 12
_OFFSETS_V2: Final = 5
_END_V2: Final = 5
#: A member leaves its group by itself, as any version can say.
_LEAVE_VERSIONS: Final = (1, 1)
_LEAVE_SECONDS: Final = 5.0


class TransactionApi:
    """What connections ask in place of their brokers."""

    def __init__(
        self,
        coordinator: Coordinator,
        cluster: Cluster,
        implicit_transactions: ImplicitTransactions,
        turn: EndOfTurn,
    ) -> None:
        """``cluster`` tells the names of topics that clients name by ids; ``turn`` is the process's."""
        self.turn = turn
        self._coordinator = coordinator
        self._cluster = cluster
        #: Whose requests go into transactions that their clients know nothing of.
        self.implicit_transactions = implicit_transactions
        #: Which members are in which group, for offsets of clients that do not say.
        self.memberships = Memberships()

    async def answer(
        self, ask: TransactionRequest | TransactionalProduce, version: int, accepted: Callable[[], None]
    ) -> CoordinatorAnswer | None:
        """The response to a request of this version; None if its connection has to end, being older than its client's.

        ``accepted`` is called when the next request may begin.
        """
        if isinstance(ask, TransactionalProduce):
            return await self._produce(ask, version, accepted)
        try:
            return await self._ask(ask, version)
        except TxnError as error:
            if error.error_code == ErrorCode.NETWORK_EXCEPTION:
                return None
            return failed(ask.request, version, error.error_code)

    def closed(self, connection: int, *, received_all: bool) -> None:
        """Records that a client's connection has ended; ``received_all``: it surely has every response."""
        self._coordinator.log.closed(connection)
        self.implicit_transactions.closed(connection, received_all=received_all)
        self.memberships.closed(connection, self._cluster.network.wall())

    async def abort(self, ask: AbortRequest) -> Message:
        """The response to an operator's marker (``kafka-transactions.sh abort``)."""
        assert isinstance(ask.request, WriteTxnMarkersRequest)
        try:
            await self._coordinator.abort(ask.transactional_id, ask.client)
        except TxnError as error:
            return marked(ask.request, error.error_code)
        return marked(ask.request, ErrorCode.NONE)

    async def _ask(self, ask: TransactionRequest, version: int) -> Message:
        coordinator, who, request = self._coordinator, ask.who, ask.request
        match request:
            case InitProducerIdRequest():
                coordinator.admit_id(who.transactional_id, ask.principal)
                return await self._init_producer_id(who, request)
            case AddPartitionsToTxnRequest():
                return partitions_added(request, version, await coordinator.add_partitions(who, places_of(request)))
            case AddOffsetsToTxnRequest():
                await coordinator.add_offsets(who, request.group_id)
                return AddOffsetsToTxnResponse()
            case TxnOffsetCommitRequest():
                return await self._commit_offsets(who, request, version)
            case EndTxnRequest():
                bumps = version >= _END_V2
                producer = await coordinator.end(who, committed=request.committed, bumps=bumps)
                return EndTxnResponse(producer_id=producer.producer_id, producer_epoch=producer.epoch)
        raise TypeError(f"{type(request).__name__} is not about a transaction")

    async def _commit_offsets(self, who: TxnRequest, request: TxnOffsetCommitRequest, version: int) -> Message:
        """Topics whose ids no broker knows are refused; the offsets of the others are committed (``KafkaApis``)."""
        ids = {topic.topic_id for topic in request.topics if not topic.name}
        names = await self._topic_names(ids)
        offsets = offsets_of(request, names)
        if offsets.topics or not ids:
            await self._coordinator.commit_offsets(who, offsets, implicit=version >= _OFFSETS_V2)
        return offsets_committed(request, version, ErrorCode.NONE, unknown=ids - names.keys())

    async def _init_producer_id(self, who: TxnRequest, request: InitProducerIdRequest) -> InitProducerIdResponse:
        client = None if who.client == NO_PRODUCER else who.client
        timeout_ms = request.transaction_timeout_ms
        producer = await self._coordinator.init_producer_id(who.transactional_id, timeout_ms, client, who.client_id)
        return InitProducerIdResponse(producer_id=producer.producer_id, producer_epoch=producer.epoch)

    # -- Produce

    def produce_at_once(
        self, ask: TransactionalProduce | ImplicitProduce, version: int, answered: Callable[[CoordinatorAnswer], None]
    ) -> bool:
        """Takes a request whose batches can have their place in the order now; else nothing is done, and it is False.

        ``answered`` is called with the response; it must not raise. Nothing waits for it: that would be half of what a
        batch costs.
        """
        names = self._known_names(ask.parts, version)
        if names is None:
            return False
        batches: list[ClientBatch] = []
        for part in ask.parts:
            name = names[part.topic]
            if part.error_code or not part.records or is_own_topic(name):
                return False
            batches.append(_client_batch(part, name))
        if isinstance(ask, ImplicitProduce):
            return self._captured_at_once(ask, batches, version, answered)
        who = ask.who
        if not self._coordinator.takes_at_once(who.transactional_id, batches):
            return False
        try:
            self._coordinator.produce_at_once(
                who, batches, lambda rows: answered(produced(ask.parts, rows, version)), implicit=version >= _PRODUCE_V2
            )
        except TxnError:
            return False  # the owner may have to read the log first
        return True

    def _captured_at_once(
        self,
        ask: ImplicitProduce,
        batches: Sequence[ClientBatch],
        version: int,
        answered: Callable[[CoordinatorAnswer], None],
    ) -> bool:
        capture = ask.capture

        def written(rows: Sequence[Written]) -> None:
            capture.done()
            answered(implicit_response(ask.parts, rows, version))

        if not capture.takes_at_once(batches):
            return False
        capture.came(ask.connection, batches, ask.arrival_ms)
        try:
            capture.write_at_once(batches, written)
        except TxnError as error:
            capture.failed(str(error))
            written(_refused(batches, error))
        return True

    async def _produce(self, ask: TransactionalProduce, version: int, accepted: Callable[[], None]) -> Produced | None:
        parts = ask.parts
        try:
            names = await self._names(parts, version)
            parts = [_named(part, names) for part in parts]
            batches = [_client_batch(part, names[part.topic]) for part in parts if not part.error_code]
            implicit = version >= _PRODUCE_V2
            produce = self._coordinator.produce
            written = await produce(ask.who, batches, implicit=implicit, accepted=accepted) if batches else ()
        except TxnError as error:
            if error.error_code == ErrorCode.NETWORK_EXCEPTION:
                return None
            written = _refused([part for part in parts if not part.error_code], error)
        return produced(parts, written, version)

    # -- Produce of clients that know nothing of transactions

    def captured(
        self, ask: ImplicitProduce, version: int, before: trio.Event, accepted: trio.Event
    ) -> Callable[[], Awaitable[Produced]]:
        """Begins to write what was captured: this continues when its client disconnects. The result has the response.

        It waits for ``before``, and sets ``accepted`` when the next request may begin.
        """
        result = self._coordinator.start(partial(self._write_captured, ask, version, before, accepted))

        async def answer() -> Produced:
            try:
                return await result()
            except TxnError as error:
                taken = [part for part in ask.parts if part.records and not part.error_code]
                return implicit_response(ask.parts, _refused(taken, error), version)

        return answer

    async def _write_captured(
        self, ask: ImplicitProduce, version: int, before: trio.Event, accepted: trio.Event
    ) -> Produced:
        capture = ask.capture
        try:
            if not before.is_set():
                await before.wait()
            names = await self._names(ask.parts, version)
            parts = [_named(part, names) for part in ask.parts]
            taken = [part for part in parts if part.records and not part.error_code]
            batches = [_client_batch(part, names[part.topic]) for part in taken]
            refused = any(part.error_code for part in parts)
            capture.came(ask.connection, batches, ask.arrival_ms)
            written = await capture.write(batches, refused=refused, accepted=accepted.set) if batches or refused else ()
            return implicit_response(parts, written, version)
        except BaseException as error:
            capture.failed(str(error))
            raise
        finally:
            accepted.set()
            capture.done()

    def committed(self, ask: ApplicationCommit, done: trio.Event) -> Callable[[], Awaitable[Message]]:
        """Begins to end the transaction of an application with its OffsetCommit. What is given has the response.

        ``done`` is set when the offsets are committed, or will not be.
        """
        result = self._coordinator.start(partial(self._commit, ask, done))

        async def answer() -> Message:
            try:
                await result()
            except TxnError as error:
                await self._let_leave(ask.request, error.error_code)
                return committed(ask.request, error.error_code)
            return committed(ask.request, ErrorCode.NONE)

        return answer

    async def _let_leave(self, request: OffsetCommitRequest, error: ErrorCode) -> None:
        """A member that has to rejoin forgets its member id: its group need not wait for the old one to expire."""
        if has_left(request, error):
            return
        leave = LeaveGroupRequest(request.group_id, request.member_id)
        with trio.move_on_after(_LEAVE_SECONDS), suppress(OSError, RemoteProtocolError):
            await self._cluster.coordinators.ask(request.group_id, leave, LeaveGroupResponse, _LEAVE_VERSIONS)

    async def _commit(self, ask: ApplicationCommit, done: trio.Event) -> None:
        try:
            await ask.application.commit(ask.connection, partial(self._offsets, ask.request))
        finally:
            done.set()

    async def _offsets(self, request: OffsetCommitRequest) -> TransactionOffsets:
        names = await self._topic_names([topic.topic_id for topic in request.topics if not topic.name])
        return offsets_committed_by(request, names)

    # -- topics

    def _known_names(self, parts: Sequence[ProducePart], version: int) -> Mapping[TopicRef, str] | None:
        """As ``_names``, if nobody has to be asked."""
        refs = [part.topic for part in parts]
        if version < FIRST_TOPIC_ID:
            return {ref: ref.decode() for ref in refs}
        return self._cluster.metadata.known_names(refs)

    async def _names(self, parts: Sequence[ProducePart], version: int) -> Mapping[TopicRef, str]:
        known = self._known_names(parts, version)
        return known if known is not None else await self._topic_names([part.topic for part in parts])

    async def _topic_names(self, ids: Collection[bytes]) -> Mapping[TopicRef, str]:
        """The names of those topics that there are, by id; no topic has the id 0."""
        asked = [topic_id for topic_id in ids if any(topic_id)]
        try:
            return await self._cluster.metadata.names(asked) if asked else {}
        except (OSError, RemoteProtocolError) as error:
            raise TxnError(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(error)) from error


def _client_batch(part: ProducePart, topic: str) -> ClientBatch:
    return ClientBatch(topic, part.partition, part.batch, part.records, part.base_sequence, stored_crc(part.batch))


def _refused(taken: Sized, error: TxnError) -> list[Written]:
    """What became of so many batches, none of which was written."""
    return [Written(error.error_code, -1, -1)] * len(taken)


def _named(part: ProducePart, names: Mapping[TopicRef, str]) -> ProducePart:
    """A part, or its refusal: the topic is unknown or kproxy's own, which only its name tells."""
    name = names.get(part.topic)
    if part.error_code or (name is not None and not is_own_topic(name)):
        return part
    error = ErrorCode.UNKNOWN_TOPIC_ID if name is None else ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return part._replace(error_code=error)
