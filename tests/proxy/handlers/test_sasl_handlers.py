"""SASL of clients where kproxy logs in by itself, and the proof of a login that went through."""

from typing import cast

from kproxy.budget import unbounded
from kproxy.codec._generated.metadata import MetadataResponse
from kproxy.codec._generated.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from kproxy.codec._generated.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from kproxy.codec.messages import ErrorCode
from kproxy.proxy.context import Context, Policy, Services
from kproxy.proxy.handlers.base import Exchange, Local
from kproxy.proxy.handlers.sasl_handlers import PROOF, SaslAuthenticate, SaslHandshake
from kproxy.proxy.routing import ClusterMap


def context(*, passes_sasl: bool) -> Context:
    return Context(Services(ClusterMap()), Policy(passes_sasl=passes_sasl))


def test_it_goes_through_as_it_is() -> None:
    ctx = context(passes_sasl=True)
    assert not SaslHandshake().rewrites(ctx, 1, 1)
    assert SaslHandshake().rewrites(ctx, 0, 1)
    request = SaslHandshakeRequest(mechanism="PLAIN")
    assert SaslHandshake().lift(ctx, Exchange(request, 0, 1), unbounded()) is request
    assert not SaslAuthenticate().rewrites(ctx, 2, 2)
    token = SaslAuthenticateRequest(auth_bytes=b"x")
    assert SaslAuthenticate().lift(ctx, Exchange(token, 0, 1), unbounded()) is token


def test_it_is_refused_where_kproxy_logs_in() -> None:
    ctx = context(passes_sasl=False)
    assert SaslHandshake().rewrites(ctx, 1, 1)
    assert SaslAuthenticate().rewrites(ctx, 2, 2)
    said = SaslHandshake().lift(ctx, Exchange(SaslHandshakeRequest(mechanism="PLAIN"), 1, 1), unbounded())
    assert said == Local(SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE))
    said = SaslAuthenticate().lift(ctx, Exchange(SaslAuthenticateRequest(), 2, 2), unbounded())
    answer = cast("SaslAuthenticateResponse", cast("Local", said).answer)
    assert answer.error_code == ErrorCode.ILLEGAL_SASL_STATE


def test_any_answer_proves_a_login() -> None:
    ctx = context(passes_sasl=True)
    ctx.logged_in = False
    PROOF.lower(ctx, Exchange(None, 1, 1), MetadataResponse(), unbounded())
    assert ctx.logged_in
