"""The exchange around a mechanism."""

import pytest

from kproxy.codec._generated.metadata import MetadataResponse
from kproxy.codec._generated.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from kproxy.codec._generated.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from kproxy.codec.header import decode_request_header, encode_response
from kproxy.codec.messages import ErrorCode, Message
from kproxy.errors import RemoteProtocolError
from kproxy.proxy.broker_login.broker_mechanisms import LoginRefused, Plain
from kproxy.proxy.broker_login.login import Login, LoginFrames

OFFERED = ["PLAIN"]


def login(version: int = 2) -> Login:
    return Login(Plain("alice", "secret"), "'alice'", "upstream.sasl.username", version)


def test_a_login_that_is_taken() -> None:
    exchange = login(1)
    assert exchange.start() == (SaslHandshakeRequest(mechanism="PLAIN"), 1)
    asked = exchange.answer(SaslHandshakeResponse(mechanisms=OFFERED))
    assert asked == (SaslAuthenticateRequest(auth_bytes=b"\0alice\0secret"), 1)
    assert exchange.answer(SaslAuthenticateResponse(session_lifetime_ms=5000)) is None
    assert exchange.lifetime_ms == 5000


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (
            SaslHandshakeResponse(ErrorCode.UNSUPPORTED_SASL_MECHANISM, ["GSSAPI", "X\n"]),
            r"does not offer PLAIN, but GSSAPI, X: set upstream\.sasl\.mechanism",
        ),
        (SaslHandshakeResponse(ErrorCode.ILLEGAL_SASL_STATE), "takes no SASL: .* upstream.security.protocol"),
        (SaslHandshakeResponse(ErrorCode.UNKNOWN_SERVER_ERROR), "error -1"),
        (
            SaslAuthenticateResponse(ErrorCode.SASL_AUTHENTICATION_FAILED, "Authentication\nfailed."),
            r"refused 'alice' \(PLAIN\): Authentication failed; check upstream\.sasl\.username",
        ),
        (SaslAuthenticateResponse(ErrorCode.SASL_AUTHENTICATION_FAILED, None), "error 58"),
    ],
)
def test_what_a_refusal_says(answer: Message, text: str) -> None:
    with pytest.raises(LoginRefused, match=text) as caught:
        login().answer(answer)
    assert "secret" not in str(caught.value)


def test_another_answer_is_no_login() -> None:
    with pytest.raises(RemoteProtocolError):
        login().answer(MetadataResponse())


class Endless(Plain):
    def next(self, challenge: bytes) -> bytes:  # type: ignore[override]
        return b"more"


def test_it_does_not_continue_for_ever() -> None:
    exchange = Login(Endless("a", "b"), "'a'", "x", 2)
    with pytest.raises(RemoteProtocolError, match="does not come to an end"):
        for _ in range(100):
            exchange.answer(SaslAuthenticateResponse())


def test_frames_bear_the_correlation_id_and_their_versions() -> None:
    frames = LoginFrames(login(2), -77)
    header = decode_request_header(frames.frame()[4:])
    assert (header.api_key, header.api_version, header.correlation_id) == (17, 1, -77)
    assert frames.answer(encode_response(SaslHandshakeResponse(mechanisms=OFFERED), 1, -77))
    header = decode_request_header(frames.frame()[4:])
    assert (header.api_key, header.api_version, header.correlation_id) == (36, 2, -77)
    answer = SaslAuthenticateResponse(error_message=None, session_lifetime_ms=9)
    assert not frames.answer(encode_response(answer, 2, -77))
    assert frames.lifetime_ms == 9
