"""TLS and SASL of one blocking connection, by kproxy's own client side of both."""

import base64
import json
import secrets
import ssl
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import unquote, urlsplit

from kproxy.codec.messages import Message
from kproxy.proxy.broker_login.broker_mechanisms import Bearer, Mechanism, Plain
from kproxy.proxy.broker_login.login import Login
from kproxy.proxy.broker_login.scram_client import SaltedPassword, Scram
from kproxy.spark.key_stores import key, trusted
from kproxy.spark.security_options import KEY_PASSWORD, KEYS, TOKEN_URL, TRUST, Sasl, Security
from kproxy.spark.spark_errors import LoginFailed, OptionError

_UNSECURED_SECONDS: Final = 3600.0
_EXTENSION: Final = "extension_"
_CLAIM: Final = "unsecuredLoginStringClaim_"


class TokenGiven(NamedTuple):
    """A token, for how many seconds it is good, and the extensions that go with it (KIP-342)."""

    token: str
    seconds: float
    extensions: dict[str, str]


def tls_context(security: Security) -> ssl.SSLContext:
    """What connections are encrypted by. OptionError names the option that is wrong."""
    from kproxy.net.tls_context import TlsError, TlsFiles, client_context

    own = key(security)
    with tempfile.TemporaryDirectory(prefix="kproxy-tls-") as directory:  # for this user alone, and for this moment
        files = {}
        for name, text in (
            (TRUST, trusted(security.trust) if security.trust is not None else None),
            (KEYS, own.pem if own is not None else None),
            (KEY_PASSWORD, own.password if own is not None else None),
        ):
            if text is not None:
                files[name] = Path(directory, name)
                files[name].write_text(text, encoding="utf-8")
        asked = TlsFiles(files.get(KEYS), None, files.get(KEY_PASSWORD), files.get(TRUST))
        try:
            return client_context(asked, checks_name=security.checks_name)
        except TlsError as error:
            told = str(error).replace(f"{directory}/", "").replace("ssl.key.password.location", KEY_PASSWORD)
            raise OptionError(told) from None


class LogIn:
    """Logs connections in; what SCRAM computes is kept for the next one."""

    def __init__(self, sasl: Sasl) -> None:
        """Nothing is read, and no token asked for, before the first login."""
        self._sasl = sasl
        self._salted = SaltedPassword()

    def __call__(self, ask: Callable[[Message, int], Message], version: int) -> float:
        """Logs in; for how many seconds that lasts, 0: as long as the connection.

        ``ask`` sends a request in a version and returns the response. ``version``: of SaslAuthenticate. LoginFailed.
        """
        who = repr(str(self._sasl.options["username"])) if "username" in self._sasl.options else "the token"
        login = Login(self._mechanism(), who, "kafka.sasl.jaas.config", version, options="kafka")
        asked = login.start()
        while True:
            following = login.answer(ask(asked.request, asked.version))
            if following is None:
                return login.lifetime_ms / 1000
            asked = following

    def _mechanism(self) -> Mechanism:
        name, options = self._sasl.mechanism, self._sasl.options
        if name == "OAUTHBEARER":
            given = token(self._sasl)
            return Bearer(given.token, given.extensions)
        if name == Plain.mechanism:
            return Plain(options["username"], options["password"])
        return Scram(name, options["username"], options["password"], secrets.token_urlsafe(24), self._salted)


def token(sasl: Sasl) -> TokenGiven:
    """A token for OAUTHBEARER, from where the options say. LoginFailed."""
    options, url = sasl.options, sasl.token_url
    extensions = {
        name.removeprefix(_EXTENSION): str(value) for name, value in options.items() if name.startswith(_EXTENSION)
    }
    if url is None:
        claims = {name.removeprefix(_CLAIM): str(value) for name, value in options.items() if name.startswith(_CLAIM)}
        return TokenGiven(_unsecured(claims), _UNSECURED_SECONDS, extensions)
    try:
        if url.startswith("file:"):
            text = Path(unquote(urlsplit(url).path)).read_text(encoding="utf-8").strip()
            return TokenGiven(text, _UNSECURED_SECONDS, extensions)
        from kproxy.net.broker_sasl.token_endpoint import ask_for_token

        issued = ask_for_token(
            url, options["clientId"], options["clientSecret"], options.get("scope"), None, "kafka.sasl.jaas.config"
        )
        return TokenGiven(issued.token, issued.lifetime, extensions)
    except (OSError, UnicodeDecodeError) as error:
        raise LoginFailed(f"{TOKEN_URL}: {error}") from None


def _unsecured(claims: dict[str, str]) -> str:
    """A token that nobody signed (RFC 7515, appendix A.5), for brokers that take such tokens: to try things."""
    now = time.time()
    parts = ({"alg": "none"}, {**claims, "iat": now, "exp": now + _UNSECURED_SECONDS})
    return "".join(base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") + "." for part in parts)
