import json
import time
from base64 import urlsafe_b64encode
from typing import Any

import pytest

from kproxy.net.client_login.token_checker import TokenChecker, TokenRules
from kproxy.net.client_login.token_keys import TokenKeys
from kproxy.proxy.client_login.steps import Accepted, Refused, TokenCheck, Verdict
from tests.net.client_login.issuer import Issuer

RULES = TokenRules(audience=("kafka", "kproxy"), issuer="https://issuer.test")


@pytest.fixture(scope="module")
def issuer() -> Issuer:
    made = Issuer("one", "two")
    made.add_curve("curve")
    return made


async def checked(issuer: Issuer, token: str, rules: TokenRules = RULES, acts_for: str = "") -> Verdict:
    keys = TokenKeys("https://keys.test", 3_600_000, lambda url: json.dumps(issuer.jwks()).encode())
    return await TokenChecker(keys, rules).check(TokenCheck(token, acts_for))


async def why_not(issuer: Issuer, token: str, rules: TokenRules = RULES, acts_for: str = "") -> str:
    verdict = await checked(issuer, token, rules, acts_for)
    assert isinstance(verdict, Refused)
    return verdict.reason


@pytest.mark.parametrize(
    ("kid", "algorithm"), [("one", "RS256"), ("two", "RS512"), ("one", "PS256"), ("curve", "ES256")]
)
async def test_a_good_token_lets_in_as_long_as_it_lasts(issuer: Issuer, kid: str, algorithm: str) -> None:
    expires = int(time.time()) + 60
    token = issuer.token(kid, algorithm=algorithm, exp=expires)
    assert await checked(issuer, token) == Accepted("alice", expires_at=expires)
    assert await checked(issuer, token, acts_for="alice") == Accepted("alice", expires_at=expires)


@pytest.mark.parametrize(
    ("claims", "why"),
    [
        ({"exp": 1_000_000_000}, "expired"),
        ({"exp": None}, '"exp" claim'),
        ({"exp": float("inf")}, "must be an integer"),
        ({"nbf": 4_000_000_000}, "not yet valid"),
        ({"aud": "billing"}, "Audience"),
        ({"aud": None}, '"aud" claim'),
        ({"iss": "https://else.test"}, "issuer"),
        ({"iss": None}, '"iss" claim'),
        ({"sub": None}, '"sub" claim'),
        ({"sub": " "}, "the claim sub is no name"),
        ({"sub": "a\nb"}, "the claim sub is no name"),
        ({"sub": "a" * 1001}, "the claim sub is no name"),
    ],
)
async def test_a_token_that_says_something_else_is_refused(issuer: Issuer, claims: dict[str, Any], why: str) -> None:
    assert why in await why_not(issuer, issuer.token("one", **claims))


async def test_a_token_may_last_very_long(issuer: Issuer) -> None:
    token = issuer.token("one", exp=10**400)
    assert await checked(issuer, token) == Accepted("alice", expires_at=253_402_300_799)


async def test_clocks_may_differ_a_little(issuer: Issuer) -> None:
    token = issuer.token("one", exp=int(time.time()) - 10, nbf=int(time.time()) + 10)
    assert isinstance(await checked(issuer, token), Accepted)
    strict = TokenRules(audience=("kafka",), skew_seconds=0)
    assert await why_not(issuer, token, strict) == "token refused: The token is not yet valid (nbf)"


async def test_a_token_that_nobody_signed_is_refused(issuer: Issuer) -> None:
    head, body, signature = issuer.token("one").split(".")
    nobody = urlsafe_b64encode(b'{"alg":"none","kid":"one"}').decode().rstrip("=")
    assert await why_not(issuer, f"{nobody}.{body}.") == "a token signed by 'none' is not taken"
    assert "Signature" in await why_not(issuer, f"{head}.{body}.{signature[:-4]}AAAA")
    other = Issuer("one")
    assert "Signature" in await why_not(issuer, other.token("one"))


async def test_a_public_key_is_no_shared_secret(issuer: Issuer) -> None:
    token = issuer.token("one", algorithm="HS256", key=b"x" * 64)
    assert await why_not(issuer, token) == "a token signed by 'HS256' is not taken"


async def test_a_key_of_another_kind_does_not_do(issuer: Issuer) -> None:
    token = issuer.token("curve", algorithm="RS256", key=issuer.keys["one"])
    assert "token refused" in await why_not(issuer, token)


async def test_a_key_is_for_its_own_algorithm_only(issuer: Issuer) -> None:
    said = issuer.jwks()
    said["keys"][0]["alg"] = "RS512"
    checker = TokenChecker(TokenKeys("k", 1000, lambda url: json.dumps(said).encode()), RULES)
    verdict = await checker.check(TokenCheck(issuer.token("one"), ""))
    assert verdict == Refused("the key is for RS512, not for RS256")


@pytest.mark.parametrize("token", ["", "a", "a.b", "a.b.c", "e30.e30.", "x" * 500_000, "ey\u00e4.a.b"])
async def test_what_is_no_token_is_refused(issuer: Issuer, token: str) -> None:
    await why_not(issuer, token)


async def test_a_key_that_nobody_knows_is_named(issuer: Issuer) -> None:
    assert await why_not(issuer, issuer.token("nine", key=issuer.keys["one"])) == "no key 'nine'"
    assert await why_not(issuer, issuer.token(None)) == "no key 'None'"


async def test_without_an_id_the_only_key_is_meant() -> None:
    single = Issuer("one")
    assert isinstance(await checked(single, single.token(None)), Accepted)


async def test_without_keys_a_token_cannot_be_checked(issuer: Issuer) -> None:
    def fail(url: str) -> bytes:
        raise OSError("connection refused")

    checker = TokenChecker(TokenKeys("https://keys.test", 1000, fail), RULES)
    verdict = await checker.check(TokenCheck(issuer.token("one"), ""))
    assert verdict == Refused(
        "keys from https://keys.test: connection refused", "tokens can't be checked just now; try again later"
    )


async def test_other_claims_may_name_the_user_and_the_scope(issuer: Issuer) -> None:
    rules = TokenRules(audience=("kafka",), name_claim="client", scope_claim="scp", scope=("write", "read"))
    assert isinstance(await checked(issuer, issuer.token("one", client="etl", scp="read write"), rules), Accepted)
    assert isinstance(await checked(issuer, issuer.token("one", client="etl", scp=["write", "read"]), rules), Accepted)
    for scope in ("read", ["write"], None, 7):
        assert "does not grant" in await why_not(issuer, issuer.token("one", client="etl", scp=scope), rules)


async def test_who_asks_to_act_for_another_is_refused(issuer: Issuer) -> None:
    assert await why_not(issuer, issuer.token("one"), acts_for="bob") == "acts for another user"


async def test_without_an_audience_any_will_do(issuer: Issuer) -> None:
    rules = TokenRules(issuer="https://issuer.test")
    assert isinstance(await checked(issuer, issuer.token("one", aud="x"), rules), Accepted)
    assert isinstance(await checked(issuer, issuer.token("one", aud=None), rules), Accepted)
