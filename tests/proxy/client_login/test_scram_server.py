from base64 import b64decode, b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kproxy.proxy.client_login.scram_server import ScramExchange
from kproxy.proxy.client_login.steps import Accepted, Challenge, Refused, Step
from kproxy.proxy.client_login.stored_credentials import SCRAM_HASHES, Credentials, make_verifier
from tests.proxy.client_login.users import PASSWORD, USERS, ScramClient

SHA256 = "SCRAM-SHA-256"


def exchange(nonce: str = "server-nonce", mechanism: str = SHA256) -> ScramExchange:
    return ScramExchange(mechanism, USERS, nonce)


def challenged(begun: ScramExchange, client: ScramClient) -> bytes:
    step = begun.step(client.first())
    assert isinstance(step, Challenge), step
    return step.token


def log_in(user: str = "alice", password: str = PASSWORD, mechanism: str = SHA256) -> tuple[Step, bytes]:
    begun, client = exchange(mechanism=mechanism), ScramClient(mechanism, user, password)
    challenge = challenged(begun, client)
    return begun.step(client.final(challenge)), client.server_signature


def reason(step: Step) -> str:
    assert isinstance(step, Refused), step
    return step.reason


def test_the_example_of_rfc_7677() -> None:
    verifier = make_verifier(SHA256, "pencil", b64decode("W22ZaJ0SNY7soEsUEjb6gQ=="), 4096)
    begun = ScramExchange(SHA256, Credentials(b"", {("user", SHA256): verifier}), "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0")
    first = begun.step(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO")
    nonce = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    assert first == Challenge(f"r={nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode())
    last = begun.step(f"c=biws,r={nonce},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=".encode())
    assert last == Accepted("user", b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")


@pytest.mark.parametrize("mechanism", SCRAM_HASHES)
def test_the_right_password_lets_in_and_kproxy_proves_that_it_knows_it_too(mechanism: str) -> None:
    step, signature = log_in(mechanism=mechanism)
    assert step == Accepted("alice", b"v=" + b64encode(signature))


def test_a_wrong_password_and_an_unknown_user_differ_in_the_log_only() -> None:
    wrong, unknown = log_in(password="guess")[0], log_in("nobody")[0]
    assert (reason(wrong), reason(unknown)) == ("wrong password of 'alice'", "no such user")
    assert isinstance(wrong, Refused)
    assert isinstance(unknown, Refused)
    assert wrong.message is unknown.message is None


def test_an_unknown_user_is_asked_like_a_known_one_and_always_the_same() -> None:
    asked = [challenged(exchange(), ScramClient(SHA256, user, "")) for user in ("alice", "nobody", "nobody", "else")]
    shapes = {tuple((part[0], len(part)) for part in each.split(b",")) for each in asked}
    assert len(shapes) == 1
    assert asked[1] == asked[2] != asked[3]


def test_a_proof_is_worth_nothing_in_another_exchange() -> None:
    client = ScramClient(SHA256, "alice", PASSWORD)
    first, second = exchange("one"), exchange("two")
    overheard = client.final(challenged(first, client))
    assert isinstance(first.step(overheard), Accepted)
    challenge = challenged(second, client)
    assert reason(second.step(overheard)) == "proof of another exchange"
    nonce = challenge.split(b",")[0]
    forged = b",".join([overheard.split(b",")[0], nonce, overheard.split(b",")[2]])
    third = exchange("two")
    challenged(third, client)
    assert reason(third.step(forged)) == "wrong password of 'alice'"


def test_names_are_escaped() -> None:
    verifier = make_verifier(SHA256, PASSWORD, b"salt", 4096)
    begun = ScramExchange(SHA256, Credentials(b"", {("a=b,c", SHA256): verifier}), "n")
    client = ScramClient(SHA256, "a=3Db=2Cc", PASSWORD, header="n,a=a=3Db=2Cc,")
    step = begun.step(client.final(challenged(begun, client)))
    assert isinstance(step, Accepted)
    assert step.name == "a=b,c"


@pytest.mark.parametrize(
    ("first", "why"),
    [
        (b"", "malformed"),
        (b"n,,n=,r=x", "malformed"),
        (b"n,,n=a=b,r=x", "malformed"),
        (b"n,,n=alice,r=", "malformed"),
        (b"n,,n=alice", "malformed"),
        (b"n,,m=ext,n=alice,r=x", "malformed"),
        (b"n,,n=al\xff,r=x", "malformed"),
        (b"p=tls-unique,,n=alice,r=x", "channel binding"),
        (b"n,a=bob,n=alice,r=x", "acts for another"),
        (b"n,,n=alice,r=x,tokenauth=true", "delegation token"),
    ],
)
def test_what_cannot_begin_is_refused(first: bytes, why: str) -> None:
    assert why in reason(exchange().step(first))


@pytest.mark.parametrize("first", [b"y,,n=alice,r=x", b"n,,n=alice,r=x,q=1", b"n,a=alice,n=alice,r=x"])
def test_what_is_allowed_begins(first: bytes) -> None:
    assert isinstance(exchange().step(first), Challenge)


@pytest.mark.parametrize(
    ("final", "why"),
    [
        (b"", "malformed"),
        (b"c=biws,r=cliserver-nonce,p=!", "malformed"),
        (b"c=biw,r=cliserver-nonce,p=AAAA", "malformed"),
        (b"c=eSws,r=cliserver-nonce,p=AAAA", "another exchange"),
        (b"c=biws,r=cliserver-nonc,p=AAAA", "another exchange"),
        (b"c=biws,r=cliserver-nonce,p=AAAA", "wrong password"),
        (b"c=biws,r=cliserver-nonce,p=" + b"A" * 64, "wrong password"),
    ],
)
def test_what_proves_nothing_is_refused(final: bytes, why: str) -> None:
    begun = exchange()
    challenged(begun, ScramClient(SHA256, "alice", PASSWORD))
    assert why in reason(begun.step(final))


@given(st.lists(st.binary(max_size=200), max_size=3))
def test_any_bytes_are_refused(tokens: list[bytes]) -> None:
    begun = exchange()
    for token in tokens:
        assert isinstance(begun.step(token), Refused)
