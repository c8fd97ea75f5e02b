"""Requests to an ASGI application without sockets."""

import json
from collections.abc import Iterable
from typing import Any, NamedTuple
from urllib.parse import unquote

import trio
from starlette.types import ASGIApp, Message

Headers = Iterable[tuple[str, str]]
JSON = ("content-type", "application/json")


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> str:
        assert self.headers["content-type"] == "application/problem+json"
        return str(self.json["title"])


async def call(
    app: ASGIApp, method: str, target: str, headers: Headers = (), body: bytes = b"", parts: Iterable[Message] = ()
) -> Answer:
    """``parts`` are received in place of ``body``; nothing more follows them."""
    path, _, query = target.partition("?")
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": unquote(path),
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [(name.lower().encode(), value.encode()) for name, value in headers],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 2),
    }
    received = list(parts) or [{"type": "http.request", "body": body, "more_body": False}]
    sent: list[Message] = []

    async def receive() -> Message:
        if not received:
            await trio.sleep_forever()
        return received.pop(0)

    async def send(message: Message) -> None:
        sent.append(message)

    await app(scope, receive, send)
    start = sent[0]
    content = b"".join(message["body"] for message in sent[1:])
    return Answer(start["status"], {name.decode(): value.decode() for name, value in start["headers"]}, content)


async def post(app: ASGIApp, target: str, body: object = None, headers: Headers = ()) -> Answer:
    raw = b"" if body is None else json.dumps(body).encode()
    return await call(app, "POST", target, [JSON, *headers], raw)
