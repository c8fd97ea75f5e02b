"""SaslHandshake (17) and SaslAuthenticate (36) where kproxy itself logs in at brokers.

They must not be forwarded: the broker would treat them as a second login of kproxy. The client receives the answer of a
listener without SASL.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from kproxy.budget import RequestBudget
from kproxy.codec._generated.sasl_authenticate import SaslAuthenticateResponse
from kproxy.codec._generated.sasl_handshake import SaslHandshakeResponse
from kproxy.codec.messages import ApiKey, ErrorCode, Message
from kproxy.proxy.context import Context
from kproxy.proxy.coordinator_requests import CoordinatorRequest
from kproxy.proxy.handlers.base import Exchange, Handler, Local, Lowered

#: What a client may ask before it is logged in.
BEFORE_LOGIN: Final = frozenset({ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE})
_REASON = "there is no SASL at this port: clients need no login here"


class _Sasl(Handler):
    """Passed on to the broker, or refused whatever it says."""

    refusal: Callable[[], Message]

    def rewrites(self, ctx: Context, version: int, upstream: int) -> bool:
        return not ctx.policy.passes_sasl or super().rewrites(ctx, version, upstream)

    def lift(self, ctx: Context, exchange: Exchange, budget: RequestBudget) -> Message | Local | CoordinatorRequest:
        return super().lift(ctx, exchange, budget) if ctx.policy.passes_sasl else Local(self.refusal())


class SaslHandshake(_Sasl):
    """SaslHandshake (17): no mechanism is offered."""

    refusal = partial(SaslHandshakeResponse, error_code=ErrorCode.ILLEGAL_SASL_STATE)


class SaslAuthenticate(_Sasl):
    """SaslAuthenticate (36): refused with the reason."""

    refusal = partial(SaslAuthenticateResponse, error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message=_REASON)


class _Proof(Handler):
    """Any response of the broker, to a question of kproxy's own, shows that the client's login was taken."""

    def lower(self, ctx: Context, exchange: Exchange, response: Any, budget: RequestBudget) -> Lowered:
        ctx.logged_in = True
        return super().lower(ctx, exchange, response, budget)


PROOF: Final = _Proof()
