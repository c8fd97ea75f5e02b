"""Signed tokens (JWT, RFC 7519): their user, and whether they are valid; needs the extra ``oauth``."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import jwt
import trio

from kproxy.net.client_login.token_keys import Key, KeysError, TokenKeys
from kproxy.proxy.client_login.steps import Accepted, Refused, TokenCheck, Verdict

#: Signatures by a private key; never "none", never a shared secret, which a public key could be mistaken for.
_ALGORITHMS: Final = (
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    *("ES256", "ES384", "ES512", "EdDSA"),
)
#: The end of the year 9999, in seconds since the epoch: a token that lasts longer counts as ending then.
_LATEST: Final = 253_402_300_799
_LONGEST_NAME: Final = 1_000


@dataclass(frozen=True, slots=True)
class TokenRules:
    """What a token must say."""

    #: It must be for one of these; none: for whomever.
    audience: Sequence[str] = ()
    issuer: str | None = None
    #: How far clocks may differ.
    skew_seconds: int = 30
    name_claim: str = "sub"
    scope_claim: str = "scope"
    #: It must grant all of these.
    scope: Sequence[str] = ()


class TokenChecker:
    """Checks tokens."""

    def __init__(self, keys: TokenKeys, rules: TokenRules) -> None:
        self._keys = keys
        self._rules = rules

    async def check(self, check: TokenCheck) -> Verdict:
        """The client's name, or why it is refused."""
        try:
            header = jwt.get_unverified_header(check.token)
            algorithm, key_id = header.get("alg"), header.get("kid")
        except jwt.PyJWTError as error:
            return Refused(f"no token: {error}")
        if algorithm not in _ALGORITHMS:
            return Refused(f"a token signed by {str(algorithm)[:20]!r} is not taken")
        try:
            key = await self._keys.find(key_id)
        except KeysError as error:
            return Refused(str(error), "tokens can't be checked just now; try again later")
        if key is None:
            return Refused(f"no key {str(key_id)[:100]!r}")
        return await trio.to_thread.run_sync(self._verify, check, key, algorithm)

    def _verify(self, check: TokenCheck, key: Key, algorithm: str) -> Verdict:
        rules = self._rules
        if key.get("alg") not in (None, algorithm):
            return Refused(f"the key is for {key['alg']}, not for {algorithm}")
        options: Any = {"require": ["exp", rules.name_claim], "verify_aud": bool(rules.audience)}
        try:
            claims = jwt.decode(
                check.token,
                jwt.PyJWK(dict(key), algorithm),
                [algorithm],
                options,
                audience=list(rules.audience) or None,
                issuer=rules.issuer,
                leeway=rules.skew_seconds,
            )
        except jwt.PyJWTError as error:
            return Refused(f"token refused: {error}")
        return self._accept(check, claims)

    def _accept(self, check: TokenCheck, claims: dict[str, Any]) -> Verdict:
        rules = self._rules
        name = claims[rules.name_claim]
        if not isinstance(name, str) or not name.strip() or not name.isprintable() or len(name) > _LONGEST_NAME:
            return Refused(f"the claim {rules.name_claim} is no name")
        if check.acts_for not in ("", name):
            return Refused("acts for another user", "the client asks to act for another user than its token names")
        granted = claims.get(rules.scope_claim, ())
        granted = granted.split() if isinstance(granted, str) else granted
        missing = [each for each in rules.scope if not isinstance(granted, list | tuple) or each not in granted]
        if missing:
            return Refused(f"the token of {name!r} does not grant {' '.join(missing)}")
        return Accepted(name, expires_at=float(min(int(claims["exp"]), _LATEST)))
