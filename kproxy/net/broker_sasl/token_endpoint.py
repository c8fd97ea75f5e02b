"""Client credentials for a token (RFC 6749, 4.4), as Kafka's own clients ask (KIP-768)."""

import json
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import httpx

from kproxy.config.secrets import SecretLocation
from kproxy.net.broker_sasl.tokens import DEFAULT_LIFETIME_SECONDS, Issued

#: More than any token.
_MOST_BYTES: Final = 1 << 20
_LONGEST_REASON: Final = 200


def client_credentials(
    url: str, client_id: str, secret: SecretLocation, scope: str | None, ca: Path | None
) -> Callable[[], Awaitable[Issued]]:
    """What asks the endpoint for a token; OSError says what it answered. ``ca``: trusted beside the system's."""

    async def ask() -> Issued:
        context = ssl.create_default_context()
        if ca is not None:
            context.load_verify_locations(ca)
        basic = httpx.BasicAuth(quote(client_id, safe=""), quote(secret.read(), safe=""))
        form = {"grant_type": "client_credentials", **({"scope": scope} if scope else {})}
        try:
            async with (
                httpx.AsyncClient(verify=context, timeout=None) as client,
                client.stream("POST", url, data=form, auth=basic, headers={"accept": "application/json"}) as answer,
            ):
                return _issued(url, answer.status_code, await _body(answer))
        except httpx.HTTPError as error:
            raise OSError(f"{url}: {error or type(error).__name__}") from None

    return ask


async def _body(answer: httpx.Response) -> bytes:
    body = b""
    async for chunk in answer.aiter_bytes():
        body += chunk
        if len(body) > _MOST_BYTES:
            raise OSError(f"{answer.url} answers without an end: is it a token endpoint?")
    return body


def _issued(url: str, status: int, body: bytes) -> Issued:
    fields = _fields(body)
    if status != httpx.codes.OK:
        why = fields.get("error_description") or fields.get("error") or "no reason given"
        raise OSError(
            f"{url} answered {status} ({str(why)[:_LONGEST_REASON]!r}): see upstream.sasl.oauthbearer.client.id and "
            f".client.secret.location"
        )
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
