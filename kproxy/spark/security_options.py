"""Options of TLS and SASL as Kafka's Java client, and so Spark's own connector, spells them; for source and sink."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from kproxy.spark.spark_errors import OptionError

_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
_STORE_TYPES: Final = ("JKS", "PKCS12", "PEM")
_MODULES: Final = MappingProxyType(
    {
        "PLAIN": "PlainLoginModule",
        "SCRAM-SHA-256": "ScramLoginModule",
        "SCRAM-SHA-512": "ScramLoginModule",
        "OAUTHBEARER": "OAuthBearerLoginModule",
    }
)
_JAAS_FORM: Final = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="..." password="...";'
_JAAS: Final = re.compile(r"\s*(?P<module>[\w.$]+)\s+(?:required|requisite|sufficient|optional)\b(?P<rest>.*)", re.S)
_JAAS_OPTION: Final = re.compile(r"""\s*([\w.\-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s;"']+))""")

PROTOCOL: Final = "kafka.security.protocol"
TRUST: Final = "kafka.ssl.truststore"
KEYS: Final = "kafka.ssl.keystore"
KEY_PASSWORD: Final = "kafka.ssl.key.password"
_CHECKS_NAME: Final = "kafka.ssl.endpoint.identification.algorithm"
_MECHANISM: Final = "kafka.sasl.mechanism"
_JAAS_NAME: Final = "kafka.sasl.jaas.config"
_HANDLER: Final = "kafka.sasl.login.callback.handler.class"
TOKEN_URL: Final = "kafka.sasl.oauthbearer.token.endpoint.url"
_OAUTH: Final = "kafka.sasl.oauthbearer"
#: KIP-1139's, which go before those of the JAAS configuration.
_OAUTH_CLIENT: Final = MappingProxyType(
    {
        f"{_OAUTH}.client.credentials.client.id": "clientId",
        f"{_OAUTH}.client.credentials.client.secret": "clientSecret",
        f"{_OAUTH}.scope": "scope",
    }
)
NAMES: Final = (
    PROTOCOL,
    f"{TRUST}.location",
    f"{TRUST}.password",
    f"{TRUST}.type",
    f"{TRUST}.certificates",
    f"{KEYS}.location",
    f"{KEYS}.password",
    f"{KEYS}.type",
    f"{KEYS}.certificate.chain",
    f"{KEYS}.key",
    KEY_PASSWORD,
    _CHECKS_NAME,
    _MECHANISM,
    _JAAS_NAME,
    _HANDLER,
    TOKEN_URL,
    *_OAUTH_CLIENT,
)
"""All of them."""


class Secret(str):
    """A text that no log line, error or plan shows by its ``repr``."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "'*****'"


@dataclass(frozen=True, slots=True)
class Store:
    """Certificates or a key: a file that each node has (PEM, PKCS12 or JKS), or PEM text."""

    name: str
    location: str | None = None
    text: Secret | None = None
    password: Secret | None = None


@dataclass(frozen=True, slots=True)
class Sasl:
    """How to log in; ``options`` are those of the JAAS configuration."""

    mechanism: str
    options: Mapping[str, Secret] = field(default_factory=dict)
    token_url: str | None = None


@dataclass(frozen=True, slots=True)
class Security:
    """How connections to the brokers are protected, and the login."""

    is_tls: bool = False
    checks_name: bool = True
    trust: Store | None = None
    keys: Store | None = None
    key_password: Secret | None = None
    sasl: Sasl | None = None

    @property
    def protocol(self) -> str:
        return ("SASL_" if self.sasl else "") + ("SSL" if self.is_tls else "PLAINTEXT")


PLAIN_TEXT: Final = Security()


def security(options: Mapping[str, str]) -> Security:
    """The security that options, in any case, ask for; others are not looked at. OptionError."""
    lower = {name.lower(): value for name, value in options.items()}
    given = {name: lower[name] for name in NAMES if name in lower}
    protocol = _one_of(given, PROTOCOL, _PROTOCOLS, "PLAINTEXT")
    is_tls, is_sasl = protocol.endswith("SSL"), protocol.startswith("SASL")
    _check_used(given, is_tls=is_tls, is_sasl=is_sasl, protocol=protocol)
    algorithm = given.get(_CHECKS_NAME, "https").strip().lower()
    if algorithm not in ("https", ""):
        raise OptionError(f"{_CHECKS_NAME}: {algorithm!r} is not valid; valid: https, or nothing for no check")
    return Security(
        is_tls=is_tls,
        checks_name=algorithm == "https",
        trust=_store(given, TRUST, "certificates"),
        keys=_store(given, KEYS, "key"),
        key_password=_secret(given, KEY_PASSWORD),
        sasl=_sasl(given) if is_sasl else None,
    )


def _check_used(given: Mapping[str, str], *, is_tls: bool, is_sasl: bool, protocol: str) -> None:
    """An option that would do nothing is a mistake, most often a protocol that was forgotten."""
    for name in given:
        unused = (name.startswith("kafka.ssl.") and not is_tls) or (name.startswith("kafka.sasl.") and not is_sasl)
        if unused:
            valid = "SSL or SASL_SSL" if name.startswith("kafka.ssl.") else "SASL_SSL or SASL_PLAINTEXT"
            raise OptionError(f"{name}: has no effect with {PROTOCOL} {protocol}; set that to {valid}")


def _one_of(given: Mapping[str, str], name: str, words: tuple[str, ...], default: str | None) -> str:
    text = given.get(name, default)
    if text is None:
        raise OptionError(f"{name}: is needed; valid: {', '.join(words)}")
    found = text.strip().upper()
    if found not in words:
        why = "; Kerberos is not supported" if found == "GSSAPI" else ""
        raise OptionError(f"{name}: {text!r} is not valid{why}; valid: {', '.join(words)}")
    return found


def _secret(given: Mapping[str, str], name: str) -> Secret | None:
    return Secret(given[name]) if given.get(name) else None


def _store(given: Mapping[str, str], name: str, inline: str) -> Store | None:
    location, text = given.get(f"{name}.location"), given.get(f"{name}.{inline}")
    if f"{name}.type" in given:
        _one_of(given, f"{name}.type", _STORE_TYPES, None)
    if location and text:
        raise OptionError(f"{name}.{inline}: give it or {name}.location, not both")
    if text:
        whole = "\n".join(filter(None, (text, given.get(f"{name}.certificate.chain"))))
        return Store(name, text=Secret(whole), password=_secret(given, f"{name}.password"))
    return Store(name, location, password=_secret(given, f"{name}.password")) if location else None


def _sasl(given: Mapping[str, str]) -> Sasl:
    mechanism = _one_of(given, _MECHANISM, _MECHANISMS, None)
    module, options = _jaas(given.get(_JAAS_NAME, ""))
    by_option = {key: Secret(given[name]) for name, key in _OAUTH_CLIENT.items() if given.get(name)}
    if module is None and not (mechanism == "OAUTHBEARER" and (by_option or TOKEN_URL in given)):
        raise OptionError(f"{_JAAS_NAME}: is needed; valid: {_JAAS_FORM}")
    if module is not None and not module.endswith(_MODULES[mechanism]):
        raise OptionError(f"{_JAAS_NAME}: {module} is not for {mechanism}; valid: {_MODULES[mechanism]}")
    handler = given.get(_HANDLER, "")
    if handler and not handler.endswith("OAuthBearerLoginCallbackHandler"):
        raise OptionError(
            f"{_HANDLER}: {handler!r} is a Java class, which this source and sink cannot run: leave it out"
        )
    found = Sasl(mechanism, {**options, **by_option}, given.get(TOKEN_URL))
    _check_complete(found)
    return found


def _check_complete(sasl: Sasl) -> None:
    needed: tuple[str, ...] = ("username", "password")
    if sasl.mechanism == "OAUTHBEARER":
        unsecured = any(name.startswith("unsecuredLogin") for name in sasl.options)
        if sasl.token_url is None and not unsecured:
            raise OptionError(f"{TOKEN_URL}: is needed, an address that issues tokens, or file:///PATH of a token")
        asks = sasl.token_url is not None and not sasl.token_url.startswith("file:")
        needed = ("clientId", "clientSecret") if asks else ()
    missing = [name for name in needed if not sasl.options.get(name)]
    if missing:
        raise OptionError(f"{_JAAS_NAME}: lacks {' and '.join(missing)}; valid: {_JAAS_FORM}")


def _jaas(text: str) -> tuple[str | None, dict[str, Secret]]:
    """The login module of a JAAS configuration, and its options; errors show nothing of it."""
    if not text.strip():
        return None, {}
    match = _JAAS.fullmatch(text)
    rest = match["rest"].strip() if match else ""
    if match is None or not rest.endswith(";"):
        raise OptionError(f"{_JAAS_NAME}: is no JAAS configuration that ends with a semicolon; valid: {_JAAS_FORM}")
    found: dict[str, Secret] = {}
    rest = rest[:-1].strip()
    while rest:
        option = _JAAS_OPTION.match(rest)
        if option is None:
            raise OptionError(f'{_JAAS_NAME}: its options must be name="value"; valid: {_JAAS_FORM}')
        value = next(part for part in option.groups()[1:] if part is not None)
        found[option[1]] = Secret(re.sub(r"\\(.)", r"\1", value))
        rest = rest[option.end() :].strip()
    return match["module"], found
