"""The bare tokens that follow a SaslHandshake v0: sized, without a header, in both directions (see KIP-152).

kproxy asks the broker in the new way: each token goes into a SaslAuthenticate v0, and its response's goes back bare.
"""

from typing import Self

from kproxy.budget import standalone
from kproxy.codec._generated.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from kproxy.codec._generated.sasl_handshake import SaslHandshakeRequest
from kproxy.codec.header import decode_request_header
from kproxy.codec.messages import ErrorCode

_ROUNDS = {"PLAIN": 1, "OAUTHBEARER": 1, "SCRAM-SHA-256": 2, "SCRAM-SHA-512": 2}
#: A token of Kerberos begins so (RFC 2743, RFC 4121); a request's API key below 256 begins with a zero byte.
_GSSAPI_STARTS = (0x60, 0x05)


class BareTokens:
    """Counts the tokens of a mechanism, and turns them into SaslAuthenticate and back."""

    def __init__(self, mechanism: str) -> None:
        """``mechanism``: as the client asked for it, e.g. ``PLAIN``."""
        self._left = _ROUNDS.get(mechanism)

    @classmethod
    def after_handshake(cls, frame: bytearray) -> Self:
        """What follows a SaslHandshake v0 (frame with its prefix). RemoteProtocolError if that is malformed."""
        view = memoryview(frame)[4:]
        request = SaslHandshakeRequest.decode(view[decode_request_header(view).size :], 0, standalone())
        return cls(request.mechanism)

    def expects(self, frame: bytearray) -> bool:
        """Whether the client's next frame is a token, not a request."""
        if self._left is None:
            return len(frame) == 4 or frame[4] in _GSSAPI_STARTS
        return self._left > 0

    def wrap(self, frame: bytearray) -> SaslAuthenticateRequest:
        """The request that carries a token frame (prefix included)."""
        if self._left is not None:
            self._left -= 1
        return SaslAuthenticateRequest(auth_bytes=bytes(frame[4:]))

    @staticmethod
    def unwrap(response: SaslAuthenticateResponse) -> bytes | None:
        """The token frame for the client; None if it was refused: in the old way the connection just ends."""
        if response.error_code != ErrorCode.NONE:
            return None
        return len(response.auth_bytes).to_bytes(4, "big") + response.auth_bytes
