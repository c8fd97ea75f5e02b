"""SaslHandshake (17) and SaslAuthenticate (36) where kproxy itself logs in at brokers.

They must not be forwarded: the broker would treat them as a second login of kproxy. The client receives the answer of a
listener without SASL.
"""

from typing import Any, Final

from kproxy.codec._generated.sasl_authenticate import SaslAuthenticateResponse
from kproxy.codec._generated.sasl_handshake import SaslHandshakeResponse
from kproxy.codec.messages import ApiKey, ErrorCode, Message
from kproxy.proxy.context import Context
from kproxy.proxy.coordinator_requests import CoordinatorRequest
from kproxy.proxy.handlers.base import Exchange, Handler, Local, Lowered

#: What a client may ask before it is logged in.
BEFORE_LOGIN: Final = frozenset({ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE})
_REASON = "there is no SASL at this port: clients need no login here"


class SaslHandshake(Handler):
    """Passed on to the broker, or refused."""

    def rewrites(self, ctx: Context, version: int, upstream: int) -> bool:
        """If it is refused."""
        return not ctx.policy.passes_sasl or super().rewrites(ctx, version, upstream)

    def lift(self, ctx: Context, exchange: Exchange) -> Message | Local | CoordinatorRequest:
        """No mechanism is offered."""
        if ctx.policy.passes_sasl:
            return super().lift(ctx, exchange)
        return Local(SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE))


class SaslAuthenticate(Handler):
    """Passed on to the broker, or refused."""

    def rewrites(self, ctx: Context, version: int, upstream: int) -> bool:
        """If it is refused."""
        return not ctx.policy.passes_sasl or super().rewrites(ctx, version, upstream)

    def lift(self, ctx: Context, exchange: Exchange) -> Message | Local | CoordinatorRequest:
        """Refused whatever it says."""
        if ctx.policy.passes_sasl:
            return super().lift(ctx, exchange)
        return Local(SaslAuthenticateResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message=_REASON))


class _Proof(Handler):
    """Any response of the broker, to a question of kproxy's own, shows that the client's login was taken."""

    def lower(self, ctx: Context, exchange: Exchange, response: Any) -> Lowered:
        """Not for the client."""
        ctx.logged_in = True
        return super().lower(ctx, exchange, response)


PROOF: Final = _Proof()
