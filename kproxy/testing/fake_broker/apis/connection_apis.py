"""How a connection begins: versions (KIP-35, KIP-511, KIP-1242), and logins (KIP-43, KIP-152)."""

from collections.abc import Mapping

from kproxy.codec._generated.api_versions import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    ApiVersionsResponseApiVersion,
    ApiVersionsResponseFinalizedFeatureKey,
    ApiVersionsResponseSupportedFeatureKey,
)
from kproxy.codec._generated.sasl_authenticate import SaslAuthenticateResponse
from kproxy.codec._generated.sasl_handshake import SaslHandshakeResponse
from kproxy.codec.messages import ApiKey, ErrorCode
from kproxy.testing.fake_broker.fake_api import Call, api
from kproxy.testing.fake_broker.logins import Refused

VERSIONS = (0, 5)
_TRANSACTIONS = "transaction.version"
_FROM_ZERO_VERSION = 4
_PLACE_VERSION = 5
_NO_NODE = -1


@api(ApiKey.API_VERSIONS, VERSIONS)
async def api_versions(call: Call) -> ApiVersionsResponse:
    """Tell the version range of every API.

    Any other version is answered, not closed on: in the shape of version 0, with UNSUPPORTED_VERSION and only the entry
    of ApiVersions itself (KIP-511); ``fallback`` builds that. Of the cluster's features only ``transaction.version`` is
    listed. That it may be 0 is said from version 4 on, and a level of 0 is left out. From version 5 on a client that
    names its cluster and node, and has reached another, is answered REBOOTSTRAP_REQUIRED; the words for its software
    are not checked.
    """
    if call.version >= _PLACE_VERSION and (error := _place_error(call)) is not ErrorCode.NONE:
        return ApiVersionsResponse(error_code=error)
    level = call.cluster.config.transaction_version
    response = ApiVersionsResponse(api_keys=_entries(call.served), finalized_features_epoch=0)
    if call.version >= _FROM_ZERO_VERSION:
        response.supported_features = [ApiVersionsResponseSupportedFeatureKey(_TRANSACTIONS, 0, 2)]
    if level:
        response.finalized_features = [ApiVersionsResponseFinalizedFeatureKey(_TRANSACTIONS, level, level)]
    return response


def _place_error(call: Call) -> ErrorCode:
    """Return the error for a client that names its cluster and node: one without the other, or not those it reached."""
    request: ApiVersionsRequest = call.request
    if (request.cluster_id is None) != (request.node_id == _NO_NODE):
        return ErrorCode.INVALID_REQUEST
    meant = (request.cluster_id, request.node_id)
    there = (call.cluster.config.cluster_id, call.broker_id)
    return ErrorCode.NONE if meant in ((None, _NO_NODE), there) else ErrorCode.REBOOTSTRAP_REQUIRED


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


@api(ApiKey.SASL_HANDSHAKE, (0, 1))
async def sasl_handshake(call: Call) -> SaslHandshakeResponse:
    """Version 0, which is followed by bare tokens, is not modelled."""
    logins = call.cluster.logins
    error = logins.begin(call.connection, call.request.mechanism)
    offered = [] if logins.rules is None or error is ErrorCode.ILLEGAL_SASL_STATE else list(logins.rules.mechanisms)
    return SaslHandshakeResponse(error_code=error, mechanisms=offered)


@api(ApiKey.SASL_AUTHENTICATE, (0, 2))
async def sasl_authenticate(call: Call) -> SaslAuthenticateResponse:
    """A client that is refused gets the reason, and its connection is closed."""
    logins = call.cluster.logins
    login = logins.by_connection.get(call.connection)
    if logins.rules is None or login is None or login.mechanism is None:
        return SaslAuthenticateResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message="no login has begun")
    try:
        answer = logins.take(call.connection, call.request.auth_bytes, call.now)
    except Refused:
        return SaslAuthenticateResponse(
            error_code=ErrorCode.SASL_AUTHENTICATION_FAILED,
            error_message=f"Authentication failed: invalid credentials with SASL mechanism {login.mechanism}",
        )
    lifetime_ms = logins.rules.max_reauth_ms if login.mechanism is None else 0
    return SaslAuthenticateResponse(error_message=None, auth_bytes=answer, session_lifetime_ms=lifetime_ms)
