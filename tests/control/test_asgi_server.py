import errno
import gc
import logging
import ssl
import weakref
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from starlette.types import ASGIApp, Receive, Scope, Send
from trio.testing import wait_all_tasks_blocked

from kproxy.config import Address
from kproxy.control import asgi_server
from kproxy.control.asgi_server import AsgiServer
from kproxy.control.places import Limits
from kproxy.control.serving import bind_tcp
from kproxy.net.tls_context import server_context
from tests.net.certificates import Authority

GET = b"GET /a%2Fb?c=1 HTTP/1.1\r\nhost: h\r\n\r\n"
ROOM = Limits.of(40)
LAST = GET.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n")
POST = b"POST / HTTP/1.1\r\nhost: h\r\nconnection: close\r\ncontent-length: 5\r\n"


async def respond(send: Send, body: bytes, status: int = 200) -> None:
    headers = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Responds with what came: method, target, and the body up to its end."""
    body, more = b"", True
    while more:
        message = await receive()
        body += message.get("body", b"<gone>")
        more = message.get("more_body", False)
    target = scope["raw_path"] + b" " + scope["path"].encode() + b" " + scope["query_string"]
    await respond(send, scope["method"].encode() + b" " + target + b" " + body)


@asynccontextmanager
async def connected(
    app: ASGIApp, limits: Limits = ROOM, refused: Callable[[str], None] = lambda reason: None
) -> AsyncIterator[trio.SocketStream]:
    """A client's connection to a server of the application."""
    sockets = await bind_tcp("http", Address("127.0.0.1", 0))
    port = sockets[0].getsockname()[1]
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(AsgiServer(app, None, limits, refused).serve, sockets)
            async with await trio.open_tcp_stream("127.0.0.1", port) as client:
                yield client
            nursery.cancel_scope.cancel()
    gc.collect()


async def to_the_end(client: trio.SocketStream) -> bytes:
    return b"".join([bytes(part) async for part in client])


async def test_requests_follow_each_other_on_one_connection() -> None:
    async with connected(echo) as client:
        await client.send_all(GET + GET + LAST)
        answers = await to_the_end(client)
    assert answers.count(b"HTTP/1.1 200") == answers.count(b"GET /a%2Fb /a/b c=1 ") == 3
    assert answers.lower().count(b"\r\ndate: ") == 3


async def test_a_request_whose_body_nobody_reads_does_not_end_the_connection() -> None:
    """Unless there is more of the body than has come."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await respond(send, b"done")

    unread = POST.replace(b"connection: close\r\n", b"") + b"\r\n"
    async with connected(app) as client:
        await client.send_all(GET)
        answer = b""
        while not answer.endswith(b"done"):
            answer += await client.receive_some()
        await client.send_all(GET + unread)
        assert (await to_the_end(client)).count(b"HTTP/1.1 200") == 2


async def test_a_body_in_pieces_is_received_whole() -> None:
    async with connected(echo) as client:
        await client.send_all(POST + b"\r\nab")
        await client.send_all(b"cde")
        assert (await to_the_end(client)).endswith(b" abcde")


async def test_a_client_that_waits_to_send_its_body_is_told_to() -> None:
    async with connected(echo) as client:
        await client.send_all(POST + b"expect: 100-continue\r\n\r\n")
        assert (await client.receive_some()).startswith(b"HTTP/1.1 100")
        await client.send_all(b"abcde")
        assert (await to_the_end(client)).endswith(b" abcde")


async def test_a_body_that_breaks_off_shows_as_disconnected() -> None:
    async with connected(echo) as client:
        await client.send_all(POST + b"\r\nab")
        await client.send_eof()
        assert (await to_the_end(client)).endswith(b" ab<gone>")


async def test_the_response_to_head_has_no_body() -> None:
    async with connected(echo) as client:
        await client.send_all(LAST.replace(b"GET", b"HEAD"))
        answer = await to_the_end(client)
    assert b"content-length: 21" in answer.lower()
    assert answer.endswith(b"\r\n\r\n")


async def test_a_client_that_is_still_sending_receives_the_refusal() -> None:
    async def refuse(scope: Scope, receive: Receive, send: Send) -> None:
        await respond(send, b"too much", 413)

    async with connected(refuse) as client:
        await client.send_all(POST.replace(b" 5", b" 1000000") + b"\r\n" + bytes(1_000_000))
        answer = await to_the_end(client)
    assert answer.startswith(b"HTTP/1.1 413")
    assert answer.endswith(b"too much")


async def test_headers_have_a_limit() -> None:
    async with connected(echo) as client:
        await client.send_all(b"GET / HTTP/1.1\r\nhost: h\r\nx: " + b"x" * 20_000)
        assert (await to_the_end(client)).startswith(b"HTTP/1.1 431")


async def test_a_flaw_in_one_connection_ends_no_other(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(connection: object) -> None:
        raise ValueError("a flaw")

    async with connected(echo) as other:
        port = other.socket.getpeername()[1]
        await wait_all_tasks_blocked(0.05)  # it is served already
        with monkeypatch.context() as flawed:
            flawed.setattr("kproxy.control.asgi_server._Connection.run", fail)
            async with await trio.open_tcp_stream("127.0.0.1", port) as client:
                assert await to_the_end(client) == b""
        await other.send_all(LAST)
        assert b"HTTP/1.1 200" in await to_the_end(other)
    assert [record.levelno for record in caplog.records] == [logging.ERROR]


async def test_a_failure_is_logged_and_answered(caplog: pytest.LogCaptureFixture) -> None:
    async def fail(scope: Scope, receive: Receive, send: Send) -> None:
        raise ValueError("a flaw")

    async with connected(fail) as client:
        await client.send_all(GET)
        assert (await to_the_end(client)).startswith(b"HTTP/1.1 500")
    assert [record.levelno for record in caplog.records] == [logging.ERROR]


@pytest.mark.parametrize(("sent", "reasons"), [(GET[:20], ["slow_head"]), (b"", []), (GET, [])])
async def test_a_connection_without_a_whole_request_ends(
    sent: bytes, reasons: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kproxy.control.asgi_server._IDLE_SECONDS", 0.01)
    refused: list[str] = []
    async with connected(echo, refused=refused.append) as client:
        await client.send_all(sent)
        assert (await to_the_end(client)).count(b"HTTP/1.1 200") == (sent == GET)
    assert refused == reasons


async def test_of_half_open_connections_the_oldest_gives_way_to_a_new_one() -> None:
    refused: list[str] = []
    async with connected(echo, Limits(4, 4), refused.append) as first, AsyncExitStack() as stack:
        port = first.socket.getpeername()[1]
        await first.send_all(GET[:20])
        opened = [first]
        for _ in range(7):
            client = await stack.enter_async_context(await trio.open_tcp_stream("127.0.0.1", port))
            await client.send_all(GET[:20])
            opened.append(client)
            await wait_until(lambda: len(refused) == max(len(opened) - 4, 0))
        for client in opened[:4]:
            assert await to_the_end(client) == b""
        for client in opened[4:]:
            await client.send_all(LAST[20:])
            assert b"HTTP/1.1 200" in await to_the_end(client)
    assert refused == ["evicted"] * 4


async def test_an_address_has_its_limit_and_a_request_at_work_is_not_ended() -> None:
    refused: list[str] = []
    go_on = trio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await go_on.wait()
        await respond(send, b"done")

    async with connected(app, Limits(10, 1), refused.append) as first:
        await first.send_all(LAST)
        await wait_all_tasks_blocked(0.05)
        port = first.socket.getpeername()[1]
        async with await trio.open_tcp_stream("127.0.0.1", port) as second:
            assert await to_the_end(second) == b""
        go_on.set()
        assert (await to_the_end(first)).endswith(b"done")
    assert refused == ["max_connections_per_ip"]


async def test_a_system_without_files_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    refused: list[str] = []
    left = [OSError(errno.EMFILE, "Too many open files")]
    accept = trio.SocketListener.accept

    async def failing(listener: trio.SocketListener) -> trio.SocketStream:
        if left:
            raise left.pop()
        return await accept(listener)

    monkeypatch.setattr(trio.SocketListener, "accept", failing)
    monkeypatch.setattr(asgi_server, "_ACCEPT_PAUSE_SECONDS", 0.01)
    async with connected(echo, refused=refused.append) as client:
        await client.send_all(LAST)
        assert b"HTTP/1.1 200" in await to_the_end(client)
    assert refused == ["accept"]


async def wait_until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - a list has no event
        await trio.sleep(0.001)


@pytest.mark.parametrize("request_", [POST + b"\r\nab", GET], ids=["of a body", "of a response"])
async def test_a_client_that_stalls_is_taken_for_gone(
    request_: bytes, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(asgi_server, "_STALL_SECONDS", 0.05)
    ended = trio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            while (await receive()).get("more_body"):
                pass
            await respond(send, bytes(50_000_000))
        finally:
            ended.set()

    async with connected(app) as client:
        await client.send_all(request_)
        await ended.wait()
    assert not caplog.records


async def test_an_application_that_awaits_the_end_of_its_client_has_time_to_respond() -> None:
    """Starlette does so while it streams a response."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(listen, receive, nursery.cancel_scope)
            await trio.lowlevel.checkpoint()
            await trio.lowlevel.checkpoint()
            await respond(send, b"all of it")

    async def listen(receive: Receive, scope: trio.CancelScope) -> None:
        assert (await receive())["type"] == "http.disconnect"
        scope.cancel()

    async with connected(app) as client:
        await client.send_all(LAST)
        assert (await to_the_end(client)).endswith(b"all of it")


async def test_what_tls_takes_is_freed_when_a_connection_ends(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    files = authority.issue("localhost")
    context = server_context(files, "none")
    seen: list[weakref.ref[Any]] = []

    def note(connection: Any, name: str | None, of: ssl.SSLContext) -> None:
        seen.append(weakref.ref(connection))

    context.sni_callback = note
    sockets = await bind_tcp("http", Address("127.0.0.1", 0))
    port = sockets[0].getsockname()[1]
    trusted = ssl.create_default_context(cafile=authority.ca)
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(AsgiServer(echo, context, ROOM, lambda reason: None).serve, sockets)
            gc.disable()  # else it may be just the collector that frees it
            try:
                plain = await trio.open_tcp_stream("127.0.0.1", port)
                client = trio.SSLStream(plain, trusted, server_hostname="localhost", https_compatible=True)
                await client.send_all(LAST)
                assert (await client.receive_some()).startswith(b"HTTP/1.1 200")
                await trio.aclose_forcefully(client)
                await wait_until(lambda: [each() for each in seen] == [None])
            finally:
                gc.enable()
            nursery.cancel_scope.cancel()
    gc.collect()
