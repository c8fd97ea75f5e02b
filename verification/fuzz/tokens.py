"""Tokens of other issuers (OAUTHBEARER): as a client says them, and signed with whatever header and claims."""

import json
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from functools import partial
from typing import Any, Final

import jwt
import trio
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from jwt.algorithms import OKPAlgorithm

from kproxy.net.client_login.token_checker import TokenChecker, TokenRules
from kproxy.net.client_login.token_keys import Key, TokenKeys
from kproxy.proxy.client_login.steps import Accepted, TokenCheck
from verification.fuzz.choices import Choices, piece
from verification.fuzz.target import Bound, Target, expect, without_threads

_SIGNER: Final = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
_KEY: Final[Key] = {**OKPAlgorithm.to_jwk(_SIGNER.public_key(), as_dict=True), "kid": "k"}
_RULES: Final = (TokenRules(), TokenRules(("kafka",), "issuer", scope=("read", "write")))


class _Keys(TokenKeys):
    """One key, which is known already."""

    async def find(self, key_id: str | None) -> Key | None:
        return _KEY if key_id in (None, "k") else None


_CHECKERS: Final = tuple(TokenChecker(_Keys("", 0), rules) for rules in _RULES)


def check_token(data: bytes) -> None:
    """A token as it is, or a header and claims that are signed by the issuer."""
    said = Choices(data)
    flags = said.number()
    text = _signed(said.piece(), said.rest()) if flags & 1 else said.rest().decode("latin-1")
    check = TokenCheck(text, "alice" if flags & 4 else "")
    with without_threads():
        verdict = trio.run(partial(_CHECKERS[flags >> 1 & 1].check, check))
    if isinstance(verdict, Accepted):
        expect(bool(flags & 1), "a token is taken that the issuer has not signed")
        expect(verdict.name.isprintable() and verdict.expires_at is not None, "a login without a name or an end")


def _signed(header: bytes, claims: bytes) -> str:
    signed = b".".join((_base64(header), _base64(claims)))
    return b".".join((signed, _base64(_SIGNER.sign(signed)))).decode()


def _base64(data: bytes) -> bytes:
    return urlsafe_b64encode(data).rstrip(b"=")


def _token_seeds() -> Iterator[bytes]:
    header = json.dumps({"alg": "EdDSA", "typ": "JWT", "kid": "k"}).encode()
    claims: dict[str, Any] = {
        "sub": "alice",
        "exp": 253_402_300_799,
        "aud": "kafka",
        "iss": "issuer",
        "scope": "read write",
    }
    for more in ({}, {"scope": ["read", "write"]}, {"aud": ["kafka"]}, {"nbf": 1, "iat": 2}, {"exp": 1e20}):
        said = json.dumps(claims | more).encode()
        yield b"\1" + piece(header) + said
        yield b"\3" + piece(header) + said
        yield b"\7" + piece(header) + said
    yield b"\0" + jwt.encode(claims, "s" * 64, "HS256").encode()
    yield b"\0" + _signed(header, b"{}").encode()


TOKENS_TARGET: Final = Target(
    "tokens",
    check_token,
    _token_seeds,
    Bound(steps=60_000, steps_of_byte=500, memory=200_000, memory_of_byte=500),
    ("kproxy.net.client_login.token_checker",),
    (
        b'"alg":"EdDSA"',
        b'"kid":"k"',
        b'"exp":',
        b'"sub":',
        b'"aud":',
        b'"scope":',
        b'"crit":["b64"]',
        b"Infinity",
        b"NaN",
        b"null",
        b"[]",
        b"{}",
    ),
)
