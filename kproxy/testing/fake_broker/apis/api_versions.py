"""ApiVersions (18): versions 0-4.

Any other version is answered, not closed on: in the shape of version 0, with UNSUPPORTED_VERSION and only the entry
of ApiVersions itself (KIP-511); ``fallback`` builds that.
"""

from collections.abc import Mapping

from kproxy.codec._generated.api_versions import ApiVersionsResponse, ApiVersionsResponseApiVersion
from kproxy.codec.messages import ApiKey, ErrorCode
from kproxy.testing.fake_broker.api import Api, Call

VERSIONS = (0, 4)


async def handle(call: Call) -> ApiVersionsResponse:
    """Tell the version range of every API."""
    return ApiVersionsResponse(api_keys=_entries(call.served))


def fallback() -> ApiVersionsResponse:
    """Return the answer to a version that is not served; to be encoded as version 0."""
    return ApiVersionsResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=_entries({ApiKey.API_VERSIONS: VERSIONS})
    )


def _entries(ranges: Mapping[int, tuple[int, int]]) -> list[ApiVersionsResponseApiVersion]:
    return [
        ApiVersionsResponseApiVersion(api_key=key, min_version=low, max_version=high)
        for key, (low, high) in sorted(ranges.items())
    ]


API = Api(ApiKey.API_VERSIONS, VERSIONS, handle)
