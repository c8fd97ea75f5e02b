import pytest

from kproxy.proxy.client_login.client_mechanisms import MECHANISMS, Bearer, Plain, begin
from kproxy.proxy.client_login.scram_server import ScramExchange
from kproxy.proxy.client_login.steps import Accepted, Challenge, PasswordCheck, Refused, TokenCheck
from tests.proxy.client_login.users import USERS


def test_each_mechanism_has_its_exchange() -> None:
    kinds = [type(begin(mechanism, lambda: USERS, lambda: "nonce")) for mechanism in MECHANISMS]
    assert kinds == [Plain, ScramExchange, ScramExchange, Bearer]


@pytest.mark.parametrize("token", [b"\0alice\0pa ss", b"alice\0alice\0pa ss"])
def test_a_password_is_checked_elsewhere(token: bytes) -> None:
    plain = Plain()
    assert plain.step(token) == PasswordCheck("alice", "pa ss")
    assert plain.checked(Accepted("alice")) == Accepted("alice")
    assert isinstance(plain.step(token), Refused)


@pytest.mark.parametrize(
    ("token", "why"),
    [
        (b"", "malformed"),
        (b"alice\0secret", "malformed"),
        (b"\0a\0b\0c", "malformed"),
        (b"\0al\xffce\0secret", "malformed"),
        (b"\0\0secret", "no name"),
        (b"\0alice\0", "no name"),
        (b"bob\0alice\0secret", "acts for another"),
    ],
)
def test_what_is_no_plain_token_is_refused(token: bytes, why: str) -> None:
    step = Plain().step(token)
    assert isinstance(step, Refused)
    assert why in step.reason
    assert "secret" not in step.reason


@pytest.mark.parametrize(
    ("token", "check"),
    [
        (b"n,,\x01auth=Bearer a.b.c\x01\x01", TokenCheck("a.b.c", "")),
        (b"n,a=alice,\x01auth=bearer a-_~+/=.b\x01x=1\x01\x01", TokenCheck("a-_~+/=.b", "alice")),
        (b"n,,\x01logicalCluster=lkc\x01auth=Bearer t\x01\x01", TokenCheck("t", "")),
    ],
)
def test_a_token_is_checked_elsewhere(token: bytes, check: TokenCheck) -> None:
    assert Bearer().step(token) == check


@pytest.mark.parametrize(
    "token",
    [
        b"",
        b"\x01",
        b"n,,\x01\x01",
        b"n,,\x01auth=Bearer \x01\x01",
        b"n,,\x01auth=Basic x\x01\x01",
        b"n,,\x01auth=Bearer a b\x01\x01",
        b"n,,\x01xauth=Bearer t\x01\x01",
        b"n,,\x01auth=Bearer t\x01",
        b"y,,\x01auth=Bearer t\x01\x01",
    ],
)
def test_what_is_no_bearer_token_is_refused(token: bytes) -> None:
    assert isinstance(Bearer().step(token), Refused)


def test_a_refused_client_gets_the_reason_and_has_to_confirm_it() -> None:
    bearer, refused = Bearer(), Refused("expired")
    bearer.step(b"n,,\x01auth=Bearer t\x01\x01")
    assert bearer.checked(refused) == Challenge(b'{"status": "invalid_token"}')
    assert bearer.step(b"\x01") == refused


def test_another_token_after_a_refusal_is_none() -> None:
    bearer = Bearer()
    bearer.step(b"n,,\x01auth=Bearer t\x01\x01")
    bearer.checked(Refused("expired"))
    assert isinstance(bearer.step(b"n,,\x01auth=Bearer t\x01\x01"), Refused)
    assert isinstance(Bearer().checked(Accepted("a")), Accepted)
