"""SCRAM against the examples of its RFCs, and against brokers that are none."""

import pytest

from kproxy.proxy.broker_login.broker_mechanisms import LoginRefused
from kproxy.proxy.broker_login.scram_client import SaltedPassword, Scram

NONCE = "rOprNGfwEbeRWgbNEkqO"
FIRST = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"


def example() -> Scram:
    """RFC 7677, 3."""
    return Scram("SCRAM-SHA-256", "user", "pencil", NONCE, SaltedPassword())


def test_the_example_of_the_rfc() -> None:
    scram = example()
    assert scram.first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    assert scram.next(FIRST) == (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    assert scram.next(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=") is None


def test_names_are_escaped_and_other_hashes_give_longer_proofs() -> None:
    scram = Scram("SCRAM-SHA-512", "a=b,c", "pencil", NONCE, SaltedPassword())
    assert scram.first() == b"n,,n=a=3Db=2Cc,r=rOprNGfwEbeRWgbNEkqO"
    said = scram.next(FIRST)
    assert said is not None
    assert len(said.partition(b",p=")[2]) == 88


@pytest.mark.parametrize(
    "final", [b"v=AAAA", b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95H4=", b"e=other", b"", b"v=!"]
)
def test_a_broker_that_does_not_know_the_password_is_not_trusted(final: bytes) -> None:
    scram = example()
    scram.next(FIRST)
    with pytest.raises(LoginRefused):
        scram.next(final)


@pytest.mark.parametrize(
    "first",
    [
        FIRST.replace(b"rOpr", b"sOpr"),  # another's nonce
        FIRST.replace(b"%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0", b""),  # nothing added to it
        FIRST.replace(b"i=4096", b"i=1"),
        FIRST.replace(b"i=4096", b"i=99999999999999999999"),
        FIRST.replace(b"i=4096", b"i=-1"),
        FIRST.replace(b"s=W22", b"s=!!!"),
        FIRST.replace(b"s=W22ZaJ0SNY7soEsUEjb6gQ==,", b""),
        b"\xff",
        b"",
    ],
)
def test_what_is_no_scram_ends_the_login(first: bytes) -> None:
    with pytest.raises(LoginRefused):
        example().next(first)


def test_a_password_is_salted_once_for_each_salt() -> None:
    salted = SaltedPassword()
    one = salted.key("SCRAM-SHA-256", "secret", b"salt", 4096)
    assert salted.key("SCRAM-SHA-256", "secret", b"salt", 4096) is one
    assert salted.key("SCRAM-SHA-256", "secret", b"pepper", 4096) != one
    assert salted.key("SCRAM-SHA-256", "secret", b"salt", 4096) == one
