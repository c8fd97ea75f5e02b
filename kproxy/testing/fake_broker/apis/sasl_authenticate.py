"""SaslAuthenticate (36): versions 0-2. A client that is refused gets the reason, and its connection is closed."""

from kproxy.codec._generated.sasl_authenticate import SaslAuthenticateResponse
from kproxy.codec.messages import ApiKey, ErrorCode
from kproxy.testing.fake_broker.fake_api import Api, Call
from kproxy.testing.fake_broker.logins import Refused


async def handle(call: Call) -> SaslAuthenticateResponse:
    """Handle the next step of a login."""
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


API = Api(ApiKey.SASL_AUTHENTICATE, (0, 2), handle)
