from pathlib import Path
from typing import Any

import pytest

from kproxy.config import Address, Config
from kproxy.config.login_values import KEY_URL, MECHANISM_LIST, WORD_LIST, check_logins


def test_mechanisms_in_any_case_and_once() -> None:
    assert MECHANISM_LIST.parse("scram-sha-512, PLAIN,plain") == ("SCRAM-SHA-512", "PLAIN")
    assert MECHANISM_LIST.parse(["OAUTHBEARER"]) == ("OAUTHBEARER",)
    for nothing in ("", "off", "{}"):
        assert MECHANISM_LIST.parse(nothing) == ()


def test_an_unknown_mechanism_is_named_with_what_may_be_meant() -> None:
    with pytest.raises(ValueError, match=r"'SCRAM-SHA-1': must be a list of PLAIN, .*; did you mean 'SCRAM-SHA-"):
        MECHANISM_LIST.parse("SCRAM-SHA-1")
    with pytest.raises(ValueError, match="must be a list of PLAIN"):
        MECHANISM_LIST.parse({"a": "b"})


def test_words() -> None:
    assert WORD_LIST.parse("kafka, kproxy ,") == ("kafka", "kproxy")
    with pytest.raises(ValueError, match="list of words"):
        WORD_LIST.parse("a\x01")


@pytest.mark.parametrize("url", ["https://issuer.test/keys", "http://127.0.0.1:8080/k", "file:///etc/keys.json"])
def test_a_url_of_keys(url: str) -> None:
    assert KEY_URL.parse(f" {url} ") == url
    assert KEY_URL.parse("off") is None


@pytest.mark.parametrize(
    "url", ["ftp://a/b", "file://host/keys", "file:keys", "https://", "https://u:p@h/k", "keys", "http://[x/k", ["a"]]
)
def test_what_is_no_url_of_keys(url: Any) -> None:
    with pytest.raises(ValueError, match=r"must be https://HOST/PATH|a single value"):
        KEY_URL.parse(url)


FILE = {"sasl_credentials_location": Path("/users")}
KEYS = {"sasl_oauthbearer_jwks_endpoint_url": "file:///keys"}


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({}, None),
        ({"sasl_enabled_mechanisms": ("PLAIN",), **FILE}, None),
        ({"sasl_enabled_mechanisms": ("PLAIN",)}, "'PLAIN' needs sasl.credentials.location"),
        (FILE, "sasl.credentials.location needs one of PLAIN"),
        ({"sasl_enabled_mechanisms": ("OAUTHBEARER",), "sasl_oauthbearer_expected_issuer": "i"}, "endpoint.url: the"),
        ({"sasl_enabled_mechanisms": ("OAUTHBEARER",), **KEYS}, "else a token for any other service would do"),
        (
            {"sasl_enabled_mechanisms": ("OAUTHBEARER",), "sasl_oauthbearer_expected_audience": ("k",), **KEYS},
            None,
        ),
        (KEYS, "needs OAUTHBEARER in sasl.enabled.mechanisms"),
        ({"connection_failed_authentication_delay_ms": 600_000}, "must be less than connections.max.idle.ms = 600000"),
    ],
)
def test_what_goes_together(options: dict[str, Any], why: str | None) -> None:
    lines = list(check_logins(Config(bootstrap_servers=(Address("127.0.0.1", 9092),), **options)))
    assert (not lines) if why is None else (len(lines) == 1 and why in lines[0])
