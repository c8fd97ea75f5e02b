"""FindCoordinator (10), DescribeCluster (60): all versions; clients receive kproxy's addresses of brokers.

And Produce (0) of clients that are idempotent or transactional themselves, and ShareAcknowledge (79): relayed; their
errors name addresses.

A broker for which kproxy has no port is left out, so that no client ever connects to a broker directly.
"""

from collections.abc import Iterable
from typing import Any, Final, TypeVar

from kproxy.budget import RequestBudget
from kproxy.codec._generated.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    FindCoordinatorResponseCoordinator,
)
from kproxy.codec.messages import ErrorCode, Message
from kproxy.proxy.context import Context
from kproxy.proxy.handlers.base import Again, AsItIs, Exchange, Handler, Local

#: DescribeCluster's endpoint type of brokers; controllers (2) are not served to clients (KIP-919).
_BROKERS = 1
#: The first Produce version whose errors name addresses.
_FIRST_NODE_ENDPOINTS = 10
#: FindCoordinator's key type of transactional ids; and the first version that asks for many keys at a time.
_TRANSACTION: Final = 1
_FIRST_BATCHED: Final = 4

_Row = TypeVar("_Row", FindCoordinatorResponse, FindCoordinatorResponseCoordinator)


class AddressHandler(Handler):
    """Of responses that name brokers."""

    def rewrites(self, ctx: Context, version: int, upstream: int) -> bool:
        """Always: addresses are kproxy's."""
        return True


class DescribeCluster(AddressHandler):
    """Rewrites the list of brokers; the controllers' own addresses are left out."""

    def brokers_in(self, response: Any) -> Iterable[tuple[int, str, int]]:
        if response.endpoint_type != _BROKERS:
            return ()
        return [(row.broker_id, row.host, row.port) for row in response.brokers]

    def lower(self, ctx: Context, exchange: Exchange, response: Any, budget: RequestBudget) -> Message | Again | AsItIs:
        rows = response.brokers if response.endpoint_type == _BROKERS else ()
        response.brokers = [row for row in rows if advertise(ctx, row, row.broker_id)]
        answer: Message = response
        return answer


class FindCoordinator(AddressHandler):
    """Rewrites the coordinator, or the coordinators of v4 and later (KIP-699).

    Any port serves the transactional ids that kproxy coordinates; the response names one of them.
    """

    def lift(self, ctx: Context, exchange: Exchange, budget: RequestBudget) -> Message | Local:
        request: FindCoordinatorRequest = exchange.request
        if request.key_type != _TRANSACTION or not (ctx.decides_transactions or ctx.permits.rules):
            return request
        if exchange.client_version < _FIRST_BATCHED:
            return (
                Local(_here(ctx, request.key, FindCoordinatorResponse()))
                if _is_served_here(ctx, request.key)
                else request
            )
        rest = [key for key in request.coordinator_keys if not _is_served_here(ctx, key)]
        exchange.notes["keys"] = request.coordinator_keys
        if rest:
            return request.replaced(coordinator_keys=rest)
        return Local(FindCoordinatorResponse(coordinators=_in_order(ctx, request.coordinator_keys, [])))

    def brokers_in(self, response: Any) -> Iterable[tuple[int, str, int]]:
        rows = [response, *response.coordinators]
        return [(row.node_id, row.host, row.port) for row in rows if row.node_id >= 0 and row.host]

    def lower(self, ctx: Context, exchange: Exchange, response: Any, budget: RequestBudget) -> Message | Again | AsItIs:
        for row in [response, *response.coordinators]:
            if row.node_id >= 0 and row.host and not advertise(ctx, row, row.node_id):
                _refuse(row, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if "keys" in exchange.notes:
            response.coordinators = _in_order(ctx, exchange.notes["keys"], response.coordinators)
        answer: Message = response
        return answer


class NodeEndpoints(AddressHandler):
    """Rewrites the addresses of the leaders that a response names beside an error (KIP-951)."""

    def brokers_in(self, response: Any) -> Iterable[tuple[int, str, int]]:
        return [(row.node_id, row.host, row.port) for row in response.node_endpoints]

    def lower(self, ctx: Context, exchange: Exchange, response: Any, budget: RequestBudget) -> Message:
        rows = response.node_endpoints
        response.node_endpoints = [row for row in rows if advertise(ctx, row, row.node_id)]
        answer: Message = response
        return answer


class PassedProduce(NodeEndpoints):
    """Of Produce requests that kproxy does not stamp."""

    def rewrites(self, ctx: Context, version: int, upstream: int) -> bool:
        """Where addresses may be named, or the versions differ."""
        return version >= _FIRST_NODE_ENDPOINTS or version != upstream


def _in_order(
    ctx: Context, keys: Iterable[str], found: Iterable[FindCoordinatorResponseCoordinator]
) -> list[FindCoordinatorResponseCoordinator]:
    """The coordinators in the order of the question: those that the broker found, and kproxy for the others."""
    by_key = {row.key: row for row in found}
    return [by_key.get(key) or _here(ctx, key, FindCoordinatorResponseCoordinator(key=key)) for key in keys]


def _is_served_here(ctx: Context, transactional_id: str) -> bool:
    return ctx.is_home_of(transactional_id) or not ctx.may_use(transactional_id)


def _here(ctx: Context, transactional_id: str, row: _Row) -> _Row:
    """Fills in the port of kproxy that Metadata names for that broker; or an error: the id is not this client's."""
    if not ctx.may_use(transactional_id):
        _refuse(row, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        return row
    row.node_id = ctx.cluster.coordinator(transactional_id)
    if not advertise(ctx, row, row.node_id):
        _refuse(row, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return row


def advertise(ctx: Context, row: Any, node_id: int) -> bool:
    """Puts kproxy's address of a broker into its row; False if there is none."""
    address = ctx.advertised(node_id)
    if address is not None:
        row.host, row.port = address
    return address is not None


def _refuse(row: FindCoordinatorResponse | FindCoordinatorResponseCoordinator, error: ErrorCode) -> None:
    row.error_code, row.node_id, row.host, row.port = error, -1, "", -1
