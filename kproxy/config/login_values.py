"""Values of the options of clients' logins, and the rules between them."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from kproxy.config.values import Kind, Raw, optional, split_url, suggest, words
from kproxy.proxy.client_login.client_mechanisms import MECHANISMS
from kproxy.proxy.client_login.stored_credentials import SCRAM_HASHES

if TYPE_CHECKING:
    from kproxy.config.model import Config

_OFF: Final = ("off", "none", "false")
#: The mechanisms whose users are listed in the file of credentials.
_OF_FILE: Final = ("PLAIN", *SCRAM_HASHES)
_SCHEMES: Final = ("https", "http", "file")


def _words(raw: Raw, wanted: str) -> tuple[str, ...]:
    found = words("" if isinstance(raw, str) and raw.strip().lower() in _OFF else raw, wanted)
    if not all(word.isprintable() for word in found):
        raise ValueError(wanted)
    return tuple(dict.fromkeys(found))


def _parse_mechanisms(raw: Raw) -> tuple[str, ...]:
    valid = f"must be a list of {', '.join(MECHANISMS)}, or off"
    names = [word.upper() for word in _words(raw, valid)]
    for name in names:
        if name not in MECHANISMS:
            raise ValueError(f"{name!r}: {valid}{suggest(name, MECHANISMS)}")
    return tuple(dict.fromkeys(names))


def _parse_list(raw: Raw) -> tuple[str, ...]:
    return _words(raw, "must be a list of words, joined by commas")


def _parse_key_url(text: str) -> str:
    wanted = "must be https://HOST/PATH, http://HOST/PATH, file:///PATH or off"
    url = split_url(text, wanted)
    whole = url.path.startswith("/") and not url.netloc if url.scheme == "file" else url.hostname
    if url.scheme not in _SCHEMES or not whole:
        raise ValueError(wanted)
    return text


MECHANISM_LIST = Kind(f"list of {', '.join(MECHANISMS)}; or off", _parse_mechanisms, "LIST")
WORD_LIST = Kind("list of words", _parse_list, "LIST")
KEY_URL = optional("https, http or file URL, or off", _parse_key_url, "URL")


def check_logins(config: "Config") -> Iterator[str]:
    """One line for each rule that is broken."""
    enabled = config.sasl_enabled_mechanisms
    shown = f"sasl.enabled.mechanisms = '{','.join(enabled)}'"
    if enabled and config.clients_log_in:
        yield f"{shown} and upstream.sasl.identity = 'client' exclude each other: clients log in here or at the broker"
    if set(enabled) & set(_OF_FILE) and config.sasl_credentials_location is None:
        yield f"{shown} needs sasl.credentials.location, a file made with 'kproxy credentials add'"
    if config.sasl_credentials_location is not None and not set(enabled) & set(_OF_FILE):
        yield f"sasl.credentials.location needs one of {', '.join(_OF_FILE)} in sasl.enabled.mechanisms"
    if "OAUTHBEARER" in enabled:
        if config.sasl_oauthbearer_jwks_endpoint_url is None:
            yield f"{shown} needs sasl.oauthbearer.jwks.endpoint.url: the keys of those who issue tokens"
        if not config.sasl_oauthbearer_expected_audience and not config.sasl_oauthbearer_expected_issuer:
            names = "sasl.oauthbearer.expected.audience or sasl.oauthbearer.expected.issuer"
            yield f"{shown} needs {names}: else a token for any other service would do"
    elif config.sasl_oauthbearer_jwks_endpoint_url is not None:
        yield "sasl.oauthbearer.jwks.endpoint.url needs OAUTHBEARER in sasl.enabled.mechanisms"
    if config.connection_failed_authentication_delay_ms >= config.connections_max_idle_ms:
        delay, idle = config.connection_failed_authentication_delay_ms, config.connections_max_idle_ms
        yield f"connection.failed.authentication.delay.ms = {delay} must be less than connections.max.idle.ms = {idle}"
