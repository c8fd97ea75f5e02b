"""ApiVersions (18), all versions: kproxy's own ranges, so that old clients see what the broker dropped (KIP-35).

A client that asks at a newer version gets the response of a broker: v0 in shape, UNSUPPORTED_VERSION, and the range of
ApiVersions alone. Features (KIP-584) are the broker's, so the same at all ports: transaction.version (KIP-890) says
whether clients join partitions to transactions by writing, which kproxy serves in both ways.

From v5 on a client says which cluster and which node it means to have reached (KIP-1242). Both are the broker's own:
kproxy changes neither the cluster id nor the node ids of Metadata, and each of its ports stands for one broker. So the
broker itself compares them, and a client that kproxy has connected to another one receives its REBOOTSTRAP_REQUIRED.
Brokers before Kafka 4.4 are asked at v4, where nothing is compared.
"""

import re
from typing import Any, Final

from kproxy.budget import RequestBudget
from kproxy.codec._generated.api_versions import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    ApiVersionsResponseApiVersion,
)
from kproxy.codec.messages import ApiKey, ErrorCode, Message
from kproxy.proxy.context import Context
from kproxy.proxy.handlers.base import Again, AsItIs, Exchange, Handler
from kproxy.proxy.versions import served_to_clients

#: The first version that names the client's software, and the first that names the cluster and the node.
_SOFTWARE: Final = 3
_PLACE: Final = 5
_NO_NODE: Final = -1
#: ``ApiVersionsRequest.SOFTWARE_NAME_VERSION_PATTERN`` (KIP-511).
_SOFTWARE_WORD: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


class ApiVersions(Handler):
    """Answers with what kproxy serves in front of this broker."""

    def rewrites(self, ctx: Context, version: int, upstream: int) -> bool:
        """Always: the ranges are kproxy's."""
        return True

    def lower(self, ctx: Context, exchange: Exchange, response: Any, budget: RequestBudget) -> Message | Again | AsItIs:
        return own_answer(ctx, response)


def own_answer(ctx: Context, said: ApiVersionsResponse) -> ApiVersionsResponse:
    """What a broker said of itself, with kproxy's ranges in it; an error as it is."""
    if said.error_code:
        return said
    ranges = {row.api_key: (row.min_version, row.max_version) for row in said.api_keys}
    served = served_to_clients(ranges, transactions=ctx.decides_transactions, logins=ctx.policy.logs_in_here)
    rows = [
        ApiVersionsResponseApiVersion(api_key=key, min_version=first, max_version=last)
        for key, (first, last) in sorted(served.items())
    ]
    return said.replaced(api_keys=rows)


def is_valid(request: ApiVersionsRequest, version: int) -> bool:
    """Whether a broker would not refuse a request by INVALID_REQUEST: by its words alone, whatever it serves."""
    if version >= _PLACE and (request.cluster_id is None) != (request.node_id == _NO_NODE):
        return False
    words = (request.client_software_name, request.client_software_version)
    return version < _SOFTWARE or all(_SOFTWARE_WORD.fullmatch(word) for word in words)


def unsupported_version(newest: int) -> ApiVersionsResponse:
    """The response, to be encoded as v0, to an ApiVersions request newer than ``newest`` (KIP-511)."""
    row = ApiVersionsResponseApiVersion(api_key=ApiKey.API_VERSIONS, min_version=0, max_version=newest)
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[row])
