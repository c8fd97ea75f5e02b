"""Produce (0) of clients that are idempotent or transactional themselves: relayed; errors of v10+ name addresses."""

from collections.abc import Iterable
from typing import Any

from kproxy.codec.messages import Message
from kproxy.proxy.context import Context
from kproxy.proxy.handlers.addresses import advertise
from kproxy.proxy.handlers.base import Again, AsItIs, Exchange, Handler

_FIRST_NODE_ENDPOINTS = 10


class PassedProduce(Handler):
    """Rewrites the addresses of the leaders that a response names beside an error."""

    def rewrites(self, ctx: Context, version: int, upstream: int) -> bool:
        """Where addresses may be named, or the versions differ."""
        return version >= _FIRST_NODE_ENDPOINTS or version != upstream

    def brokers_in(self, response: Any) -> Iterable[tuple[int, str, int]]:
        return [(row.node_id, row.host, row.port) for row in response.node_endpoints]

    def lower(self, ctx: Context, exchange: Exchange, response: Any) -> Message | Again | AsItIs:
        rows = response.node_endpoints
        response.node_endpoints = [row for row in rows if advertise(ctx, row, row.node_id)]
        answer: Message = response
        return answer
