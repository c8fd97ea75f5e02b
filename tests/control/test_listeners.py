import gc
import http.client
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from starlette.types import Receive, Scope, Send

from kproxy.config import Address, Config, StartupError
from kproxy.control.listeners import InFlight, read_token, serve_control
from tests.control.fake_transactions import FakeTransactions

TOKEN = "correct-horse-battery"
LOOPBACK = Address("127.0.0.1", 0)
ALL = "/v1/transactions"


def make_config(tmp_path: Path, **changes: Any) -> Config:
    (tmp_path / "token").write_text(TOKEN, encoding="utf-8")
    options: dict[str, Any] = {
        "control_socket": tmp_path / "c.sock",
        "control_http": LOOPBACK,
        "control_token_file": tmp_path / "token",
    }
    return Config(bootstrap_servers=(Address("kafka", 9092),), **{**options, **changes})


@asynccontextmanager
async def serving(config: Config, control: FakeTransactions) -> AsyncIterator[Address | None]:
    with trio.fail_after(120):
        async with trio.open_nursery() as nursery:
            yield await nursery.start(serve_control, config, control)
            nursery.cancel_scope.cancel()
    gc.collect()


class OverUnix(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=60)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(60)
        self.sock.connect(str(self._path))


async def ask(
    connection: http.client.HTTPConnection, method: str, path: str, body: object = None, **headers: str
) -> tuple[int, Any]:
    def blocking() -> tuple[int, Any]:
        raw = None if body is None else json.dumps(body)
        with closing(connection):
            connection.request(method, path, raw, {"Content-Type": "application/json", **headers})
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())

    return await trio.to_thread.run_sync(blocking)


async def test_over_the_unix_socket(tmp_path: Path) -> None:
    config, control = make_config(tmp_path, control_http=None), FakeTransactions()
    assert config.control_socket is not None
    async with serving(config, control) as address:
        assert address is None
        over = partial(OverUnix, config.control_socket)
        assert (await ask(over(), "POST", ALL, {"client_id": "loader"}))[0] == 201
        status, found = await ask(over(), "POST", f"{ALL}/kproxy-loader/commit", {"batch_id": "7"})
        assert (status, found["state"]) == (200, "CompleteCommit")
        assert (await ask(over(), "GET", ALL, Origin="http://evil.example"))[0] == 403
    assert not config.control_socket.exists()


async def test_over_loopback(tmp_path: Path) -> None:
    control = FakeTransactions()
    async with serving(make_config(tmp_path, control_socket=None), control) as address:
        assert address is not None
        over = partial(http.client.HTTPConnection, address.host, address.port, timeout=60)
        assert (await ask(over(), "POST", ALL, {"client_id": "loader"}))[0] == 401
        assert control.calls == []
        bearer = {"Authorization": f"Bearer {TOKEN}"}
        assert (await ask(over(), "POST", ALL, {"client_id": "loader"}, **bearer))[0] == 201
        assert (await ask(over(), "GET", ALL, Host=f"evil.example:{address.port}", **bearer))[0] == 403
        assert (await ask(over(), "GET", f"{ALL}/a%2Fb", **bearer))[0] == 404
        assert control.calls[-1] == ("describe", "a/b")


async def test_both_at_once(tmp_path: Path) -> None:
    config = make_config(tmp_path)
    async with serving(config, FakeTransactions()) as address:
        assert address is not None
        assert config.control_socket is not None
        assert config.control_socket.exists()


async def test_off_returns_at_once(tmp_path: Path) -> None:
    config = make_config(tmp_path, control_http=None, control_socket=None, control_token_file=None)
    with trio.fail_after(120):
        async with trio.open_nursery() as nursery:
            assert await nursery.start(serve_control, config, FakeTransactions()) is None


async def test_without_a_token_nothing_is_served(tmp_path: Path) -> None:
    config = make_config(tmp_path, control_token_file=tmp_path / "none")
    with pytest.raises(StartupError, match=r"cannot read control.token.file"):
        await serve_control(config, FakeTransactions())
    assert config.control_socket is not None
    assert not config.control_socket.exists()


async def test_a_client_that_goes_does_not_stop_its_commit(tmp_path: Path) -> None:
    config, control = make_config(tmp_path, control_http=None), FakeTransactions(stuck=trio.Event())
    await control.begin(client_id="a", transactional_id="t", timeout_ms=1)
    assert control.stuck is not None
    async with serving(config, control):
        stream = await trio.open_unix_socket(str(config.control_socket))
        body = '{"batch_id": "7"}'
        head = f"Host: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
        await stream.send_all(f"POST {ALL}/t/commit HTTP/1.1\r\n{head}\r\n\r\n{body}".encode())
        while len(control.calls) < 2:
            await trio.lowlevel.checkpoint()
        await stream.aclose()
        control.stuck.set()
        while control.ids["t"].state != "CompleteCommit":
            await trio.lowlevel.checkpoint()


async def test_garbage_harms_no_one(tmp_path: Path) -> None:
    config = make_config(tmp_path, control_http=None)
    async with serving(config, FakeTransactions()):
        for garbage in (b"\x00" * 100 + b"\r\n\r\n", b"GET / HTTP/1.1\r\nA: " + b"x" * 70_000):
            stream = await trio.open_unix_socket(str(config.control_socket))
            async with stream:
                with suppress(trio.BrokenResourceError):  # closed before all was read
                    await stream.send_all(garbage)
                    async for _ in stream:
                        pass
        assert config.control_socket is not None
        assert (await ask(OverUnix(config.control_socket), "GET", ALL))[0] == 200


def test_a_token_may_end_with_a_new_line(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_bytes(TOKEN.encode() + b"\n")
    assert read_token(path) == TOKEN.encode()


@pytest.mark.parametrize("content", [b"", b"\n", b"short", b"x" * 1025, b"two words are not one token", b"\xff" * 20])
def test_what_is_no_token_ends_the_start(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "token"
    path.write_bytes(content)
    with pytest.raises(StartupError, match="must hold 16 to 1024 printable characters"):
        read_token(path)


def test_a_token_file_that_is_not_there_ends_the_start(tmp_path: Path) -> None:
    with pytest.raises(StartupError, match=r"cannot read control.token.file"):
        read_token(tmp_path / "none")


async def nothing() -> dict[str, str]:
    return {}


async def send(message: object) -> None:
    return None


async def test_requests_are_waited_for() -> None:
    in_flight, may_end = InFlight(), trio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await may_end.wait()

    counted = in_flight.watch(app)
    with trio.fail_after(120):
        await in_flight.quiet()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(counted, {"type": "http"}, nothing, send)
            nursery.start_soon(counted, {"type": "lifespan"}, nothing, send)
            await trio.testing.wait_all_tasks_blocked()
            assert in_flight.count == 1
            nursery.start_soon(in_flight.quiet)
            await trio.testing.wait_all_tasks_blocked()
            may_end.set()
        assert in_flight.count == 0


async def test_a_request_that_is_ended_is_answered_unless_its_response_has_begun() -> None:
    in_flight, sent = InFlight(), list[Any]()

    async def send(message: Any) -> None:
        sent.append(message)

    async def waits(scope: Scope, receive: Receive, send: Send) -> None:
        await trio.sleep_forever()

    async def has_begun(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await trio.sleep_forever()

    for app, statuses in ((waits, [503]), (has_begun, [200])):
        sent.clear()
        with trio.fail_after(120):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(in_flight.watch(app), {"type": "http", "method": "POST"}, nothing, send)
                await trio.testing.wait_all_tasks_blocked()
                await in_flight.end()
                assert in_flight.count == 0
        assert [message["status"] for message in sent if "status" in message] == statuses
    await in_flight.end()
