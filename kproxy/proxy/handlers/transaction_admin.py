"""Requests of admin tools about transactions (KIP-664): kproxy's own are listed with the broker's.

ListTransactions (66), DescribeTransactions (65), DescribeProducers (61). WriteTxnMarkers (27): an abort of one of
kproxy's open transactions, as ``kafka-transactions.sh abort`` writes it, is a claim; all other markers are refused.

Everywhere a transaction goes by the producer id and epoch that its client knows.
"""

from fnmatch import fnmatchcase
from typing import Any

from kproxy.budget import RequestBudget
from kproxy.codec._generated.describe_producers import DescribeProducersResponse, DescribeProducersResponseProducerState
from kproxy.codec._generated.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    DescribeTransactionsResponseTopicData,
    DescribeTransactionsResponseTransactionState,
)
from kproxy.codec._generated.list_transactions import ListTransactionsRequest, ListTransactionsResponseTransactionState
from kproxy.codec._generated.write_txn_markers import (
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
    WriteTxnMarkersResponseWritableTxnMarkerPartitionResult,
    WriteTxnMarkersResponseWritableTxnMarkerResult,
    WriteTxnMarkersResponseWritableTxnMarkerTopicResult,
)
from kproxy.codec.messages import ErrorCode, Message
from kproxy.proxy.context import Context
from kproxy.proxy.coordinator_requests import AbortRequest, CoordinatorRequest
from kproxy.proxy.handlers.base import AsItIs, Exchange, Handler, Local, Lowered
from kproxy.txn.described import Described
from kproxy.txn.describing import describe
from kproxy.txn.ids import Producer, is_transactional_producer_id
from kproxy.txn.verdict import Verdict
from kproxy.txn.view import IdView
from kproxy.txn.views import Views


class _Beside(Handler):
    """The broker is asked, and what kproxy knows is added."""

    def rewrites(self, ctx: Context, version: int, upstream: int) -> bool:
        """Where kproxy reads a transaction log."""
        return ctx.services.views is not None or upstream != version


class ListTransactions(_Beside):
    """Each of kproxy's is listed by one broker alone: admin clients ask all of them and add up."""

    def lower(self, ctx: Context, exchange: Exchange, response: Any, budget: RequestBudget) -> Lowered:
        if ctx.services.views is not None and not response.error_code:
            states, producer_ids = set(exchange.request.state_filters), set(exchange.request.producer_id_filters)
            response.transaction_states += [
                ListTransactionsResponseTransactionState(one.transactional_id, one.producer_id, one.state)
                for one in map(describe, ctx.services.views.all())
                if (not states or one.state in states)
                and (not producer_ids or one.producer_id in producer_ids)
                and _is_wanted(exchange.request, one, ctx.now)
                and ctx.cluster.coordinator(one.transactional_id) == ctx.node_id
            ]
        answer: Message = response
        return answer


def _is_wanted(request: ListTransactionsRequest, one: Described, now: float) -> bool:
    pattern = request.transactional_id_pattern
    age_ms = -1 if one.started_ms is None else now * 1000 - one.started_ms
    if request.duration_filter >= 0 and age_ms <= request.duration_filter:
        return False
    return not pattern or _matches(pattern, one.transactional_id)


def _matches(pattern: str, transactional_id: str) -> bool:
    """Whether an id is one of those that a pattern of KIP-1152 names.

    That is a regular expression; plain text and ``.*`` are understood, since one from a client may take for ever.
    """
    return fnmatchcase(transactional_id, pattern.replace(".*", "*").replace("[", "[[]"))


class DescribeTransactions(_Beside):
    """The ids that kproxy's log knows are not asked of the broker."""

    def lift(self, ctx: Context, exchange: Exchange, budget: RequestBudget) -> Message | Local | CoordinatorRequest:
        request = exchange.request
        assert ctx.services.views is not None
        own = [view for name in request.transactional_ids if (view := ctx.services.views.of(name)) is not None]
        if not own:
            message: Message = request
            return message
        rows = [_row(describe(view)) for view in own]
        names = {view.transactional_id for view in own}
        left = [name for name in request.transactional_ids if name not in names]
        if not left:
            return Local(DescribeTransactionsResponse(transaction_states=rows))
        exchange.notes["own"] = rows
        return DescribeTransactionsRequest(transactional_ids=left)

    def lower(self, ctx: Context, exchange: Exchange, response: Any, budget: RequestBudget) -> Lowered:
        own = exchange.notes.get("own")
        if own is None and exchange.upstream_version == exchange.client_version:
            return AsItIs()
        response.transaction_states += own or []
        answer: Message = response
        return answer


def _row(one: Described) -> DescribeTransactionsResponseTransactionState:
    topics: dict[str, list[int]] = {}
    for topic, partition in one.partitions:
        topics.setdefault(topic, []).append(partition)
    return DescribeTransactionsResponseTransactionState(
        transactional_id=one.transactional_id,
        transaction_state=one.state,
        transaction_timeout_ms=one.timeout_ms,
        transaction_start_time_ms=-1 if one.started_ms is None else one.started_ms,
        producer_id=one.producer_id,
        producer_epoch=one.producer_epoch,
        topics=[DescribeTransactionsResponseTopicData(topic, partitions) for topic, partitions in topics.items()],
    )


class DescribeProducers(_Beside):
    """Producers of kproxy's transactions by their clients' names, with the offset at which what is open begins."""

    def lower(self, ctx: Context, exchange: Exchange, response: Any, budget: RequestBudget) -> Lowered:
        found: DescribeProducersResponse = response
        if ctx.services.views is None:
            return found
        for topic in found.topics:
            for part in topic.partitions:
                for row in part.active_producers:
                    _rename(ctx.services.views, row, topic.name, part.partition_index)
        return found


def _rename(views: Views, row: DescribeProducersResponseProducerState, topic: str, partition: int) -> None:
    view = views.of_producer(row.producer_id) if is_transactional_producer_id(row.producer_id) else None
    if view is None:
        return
    producer = Producer(row.producer_id, row.producer_epoch)
    row.producer_id, row.producer_epoch = view.client
    if view.verdict(producer) is Verdict.UNDECIDED:
        row.current_txn_start_offset = view.bounds.get(producer, {}).get((topic, partition), -1)
        row.coordinator_epoch = 0


class WriteTxnMarkers(Handler):
    """Markers would decide, or fence, what clients have no say in; operators can send them to the brokers."""

    def rewrites(self, ctx: Context, version: int, upstream: int) -> bool:
        """Always: it is not for the broker."""
        return True

    def lift(self, ctx: Context, exchange: Exchange, budget: RequestBudget) -> Message | Local | CoordinatorRequest:
        """An abort of what is open here goes to the coordinator; anything else is refused, marker by marker."""
        request: WriteTxnMarkersRequest = exchange.request
        view = _to_abort(ctx, request)
        if view is not None:
            return AbortRequest(view.transactional_id, view.client, request)
        return Local(marked(request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED))


def _to_abort(ctx: Context, request: WriteTxnMarkersRequest) -> IdView | None:
    """Whose open transaction a request aborts, if that is all it does and its client has the right."""
    if len(request.markers) != 1 or ctx.services.views is None or not ctx.permits.is_admin:
        return None
    (marker,) = request.markers
    client = Producer(marker.producer_id, marker.producer_epoch)
    found = (view for view in ctx.services.views.all() if view.client == client and view.ongoing is not None)
    return None if marker.transaction_result else next(found, None)


def marked(request: WriteTxnMarkersRequest, error: ErrorCode) -> WriteTxnMarkersResponse:
    """The response to markers that all fared alike."""
    markers = []
    for marker in request.markers:
        topics = [
            WriteTxnMarkersResponseWritableTxnMarkerTopicResult(
                topic.name,
                [
                    WriteTxnMarkersResponseWritableTxnMarkerPartitionResult(index, int(error))
                    for index in topic.partition_indexes
                ],
            )
            for topic in marker.topics
        ]
        markers.append(WriteTxnMarkersResponseWritableTxnMarkerResult(marker.producer_id, topics))
    return WriteTxnMarkersResponse(markers=markers)
