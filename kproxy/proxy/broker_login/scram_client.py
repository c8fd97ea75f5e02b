"""SCRAM-SHA-256 and SCRAM-SHA-512, the client's side (RFC 5802, RFC 7677), as Kafka speaks it.

Kafka takes names and passwords as UTF-8, without SASLprep (``ScramFormatter``), and binds no channel.
"""

import hashlib
import hmac
from base64 import b64decode, b64encode
from typing import Final, NamedTuple

from kproxy.proxy.broker_login.broker_mechanisms import LoginRefused

_HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
#: As Kafka has it (``ScramMechanism``); fewer would make the password cheap to guess for an eavesdropper.
_LEAST_ITERATIONS: Final = 4096
#: Kafka's most is 16,384; each thousand costs about a millisecond during which kproxy does nothing else.
_MOST_ITERATIONS: Final = 262_144
_NO_BINDING: Final = b"n,,"


class _Salted(NamedTuple):
    """A salted password and all that it was made of."""

    mechanism: str
    password: str
    salt: bytes
    iterations: int
    key: bytes


class SaltedPassword:
    """Remembers the last one: the next connection to the cluster gets the same salt, and need not compute it again."""

    __slots__ = ("_last",)

    def __init__(self) -> None:
        self._last: _Salted | None = None

    def key(self, mechanism: str, password: str, salt: bytes, iterations: int) -> bytes:
        """RFC 5802's SaltedPassword."""
        last = self._last
        if last is None or last[:4] != (mechanism, password, salt, iterations):
            made = hashlib.pbkdf2_hmac(_HASHES[mechanism], password.encode(), salt, iterations)
            last = self._last = _Salted(mechanism, password, salt, iterations, made)
        return last.key


class Scram:
    """One login: a question and a response in two rounds, at the end of which each side knows that the other knows."""

    def __init__(self, mechanism: str, username: str, password: str, nonce: str, salted: SaltedPassword) -> None:
        """``nonce``: printable, no comma, never used before."""
        self.mechanism = mechanism
        self._hash = _HASHES[mechanism]
        self._password = password
        self._nonce = nonce
        self._salted = salted
        name = username.replace("=", "=3D").replace(",", "=2C")
        self._first = f"n={name},r={nonce}".encode()
        self._proof_of_server: bytes | None = None

    def first(self) -> bytes:
        return _NO_BINDING + self._first

    def next(self, challenge: bytes) -> bytes | None:
        """What it says then; None: both are satisfied. LoginRefused: the broker is not what it should be."""
        if self._proof_of_server is None:
            return self._prove(challenge)
        value = _fields(challenge).get("v")
        if value is None or not hmac.compare_digest(_decoded(value), self._proof_of_server):
            raise LoginRefused("the broker does not prove that it knows the password: is it the right one?")
        return None

    def _prove(self, challenge: bytes) -> bytes:
        fields = _fields(challenge)
        nonce, salt, count = fields.get("r", ""), fields.get("s", ""), fields.get("i", "")
        if not nonce.startswith(self._nonce) or nonce == self._nonce or not salt or not count.isdecimal():
            raise LoginRefused("the broker's answer is no SCRAM")
        if len(count) > len(str(_MOST_ITERATIONS)) or not _LEAST_ITERATIONS <= int(count) <= _MOST_ITERATIONS:
            raise LoginRefused(
                f"the broker asks for {count[:12]} iterations; from {_LEAST_ITERATIONS} to {_MOST_ITERATIONS} are done"
            )
        key = self._salted.key(self.mechanism, self._password, _decoded(salt), int(count))
        final = b"c=" + b64encode(_NO_BINDING) + b",r=" + nonce.encode()
        said = b",".join((self._first, challenge, final))
        client_key = self._hmac(key, b"Client Key")
        signature = self._hmac(hashlib.new(self._hash, client_key).digest(), said)
        proof = bytes(one ^ other for one, other in zip(client_key, signature, strict=True))
        self._proof_of_server = self._hmac(self._hmac(key, b"Server Key"), said)
        return final + b",p=" + b64encode(proof)

    def _hmac(self, key: bytes, text: bytes) -> bytes:
        return hmac.digest(key, text, self._hash)


def _fields(challenge: bytes) -> dict[str, str]:
    """``a=1,b=2`` by letter; LoginRefused on anything else."""
    try:
        parts = [part.partition("=") for part in challenge.decode("ascii").split(",")]
    except UnicodeDecodeError:
        raise LoginRefused("the broker's answer is no SCRAM") from None
    return {name: value for name, _, value in parts}


def _decoded(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except ValueError:
        raise LoginRefused("the broker's answer is no SCRAM") from None
