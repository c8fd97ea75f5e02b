"""SaslHandshake (17): version 1; v0, which is followed by bare tokens, is not modelled."""

from kproxy.codec._generated.sasl_handshake import SaslHandshakeResponse
from kproxy.codec.messages import ApiKey, ErrorCode
from kproxy.testing.fake_broker.fake_api import Api, Call


async def handle(call: Call) -> SaslHandshakeResponse:
    """Begin a login."""
    logins = call.cluster.logins
    error = logins.begin(call.connection, call.request.mechanism)
    offered = [] if logins.rules is None or error is ErrorCode.ILLEGAL_SASL_STATE else list(logins.rules.mechanisms)
    return SaslHandshakeResponse(error_code=error, mechanisms=offered)


API = Api(ApiKey.SASL_HANDSHAKE, (0, 1), handle)
