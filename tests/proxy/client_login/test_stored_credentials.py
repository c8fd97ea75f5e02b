import pytest

from kproxy.proxy.client_login.stored_credentials import (
    SCRAM_HASHES,
    USUAL_ITERATIONS,
    Credentials,
    check_name,
    make_verifier,
    parse_credentials,
    show_credentials,
)
from tests.proxy.client_login.users import PASSWORD, USERS, VERIFIERS

TEXT = show_credentials(USERS)


def test_a_file_reads_as_it_was_written() -> None:
    read = parse_credentials(TEXT.replace("\n", "\r\n") + "\n# more\n\n")
    assert (read.decoy, read.verifiers) == (USERS.decoy, USERS.verifiers)
    assert PASSWORD not in TEXT


def test_a_name_may_hold_what_the_line_is_made_of() -> None:
    name = "CN=alice: a b,OU=$x"
    made = Credentials(b"d" * 32, {(name, "SCRAM-SHA-256"): VERIFIERS["alice", "SCRAM-SHA-256"]})
    assert parse_credentials(show_credentials(made)).verifiers == made.verifiers


@pytest.mark.parametrize("mechanism", SCRAM_HASHES)
def test_a_verifier_knows_its_password_and_no_other(mechanism: str) -> None:
    made = VERIFIERS["alice", mechanism]
    assert made.is_of(PASSWORD)
    assert not made.is_of(PASSWORD + " ")


def test_no_password_fits_a_user_that_does_not_exist() -> None:
    verifier, known = USERS.for_plain("nobody")
    assert not known
    assert not verifier.is_of("")
    assert verifier == USERS.for_plain("nobody")[0] != Credentials(b"e" * 32, VERIFIERS).for_plain("nobody")[0]


def test_a_made_up_verifier_looks_like_most_others() -> None:
    rare = make_verifier("SCRAM-SHA-256", "x", b"four", 5000)
    users = Credentials(b"d", {**VERIFIERS, ("bob", "SCRAM-SHA-256"): rare, ("eve", "SCRAM-SHA-256"): rare})
    made_up, _ = users.for_scram("nobody", "SCRAM-SHA-256")
    assert (made_up.iterations, len(made_up.salt)) == (5000, 4)
    made_up, _ = users.for_scram("bob", "SCRAM-SHA-512")
    assert (made_up.mechanism, made_up.iterations, len(made_up.stored_key)) == ("SCRAM-SHA-512", 4096, 64)
    assert Credentials(b"d", {}).for_plain("nobody")[0].iterations == USUAL_ITERATIONS


def test_the_check_of_a_user_that_does_not_exist_takes_as_long_as_that_of_most_users() -> None:
    """Most users have SHA-256, too, but PLAIN checks the stronger one."""
    weak, strong = (make_verifier(kind, "x", b"salt", 5000) for kind in ("SCRAM-SHA-256", "SCRAM-SHA-512"))
    rows = {(name, made.mechanism): made for name in ("bob", "eve") for made in (weak, strong)}
    users = Credentials(b"d", {("old", "SCRAM-SHA-256"): weak, **rows})
    made_up, _ = users.for_plain("nobody")
    assert made_up.mechanism == users.for_plain("bob")[0].mechanism == "SCRAM-SHA-512"


def test_plain_takes_the_strongest_verifier() -> None:
    assert USERS.for_plain("alice") == (VERIFIERS["alice", "SCRAM-SHA-512"], True)


LINE = TEXT.splitlines()[2]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "'decoy ...' is missing"),
        ("decoy AAAA\n", "'decoy ...' is missing"),
        ("decoy !\n", "line 1: no base64"),
        (TEXT + "alice:secret\n", "line 5 must be MECHANISM"),
        (TEXT + LINE + "\n", "line 5: the user of this line has SCRAM-SHA-256 twice"),
        (TEXT.replace("$4096:", "$4095:"), "line 3: iterations must be from 4096"),
        (TEXT.replace("SHA-256$", "SHA-512$"), "line 3: the keys of SCRAM-SHA-512 have 64 bytes"),
        (TEXT.replace("MDEy", "MD=y"), "line 3: no base64"),
    ],
)
def test_a_line_that_is_wrong_is_named_and_not_shown(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why) as caught:
        parse_credentials(text)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("name", ["", " a", "a\nb", "a\0"])
def test_a_name_is_one_line(name: str) -> None:
    with pytest.raises(ValueError, match="printable"):
        check_name(name)
