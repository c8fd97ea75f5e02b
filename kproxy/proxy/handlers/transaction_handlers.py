"""The requests of transactions (KIP-98, KIP-890): asked of kproxy's coordinator where that is the id's home.

InitProducerId (22), AddPartitionsToTxn (24), AddOffsetsToTxn (25), EndTxn (26), TxnOffsetCommit (28): of other ids, and
of none, relayed. WriteTxnMarkers (27) and AddPartitionsToTxn from v4 on are between brokers: refused to clients.
"""

from typing import TYPE_CHECKING, Any

from kproxy.budget import RequestBudget
from kproxy.codec._generated.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from kproxy.codec._generated.init_producer_id import InitProducerIdResponse
from kproxy.codec.messages import ApiKey, ErrorCode, Message
from kproxy.codec.topic_names import is_legal_topic
from kproxy.dedup.producer_ids import is_reserved_producer_id
from kproxy.errors import RemoteProtocolError
from kproxy.proxy.context import Context
from kproxy.proxy.coordinator_requests import CoordinatorRequest, TransactionRequest
from kproxy.proxy.handlers.base import AsItIs, Exchange, Handler, Local, Lowered
from kproxy.proxy.kept_gate import owner_of
from kproxy.proxy.routing import OWN_PREFIX
from kproxy.proxy.transaction_messages import failed, offsets_committed, partitions_added, places_of, txn_request_of
from kproxy.proxy.versions import upstream_version
from kproxy.txn.ids import Producer

if TYPE_CHECKING:
    from kproxy.codec._generated.end_txn import EndTxnRequest
    from kproxy.codec._generated.txn_offset_commit import TxnOffsetCommitRequest

_FIRST_OF_BROKERS = 4
#: The first TxnOffsetCommit that names topics by their ids (KIP-1319). The coordinator asks for their names.
_FIRST_OFFSETS_BY_ID = 6
_OWN = OWN_PREFIX.encode()
_ASKED_HERE = "asked_here"
_NAMED_HERE = "named_here"
_REFUSED = "refused"
_NOT_YET = int(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
#: What Kafka answers for a topic that is not there; no topic is there whose name is illegal.
_NO_TOPIC = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
#: Errors for offsets of a member that its group does not know; the last one below version 3.
_NO_MEMBER = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.INVALID_TXN_STATE,
    }
)


class Transactional(Handler):
    """A request that names a transactional id."""

    def rewrites(self, ctx: Context, version: int, upstream: int) -> bool:
        """Where kproxy decides transactions, or use of ids is restricted, it has to check whose id this is."""
        return ctx.decides_transactions or bool(ctx.permits.rules) or upstream != version

    def rewrites_this(self, ctx: Context, version: int, request: memoryview) -> bool:
        """A request that may name a transactional id of kproxy's own writers: these fence each other."""
        return _OWN in bytes(request)

    def lift(self, ctx: Context, exchange: Exchange, budget: RequestBudget) -> Message | Local | CoordinatorRequest:
        request = exchange.request
        transactional_id = self.transactional_id(request)
        if transactional_id is not None and not ctx.may_use(transactional_id):
            return Local(failed(request, exchange.client_version, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
        if transactional_id is not None and ctx.is_home_of(transactional_id):
            exchange.notes[_ASKED_HERE] = True
            return self.ask(ctx, exchange)
        served = ctx.broker_versions.get(request.API_KEY)
        if served is None:
            raise RemoteProtocolError(f"API key {request.API_KEY} is not served by the broker, and not for this id")
        exchange.upstream_version = upstream_version(request.API_KEY, exchange.client_version, served)
        message: Message = request
        return message

    def transactional_id(self, request: Any) -> str | None:
        name: str | None = request.transactional_id
        return name

    def ask(self, ctx: Context, exchange: Exchange) -> Local | CoordinatorRequest:
        """What to ask kproxy's coordinator, or what to answer at once."""
        who = txn_request_of(exchange.request, ctx.client.connection, ctx.client.client_id, ctx.holder)
        return TransactionRequest(who, exchange.request, ctx.client.principal)

    def lower(self, ctx: Context, exchange: Exchange, response: Any, budget: RequestBudget) -> Lowered:
        if exchange.upstream_version == exchange.client_version and _ASKED_HERE not in exchange.notes:
            return AsItIs()
        answer: Message = response
        return answer


class InitProducerId(Transactional):
    """InitProducerId: of idempotent producers, which have no transactional id, for any broker."""

    def rewrites(self, ctx: Context, version: int, upstream: int) -> bool:
        """Always: each assigned producer id is checked."""
        return True

    def ask(self, ctx: Context, exchange: Exchange) -> Local | CoordinatorRequest:
        """What Kafka refuses whatever its state is refused at once (``KafkaApis``, ``TransactionCoordinator``)."""
        request = exchange.request
        error = ErrorCode.NONE
        if not request.transactional_id or (request.producer_id == -1) != (request.producer_epoch == -1):
            error = ErrorCode.INVALID_REQUEST
        elif request.enable2_pc:
            error = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        elif request.keep_prepared_txn:
            error = ErrorCode.UNSUPPORTED_VERSION
        return Local(failed(request, exchange.client_version, error)) if error else super().ask(ctx, exchange)

    def lower(self, ctx: Context, exchange: Exchange, response: Any, budget: RequestBudget) -> Lowered:
        """The response, or an error if kproxy would take the producer's batches for its own.

        A producer without a transactional id asks again, and gets another one. That of a transactional id stays.
        """
        if _ASKED_HERE in exchange.notes:
            return super().lower(ctx, exchange, response, budget)
        kept = exchange.request.transactional_id is not None
        if is_reserved_producer_id(response.producer_id):
            error = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED if kept else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            return InitProducerIdResponse(error_code=error, producer_id=-1, producer_epoch=-1)
        if kept:
            return super().lower(ctx, exchange, response, budget)
        _give(ctx, response)
        answer: Message = response
        return answer


class TxnOffsetCommit(Transactional):
    """TxnOffsetCommit: of clients that don't say which member of the group has read, as it was before KIP-447."""

    def ask(self, ctx: Context, exchange: Exchange) -> Local | CoordinatorRequest:
        """With the member, where that is known, and without the topics that there cannot be."""
        request: TxnOffsetCommitRequest = exchange.request
        illegal = []
        if exchange.client_version < _FIRST_OFFSETS_BY_ID:
            illegal = [topic for topic in request.topics if not is_legal_topic(topic.name)]
        if illegal:
            legal = [topic for topic in request.topics if is_legal_topic(topic.name)]
            refused = offsets_committed(request.replaced(topics=illegal), exchange.client_version, _NO_TOPIC)
            if not legal:
                return Local(refused)
            exchange.notes[_REFUSED] = refused.topics
            exchange.request = request = request.replaced(topics=legal)
        if ctx.services.memberships is not None and request.generation_id_or_member_epoch < 0 and not request.member_id:
            producer = Producer(request.producer_id, request.producer_epoch)
            member = ctx.services.memberships.reader(ctx.client.identity, producer, request.group_id)
            if member is not None:
                exchange.notes[_NAMED_HERE] = True
                request.generation_id_or_member_epoch, request.member_id, request.group_instance_id = member
        return super().ask(ctx, exchange)

    def lower(self, ctx: Context, exchange: Exchange, response: Any, budget: RequestBudget) -> Lowered:
        """As others; it may be told that the group does not know the member. What was refused comes last."""
        response.topics += exchange.notes.get(_REFUSED, ())
        if _NAMED_HERE in exchange.notes and ctx.services.memberships is not None:
            codes = {row.error_code for topic in response.topics for row in topic.partitions}
            if codes & _NO_MEMBER:
                ctx.services.memberships.refused(ctx.client.identity, exchange.request.group_id)
        return super().lower(ctx, exchange, response, budget)


class AddPartitionsToTxn(Transactional):
    """AddPartitionsToTxn: v4 and later may add and verify for many ids, and are for brokers alone."""

    def rewrites(self, ctx: Context, version: int, upstream: int) -> bool:
        return version >= _FIRST_OF_BROKERS or super().rewrites(ctx, version, upstream)

    def lift(self, ctx: Context, exchange: Exchange, budget: RequestBudget) -> Message | Local | CoordinatorRequest:
        if exchange.client_version >= _FIRST_OF_BROKERS:
            return Local(AddPartitionsToTxnResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
        return super().lift(ctx, exchange, budget)

    def ask(self, ctx: Context, exchange: Exchange) -> Local | CoordinatorRequest:
        """The first of a transaction is its beginning: clients that don't add partitions say who has read."""
        if ctx.services.memberships is not None:
            request: AddPartitionsToTxnRequest = exchange.request
            producer = Producer(request.v3_and_below_producer_id, request.v3_and_below_producer_epoch)
            ctx.services.memberships.begins(ctx.client.identity, producer)
        errors = {place: _NO_TOPIC for place in places_of(exchange.request) if not is_legal_topic(place[0])}
        if errors:
            return Local(partitions_added(exchange.request, exchange.client_version, errors))
        return super().ask(ctx, exchange)

    def transactional_id(self, request: Any) -> str | None:
        name: str = request.v3_and_below_transactional_id
        return name


class EndTxn(Transactional):
    """EndTxn: which members have read for the next transaction is another question."""

    def ask(self, ctx: Context, exchange: Exchange) -> Local | CoordinatorRequest:
        if ctx.services.memberships is not None:
            request: EndTxnRequest = exchange.request
            ctx.services.memberships.ends(ctx.client.identity, Producer(request.producer_id, request.producer_epoch))
        return super().ask(ctx, exchange)


def _give(ctx: Context, response: InitProducerIdResponse) -> None:
    """Marks the id of an idempotent producer as its own, if its numbers are kept."""
    kept = ctx.services.kept
    if kept is None or response.error_code:
        return
    kept.sees(response.producer_id)
    if not kept.matches(ctx.client.client_id):
        return
    if kept.awaits_secret:  # it asks again
        response.error_code, response.producer_id, response.producer_epoch = _NOT_YET, -1, -1
    elif ApiKey.DESCRIBE_PRODUCERS in ctx.broker_versions:
        response.producer_id = kept.give(response.producer_id, owner_of(ctx, kept))
