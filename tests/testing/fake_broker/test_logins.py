"""The fake's logins, as far as no client of kproxy's has to be asked."""

import pytest

from kproxy.codec.messages import ApiKey, ErrorCode
from kproxy.testing.fake_broker.logins import Logins, Refused, SaslRules

RULES = SaslRules(users={"alice": "secret", "bob": "bobs"}, max_reauth_ms=1000)


def test_nothing_but_a_login_is_served_before_it_and_after_its_end() -> None:
    logins = Logins(RULES)
    assert logins.admits(1, ApiKey.API_VERSIONS, 0)
    assert logins.admits(1, ApiKey.SASL_HANDSHAKE, 0)
    assert not logins.admits(1, ApiKey.PRODUCE, 0)
    assert logins.begin(1, "GSSAPI") == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert logins.begin(1, "PLAIN") == ErrorCode.NONE
    assert not logins.admits(1, ApiKey.API_VERSIONS, 0)
    assert logins.take(1, b"\0alice\0secret", 0) == b""
    assert logins.admits(1, ApiKey.PRODUCE, 999)
    assert not logins.admits(1, ApiKey.PRODUCE, 1000)
    assert logins.admits(1, ApiKey.SASL_HANDSHAKE, 1000)
    assert not logins.admits(2, ApiKey.PRODUCE, 0)
    logins.forget(1)
    assert not logins.admits(1, ApiKey.PRODUCE, 0)


def test_a_login_stays_that_of_one_user() -> None:
    logins = Logins(RULES)
    for token, taken in ((b"\0alice\0secret", True), (b"\0bob\0bobs", False)):
        assert logins.admits(1, ApiKey.SASL_HANDSHAKE, 0)
        assert logins.begin(1, "PLAIN") == ErrorCode.NONE
        if taken:
            logins.take(1, token, 0)
        else:
            with pytest.raises(Refused):
                logins.take(1, token, 0)


def test_without_a_lifetime_or_without_rules_there_is_no_second_login() -> None:
    logins = Logins(SaslRules(users={"alice": "secret"}))
    logins.admits(1, ApiKey.SASL_HANDSHAKE, 0)
    assert logins.begin(1, "PLAIN") == ErrorCode.NONE
    logins.take(1, b"\0alice\0secret", 0)
    assert logins.begin(1, "PLAIN") == ErrorCode.ILLEGAL_SASL_STATE
    assert Logins(None).admits(1, ApiKey.PRODUCE, 0)
    assert Logins(None).begin(1, "PLAIN") == ErrorCode.ILLEGAL_SASL_STATE
