"""Which user is logged in on which connection, where the fake cluster asks for SASL (KIP-43, KIP-152, KIP-368)."""

import base64
import hashlib
import hmac
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from kproxy.codec.messages import ApiKey, ErrorCode

_ITERATIONS: Final = 4096
_FIRST: Final = frozenset({ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE})


@dataclass(frozen=True, slots=True)
class SaslRules:
    """What clients must show: a name and its password for PLAIN and SCRAM-SHA-256, or a token that names a user.

    :param max_reauth_ms: Kafka's ``connections.max.reauth.ms``; 0: a login lasts as long as its connection.
    :param hangs_up: whether a request after the end of a login ends the connection, as at a real broker.
    """

    users: Mapping[str, str] = field(default_factory=dict)
    tokens: Mapping[str, str] = field(default_factory=dict)
    mechanisms: tuple[str, ...] = ("PLAIN", "SCRAM-SHA-256", "OAUTHBEARER")
    max_reauth_ms: int = 0
    hangs_up: bool = True


@dataclass(slots=True)
class Login:
    """The login of one connection.

    :param mechanism: of the exchange that is in progress; None: none is.
    :param said: its messages so far, client and server in turn.
    :param name: the user that is logged in; None: nobody yet.
    :param ends: when the login expires, in ms of the cluster's clock.
    """

    mechanism: str | None = None
    said: list[bytes] = field(default_factory=list)
    name: str | None = None
    ends: float = float("inf")
    count: int = 0


class Refused(Exception):
    """The credentials are not the right ones."""


class Logins:
    """The logins of all connections of a cluster."""

    def __init__(self, rules: SaslRules | None) -> None:
        """``rules``: None if no login is asked for."""
        self.rules = rules
        self.by_connection: dict[int, Login] = {}

    def admits(self, connection: int, key: int, now: int) -> bool:
        """Tell whether a request may be served; a broker hangs up on any other."""
        if self.rules is None:
            return True
        login = self.by_connection.setdefault(connection, Login())
        if login.mechanism is not None:
            return key == ApiKey.SASL_AUTHENTICATE
        return key in _FIRST or (login.name is not None and (now < login.ends or not self.rules.hangs_up))

    def begin(self, connection: int, mechanism: str) -> ErrorCode:
        login = self.by_connection.get(connection)
        if self.rules is None or login is None or (login.name is not None and not self.rules.max_reauth_ms):
            return ErrorCode.ILLEGAL_SASL_STATE
        if mechanism not in self.rules.mechanisms:
            return ErrorCode.UNSUPPORTED_SASL_MECHANISM
        login.mechanism, login.said = mechanism, []
        return ErrorCode.NONE

    def take(self, connection: int, token: bytes, now: int) -> bytes:
        """Answer what a client says; ``Refused`` if it is wrong, or makes no sense."""
        login = self.by_connection[connection]
        assert self.rules is not None
        login.said.append(token)
        try:
            name, answer = _STEPS[login.mechanism or ""](self.rules, login.said)
        except (ValueError, LookupError) as error:
            raise Refused from error
        login.said.append(answer)
        if name is not None:
            if login.name not in (None, name):
                raise Refused
            login.name, login.mechanism = name, None
            login.count += 1
            login.ends = now + self.rules.max_reauth_ms if self.rules.max_reauth_ms else float("inf")
        return answer

    def forget(self, connection: int) -> None:
        self.by_connection.pop(connection, None)


def _plain(rules: SaslRules, said: list[bytes]) -> tuple[str | None, bytes]:
    _, name, password = said[-1].decode().split("\0")
    if not password or rules.users.get(name) != password:
        raise Refused
    return name, b""


def _bearer(rules: SaslRules, said: list[bytes]) -> tuple[str | None, bytes]:
    if len(said) > 1:
        raise Refused
    token = said[0].decode().split("\1")[1].removeprefix("auth=Bearer ")
    name = rules.tokens.get(token)
    return name, b'{"status":"invalid_token"}' if name is None else b""


def _scram(rules: SaslRules, said: list[bytes]) -> tuple[str | None, bytes]:
    first = said[0].removeprefix(b"n,,")
    name, nonce = (part[2:].decode() for part in first.split(b","))
    if len(said) == 1:
        salt = base64.b64encode(secrets.token_bytes(16)).decode()
        return None, f"r={nonce}{secrets.token_hex(8)},s={salt},i={_ITERATIONS}".encode()
    fields = dict(part.split("=", 1) for part in said[1].decode().split(","))
    final, _, proof = said[2].rpartition(b",p=")
    salted = hashlib.pbkdf2_hmac(
        "sha256", rules.users.get(name, "\0").encode(), base64.b64decode(fields["s"]), _ITERATIONS
    )
    auth = b",".join((first, said[1], final))
    client_key = hmac.digest(salted, b"Client Key", "sha256")
    signature = hmac.digest(hashlib.sha256(client_key).digest(), auth, "sha256")
    if bytes(a ^ b for a, b in zip(client_key, signature, strict=True)) != base64.b64decode(proof):
        raise Refused
    proved = hmac.digest(hmac.digest(salted, b"Server Key", "sha256"), auth, "sha256")
    return name, b"v=" + base64.b64encode(proved)


_STEPS: Final = {"PLAIN": _plain, "SCRAM-SHA-256": _scram, "OAUTHBEARER": _bearer}
