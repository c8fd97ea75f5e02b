import pytest

from kproxy.proxy.broker_login.broker_mechanisms import Bearer, LoginRefused, Plain


def test_plain_says_all_at_once() -> None:
    plain = Plain("alice", "geheim ä")
    assert plain.first() == "\0alice\0geheim ä".encode()
    plain.next(b"")


def test_a_token_goes_with_its_extensions() -> None:
    bearer = Bearer("t0k.en", {"logicalCluster": "lkc-1"})
    assert bearer.first() == b"n,,\x01auth=Bearer t0k.en\x01logicalCluster=lkc-1\x01\x01"
    assert bearer.next(b"") is None


def test_a_token_that_is_not_taken_is_acknowledged_once() -> None:
    bearer = Bearer("t", {})
    assert bearer.first() == b"n,,\x01auth=Bearer t\x01\x01"
    assert bearer.next(b'{"status":"invalid_token"}') == b"\x01"
    with pytest.raises(LoginRefused):
        bearer.next(b'{"status":"invalid_token"}')
