"""SCRAM-SHA-256 and SCRAM-SHA-512, the server's side (RFC 5802, RFC 7677), as Kafka speaks it.

No channel is bound, and names and passwords are UTF-8 without SASLprep (Kafka's ``ScramFormatter``). A user that does
not exist gets a made-up salt and fails at its proof, like one with a wrong password.
"""

import hashlib
import hmac
import re
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from typing import Final, NamedTuple

from kproxy.proxy.client_login.steps import Accepted, Challenge, Refused, Step, Verdict
from kproxy.proxy.client_login.stored_credentials import SCRAM_HASHES, Credentials, Verifier

_FIRST: Final = re.compile(r"(([ny]|p=[^,]*),(?:a=([^,]*))?,)(n=([^,]*),r=([!-+\--~]+)((?:,[A-Za-z]+=[^,]*)*))")
_FINAL: Final = re.compile(r"(c=([A-Za-z0-9+/=]+),r=([!-+\--~]+)(?:,[A-Za-z]=[^,]*)*),p=([A-Za-z0-9+/=]+)")
_ESCAPE: Final = re.compile(r"=(2C|3D)?")
_DELEGATION: Final = ",tokenauth=true"
_MALFORMED: Final = Refused("malformed SCRAM message")


class _Begun(NamedTuple):
    """What the first message fixed."""

    name: str
    known: bool
    verifier: Verifier
    header: str
    nonce: str
    #: client-first-message-bare and server-first-message, each followed by a comma.
    said: str


class ScramExchange:
    """One login; a nonce of this side makes proofs worthless for the next one."""

    def __init__(self, mechanism: str, credentials: Credentials, nonce: str) -> None:
        """``nonce``: printable, without a comma, never used before and not to be guessed."""
        self._mechanism = mechanism
        self._hash = SCRAM_HASHES[mechanism]
        self._credentials = credentials
        self._nonce = nonce
        self._begun: _Begun | None = None

    def step(self, token: bytes) -> Step:
        """client-first-message, then client-final-message."""
        try:
            text = token.decode()
        except UnicodeDecodeError:
            return _MALFORMED
        if self._begun is None:
            return self._begin(text)
        return self._finish(text, self._begun)

    def checked(self, verdict: Verdict) -> Verdict:
        return verdict

    def _begin(self, text: str) -> Step:
        match = _FIRST.fullmatch(text)
        name = None if match is None else _unescape(match[5])
        if match is None or not name:
            return _MALFORMED
        if match[2].startswith("p"):
            return Refused("channel binding asked for", "channel binding is not supported")
        if match[3] and _unescape(match[3]) != name:
            return Refused("acts for another user", "the client asks to act for another user than it logs in as")
        if _DELEGATION in match[7]:
            return Refused("delegation token", "delegation tokens are not supported")
        verifier, known = self._credentials.for_scram(name, self._mechanism)
        nonce = match[6] + self._nonce
        said = f"r={nonce},s={b64encode(verifier.salt).decode()},i={verifier.iterations}"
        self._begun = _Begun(name, known, verifier, match[1], nonce, f"{match[4]},{said},")
        return Challenge(said.encode())

    def _finish(self, text: str, begun: _Begun) -> Step:
        match = _FINAL.fullmatch(text)
        header, proof = (None, None) if match is None else (_bytes(match[2]), _bytes(match[4]))
        if match is None or header is None or proof is None:
            return _MALFORMED
        if not hmac.compare_digest(match[3], begun.nonce) or header != begun.header.encode():
            return Refused("proof of another exchange")
        message = (begun.said + match[1]).encode()
        stored_key = begun.verifier.stored_key
        signature = hmac.digest(stored_key, message, self._hash)
        client_key = bytes(one ^ other for one, other in zip(proof, signature, strict=False))
        fits = hmac.compare_digest(hashlib.new(self._hash, client_key).digest(), stored_key)
        if not (fits and begun.known and len(proof) == len(signature)):
            return Refused(f"wrong password of {begun.name!r}" if begun.known else "no such user")
        server_signature = hmac.digest(begun.verifier.server_key, message, self._hash)
        return Accepted(begun.name, b"v=" + b64encode(server_signature))


def _unescape(text: str) -> str | None:
    """A saslname as it is meant; None if it is malformed."""
    if any(match[1] is None for match in _ESCAPE.finditer(text)):
        return None
    return text.replace("=2C", ",").replace("=3D", "=")


def _bytes(text: str) -> bytes | None:
    try:
        return b64decode(text, validate=True)
    except Base64Error:
        return None
