"""Client credentials for a token (RFC 6749, 4.4), as Kafka's own clients ask (KIP-768)."""

import json
import ssl
from base64 import b64encode
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlencode
from urllib.request import Request

import trio

from kproxy.config.secrets import SecretLocation
from kproxy.net.broker_sasl.token_sources import DEFAULT_LIFETIME_SECONDS, Issued
from kproxy.net.http_fetch import MOST_BYTES, fetch

_LONGEST_REASON: Final = 200
_OPTIONS: Final = "upstream.sasl.oauthbearer.client.id and .client.secret.location"


def client_credentials(
    url: str, client_id: str, secret: SecretLocation, scope: str | None, ca: Path | None
) -> Callable[[], Awaitable[Issued]]:
    """A function that requests a token. OSError says what the endpoint answered. ``ca``: trusted, too."""

    def ask() -> Issued:
        return ask_for_token(url, client_id, secret.read(), scope, ca, _OPTIONS)

    async def ask_elsewhere() -> Issued:
        # in a thread, because it blocks; a caller that is cancelled leaves it to its time-out
        return await trio.to_thread.run_sync(ask, abandon_on_cancel=True)

    return ask_elsewhere


def ask_for_token(url: str, client_id: str, secret: str, scope: str | None, ca: Path | None, options: str) -> Issued:
    """The token that the endpoint issues; blocks. OSError says what it answered, and to look at ``options``."""
    request = _request(url, client_id, secret, scope)
    context = ssl.create_default_context()
    if ca is not None:
        context.load_verify_locations(ca)
    try:
        return _issued(url, fetch(request, context))
    except HTTPError as error:
        with error:
            raise OSError(f"{_refusal(url, error.code, error.read(MOST_BYTES))}: see {options}") from None
    except URLError as error:
        raise OSError(f"{url}: {error.reason}") from None


def _request(url: str, client_id: str, secret: str, scope: str | None) -> Request:
    basic = b64encode(f"{quote(client_id, safe='')}:{quote(secret, safe='')}".encode()).decode()
    form = {"grant_type": "client_credentials", **({"scope": scope} if scope else {})}
    headers = {"Authorization": f"Basic {basic}", "Accept": "application/json"}
    return Request(url, urlencode(form).encode(), headers)


def _refusal(url: str, status: int, body: bytes) -> str:
    fields = _fields(body)
    why = str(fields.get("error_description") or fields.get("error") or "no reason given")[:_LONGEST_REASON]
    return f"{url} answered {status} ({why!r})"


def _issued(url: str, body: bytes) -> Issued:
    fields = _fields(body)
    token, lifetime = fields.get("access_token"), fields.get("expires_in")
    if not isinstance(token, str) or not token.isprintable() or not token:
        raise OSError(f"{url} answered without an access_token: is it a token endpoint?")
    if not isinstance(lifetime, int | float) or lifetime <= 0:
        lifetime = DEFAULT_LIFETIME_SECONDS
    return Issued(token, float(lifetime))


def _fields(body: bytes) -> dict[str, Any]:
    try:
        said = json.loads(body)
    except ValueError:
        return {}
    return said if isinstance(said, dict) else {}
