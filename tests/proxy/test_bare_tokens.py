import pytest

from kproxy.codec._generated.sasl_authenticate import SaslAuthenticateResponse
from kproxy.codec._generated.sasl_handshake import SaslHandshakeRequest
from kproxy.codec.header import encode_request
from kproxy.codec.messages import ErrorCode
from kproxy.errors import RemoteProtocolError
from kproxy.proxy.bare_tokens import BareTokens


def handshake(mechanism: str) -> bytearray:
    return bytearray(encode_request(SaslHandshakeRequest(mechanism=mechanism), 0, 1, "client"))


def token(data: bytes) -> bytearray:
    return bytearray(len(data).to_bytes(4, "big") + data)


REQUEST = token(b"\x00\x03\x00\x00\x00\x00\x00\x01\xff\xff")


@pytest.mark.parametrize(
    ("mechanism", "rounds"), [("PLAIN", 1), ("OAUTHBEARER", 1), ("SCRAM-SHA-256", 2), ("SCRAM-SHA-512", 2)]
)
def test_as_many_tokens_as_the_mechanism_has(mechanism: str, rounds: int) -> None:
    tokens = BareTokens.after_handshake(handshake(mechanism))
    for number in range(rounds):
        frame = token(b"round %d" % number)
        assert tokens.expects(frame)
        assert tokens.wrap(frame).auth_bytes == b"round %d" % number
    assert not tokens.expects(REQUEST)


def test_kerberos_tokens_are_known_by_how_they_begin() -> None:
    tokens = BareTokens.after_handshake(handshake("GSSAPI"))
    for first in (b"\x60\x82", b"\x05\x04\x04\xff", b""):
        assert tokens.expects(token(first))
        tokens.wrap(token(first))
    assert not tokens.expects(REQUEST)


def test_an_answer_goes_back_bare() -> None:
    assert BareTokens.unwrap(SaslAuthenticateResponse(auth_bytes=b"challenge")) == token(b"challenge")
    assert BareTokens.unwrap(SaslAuthenticateResponse(auth_bytes=b"")) == b"\0\0\0\0"


def test_a_refusal_has_no_answer() -> None:
    refused = SaslAuthenticateResponse(error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, auth_bytes=b"why")
    assert BareTokens.unwrap(refused) is None


def test_a_malformed_handshake_is_refused() -> None:
    frame = handshake("PLAIN")
    for end in range(4, len(frame)):
        with pytest.raises(RemoteProtocolError):
            BareTokens.after_handshake(frame[:end])
    with pytest.raises(RemoteProtocolError):
        BareTokens.after_handshake(frame + b"\0")
