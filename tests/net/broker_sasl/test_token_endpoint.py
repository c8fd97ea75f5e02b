"""Client credentials, asked for over HTTP on loopback."""

import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from urllib.parse import parse_qs

import pytest
import trio

from kproxy.config.secrets import SecretLocation
from kproxy.net.broker_sasl.token_endpoint import client_credentials
from kproxy.net.broker_sasl.token_sources import DEFAULT_LIFETIME_SECONDS, Issued

SAID = json.dumps({"access_token": "t0ken", "expires_in": 60})


@pytest.fixture
def secret(tmp_path: Path) -> SecretLocation:
    (tmp_path / "secret").write_text("a:b/c")
    return SecretLocation(path=tmp_path / "secret")


@asynccontextmanager
async def endpoint(body: str, status: str = "200 OK") -> AsyncIterator[tuple[str, list[bytes]]]:
    """Answers everything so; its URL, and what it was asked."""
    asked: list[bytes] = []

    async def serve(stream: trio.SocketStream) -> None:
        data = b""
        while b"grant_type" not in data:
            data += await stream.receive_some()
        asked.append(data)
        head = f"HTTP/1.1 {status}\r\nContent-Length: {len(body.encode())}\r\nConnection: close\r\n\r\n"
        with suppress(trio.BrokenResourceError):  # who has read enough hangs up
            await stream.send_all(head.encode() + body.encode())
        await stream.aclose()

    async with trio.open_nursery() as nursery:
        (listener,) = await nursery.start(partial(trio.serve_tcp, serve, 0, host="127.0.0.1"))
        yield f"http://127.0.0.1:{listener.socket.getsockname()[1]}/token", asked
        nursery.cancel_scope.cancel()


async def test_a_token_for_client_credentials(secret: SecretLocation) -> None:
    async with endpoint(SAID) as (url, asked):
        assert await client_credentials(url, "kproxy 1", secret, "kafka", None)() == Issued("t0ken", 60.0)
        head, _, body = asked[0].partition(b"\r\n\r\n")
    assert parse_qs(body.decode()) == {"grant_type": ["client_credentials"], "scope": ["kafka"]}
    basic = next(line for line in head.decode().splitlines() if line.lower().startswith("authorization:"))
    assert base64.b64decode(basic.rpartition(" ")[2]) == b"kproxy%201:a%3Ab%2Fc"


@pytest.mark.parametrize("expires", ["", ', "expires_in": "soon"', ', "expires_in": -1'])
async def test_a_token_of_unknown_life_is_renewed_soon(secret: SecretLocation, expires: str) -> None:
    async with endpoint('{"access_token": "t"' + expires + "}") as (url, _):
        issued = await client_credentials(url, "kproxy", secret, None, None)()
    assert issued == Issued("t", DEFAULT_LIFETIME_SECONDS)


@pytest.mark.parametrize(
    ("body", "status", "text"),
    [
        ('{"error": "invalid_client"}', "401 Unauthorized", r"answered 401 \('invalid_client'\): see .*client\.id"),
        ("<html>", "404 Not Found", r"answered 404 \('no reason given'\)"),
        ("<html>", "200 OK", "without an access_token: is it a token endpoint"),
        ('{"access_token": "a\\nb"}', "200 OK", "without an access_token"),
        ("[]", "200 OK", "without an access_token"),
        ("x" * 2_000_000, "200 OK", "without an access_token"),
        ("", "???", r"/token: BadStatusLine: the response is not HTTP"),
    ],
)
async def test_the_error_when_there_is_none(secret: SecretLocation, body: str, status: str, text: str) -> None:
    async with endpoint(body, status) as (url, _):
        with pytest.raises(OSError, match=text) as told:
            await client_credentials(url, "kproxy", secret, None, None)()
    assert "a:b/c" not in str(told.value)


async def test_nobody_there(secret: SecretLocation) -> None:
    with pytest.raises(OSError, match=r"http://127.0.0.1:1/token: "):
        await client_credentials("http://127.0.0.1:1/token", "kproxy", secret, None, None)()
