"""Mechanisms whose proof is verified elsewhere: PLAIN (RFC 4616) and OAUTHBEARER (RFC 7628, KIP-255)."""

import json
import re
from collections.abc import Callable
from typing import Final

from kproxy.proxy.client_login.scram_server import ScramExchange
from kproxy.proxy.client_login.steps import (
    Challenge,
    Exchange,
    PasswordCheck,
    Refused,
    Step,
    TokenCheck,
    Verdict,
)
from kproxy.proxy.client_login.stored_credentials import SCRAM_HASHES, Credentials

#: All that there are, by their names in SaslHandshake.
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")

#: The header, then key=value pairs, each after a 0x01; one more at the end.
_BEARER: Final = re.compile(r"n,(?:a=([^,]*))?,\x01((?:[A-Za-z]+=[^\x01]*\x01)+)\x01")
_TOKEN: Final = re.compile(r"(?:^|\x01)auth=[Bb]earer +([A-Za-z0-9._~+/=-]+)\x01")
_GO_ON: Final = b"\x01"
_SAID_TWICE: Final = Refused("more tokens than the mechanism has")


class Plain:
    """Name and password in one token."""

    def __init__(self) -> None:
        self._said = False

    def step(self, token: bytes) -> Step:
        if self._said:
            return _SAID_TWICE
        self._said = True
        try:
            acts_for, name, password = token.decode().split("\0")
        except ValueError:  # UnicodeDecodeError is one
            return Refused("malformed PLAIN token")
        if not name or not password:
            return Refused("no name or no password")
        if acts_for not in ("", name):
            return Refused("acts for another user", "the client asks to act for another user than it logs in as")
        return PasswordCheck(name, password)

    def checked(self, verdict: Verdict) -> Verdict:
        return verdict


class Bearer:
    """A token of another issuer. A client that is refused receives the reason, and has to confirm it."""

    def __init__(self) -> None:
        self._said = False
        self._refused: Refused | None = None

    def step(self, token: bytes) -> Step:
        """The token, or the client's confirmation that it received the refusal."""
        if self._refused is not None:
            return self._refused if token == _GO_ON else _SAID_TWICE
        if self._said:
            return _SAID_TWICE
        self._said = True
        match = _BEARER.fullmatch(token.decode("utf-8", "replace"))
        found = None if match is None else _TOKEN.search(match[2])
        if match is None or found is None:
            return Refused("malformed OAUTHBEARER token")
        return TokenCheck(found[1], match[1] or "")

    def checked(self, verdict: Verdict) -> Challenge | Verdict:
        """A refusal goes out as a challenge first (RFC 7628, 3.2.3)."""
        if not isinstance(verdict, Refused):
            return verdict
        self._refused = verdict
        return Challenge(json.dumps({"status": "invalid_token"}).encode())


def begin(mechanism: str, credentials: Callable[[], Credentials], nonce: Callable[[], str]) -> Exchange:
    """The exchange of one login, by one of ``MECHANISMS``."""
    if mechanism in SCRAM_HASHES:
        return ScramExchange(mechanism, credentials(), nonce())
    return Plain() if mechanism == "PLAIN" else Bearer()
