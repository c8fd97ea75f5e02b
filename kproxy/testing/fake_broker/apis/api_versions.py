"""ApiVersions (18): versions 0-4.

Any other version is answered, not closed on: in the shape of version 0, with UNSUPPORTED_VERSION and only the entry of
ApiVersions itself (KIP-511); ``fallback`` builds that. Of the cluster's features only ``transaction.version`` is
listed. That it may be 0 is said only in version 4, and a level of 0 is left out.
"""

from collections.abc import Mapping

from kproxy.codec._generated.api_versions import (
    ApiVersionsResponse,
    ApiVersionsResponseApiVersion,
    ApiVersionsResponseFinalizedFeatureKey,
    ApiVersionsResponseSupportedFeatureKey,
)
from kproxy.codec.messages import ApiKey, ErrorCode
from kproxy.testing.fake_broker.fake_api import Api, Call

VERSIONS = (0, 4)
_TRANSACTIONS = "transaction.version"
_FROM_ZERO_VERSION = 4


async def handle(call: Call) -> ApiVersionsResponse:
    """Tell the version range of every API."""
    level = call.cluster.config.transaction_version
    response = ApiVersionsResponse(api_keys=_entries(call.served), finalized_features_epoch=0)
    if call.version >= _FROM_ZERO_VERSION:
        response.supported_features = [ApiVersionsResponseSupportedFeatureKey(_TRANSACTIONS, 0, 2)]
    if level:
        response.finalized_features = [ApiVersionsResponseFinalizedFeatureKey(_TRANSACTIONS, level, level)]
    return response


def fallback() -> ApiVersionsResponse:
    """Return the response to a version that is not served; to be encoded as version 0."""
    return ApiVersionsResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=_entries({ApiKey.API_VERSIONS: VERSIONS})
    )


def _entries(ranges: Mapping[int, tuple[int, int]]) -> list[ApiVersionsResponseApiVersion]:
    return [
        ApiVersionsResponseApiVersion(api_key=key, min_version=low, max_version=high)
        for key, (low, high) in sorted(ranges.items())
    ]


API = Api(ApiKey.API_VERSIONS, VERSIONS, handle)
