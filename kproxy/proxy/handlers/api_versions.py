"""ApiVersions (18), v0-v4: kproxy's own ranges, so that old clients see the versions that the broker dropped (KIP-35).

A client that asks at a newer version gets the response of a broker: v0 in shape, UNSUPPORTED_VERSION, and the range of
ApiVersions alone. Features (KIP-584) are the broker's, so the same at all ports: transaction.version (KIP-890) says
whether clients join partitions to transactions by writing, which kproxy serves in both ways.
"""

from typing import Any

from kproxy.budget import RequestBudget
from kproxy.codec._generated.api_versions import ApiVersionsResponse, ApiVersionsResponseApiVersion
from kproxy.codec.messages import ApiKey, ErrorCode, Message
from kproxy.proxy.context import Context
from kproxy.proxy.handlers.base import Again, AsItIs, Exchange, Handler
from kproxy.proxy.versions import served_to_clients


class ApiVersions(Handler):
    """Answers with what kproxy serves in front of this broker."""

    def rewrites(self, ctx: Context, version: int, upstream: int) -> bool:
        """Always: the ranges are kproxy's."""
        return True

    def lower(self, ctx: Context, exchange: Exchange, response: Any, budget: RequestBudget) -> Message | Again | AsItIs:
        return own_answer(ctx, response)


def own_answer(ctx: Context, said: ApiVersionsResponse) -> ApiVersionsResponse:
    """What a broker said of itself, with kproxy's ranges in it."""
    ranges = {row.api_key: (row.min_version, row.max_version) for row in said.api_keys}
    served = served_to_clients(ranges, transactions=ctx.decides_transactions, logins=ctx.policy.logs_in_here)
    rows = [
        ApiVersionsResponseApiVersion(api_key=key, min_version=first, max_version=last)
        for key, (first, last) in sorted(served.items())
    ]
    return said.replaced(api_keys=rows)


def unsupported_version(newest: int) -> ApiVersionsResponse:
    """The response, to be encoded as v0, to an ApiVersions request newer than ``newest`` (KIP-511)."""
    row = ApiVersionsResponseApiVersion(api_key=ApiKey.API_VERSIONS, min_version=0, max_version=newest)
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[row])
