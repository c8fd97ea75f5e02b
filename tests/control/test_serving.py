import socket
import stat
from pathlib import Path

import pytest
import trio
import trio.testing
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp

from kproxy.config import Address, ExitCode, StartupError
from kproxy.control.serving import bind_tcp, serve_app, unix_listener

OPTION = "control.socket"


def test_the_socket_is_for_this_user_only_and_gone_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "c.sock"
    with unix_listener(OPTION, path) as listener:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))
        assert listener.getsockname() == str(path)
    assert not path.exists()


def test_what_a_killed_one_left_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "c.sock"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    with unix_listener(OPTION, path), socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))


def test_a_living_one_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "c.sock"
    with unix_listener(OPTION, path):
        with pytest.raises(StartupError, match="another process listens there") as caught, unix_listener(OPTION, path):
            pass
        assert caught.value.exit_code == ExitCode.CANNOT_BIND
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))


def test_a_file_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "c.sock"
    path.write_text("precious", encoding="utf-8")
    with pytest.raises(StartupError, match="not a socket"), unix_listener(OPTION, path):
        pass
    assert path.read_text(encoding="utf-8") == "precious"


def test_a_successor_keeps_its_socket(tmp_path: Path) -> None:
    path = tmp_path / "c.sock"
    with unix_listener(OPTION, path):
        path.rename(tmp_path / "old")
        path.touch()
    assert path.exists()


@pytest.mark.parametrize(
    ("name", "advice"),
    [("none/c.sock", "there is no directory"), ("file/c.sock", "is no directory"), ("x" * 120, "choose a shorter one")],
)
def test_a_path_that_cannot_be_ends_the_start_with_advice(tmp_path: Path, name: str, advice: str) -> None:
    (tmp_path / "file").touch()
    error = rf"cannot listen on control\.socket.*; .*{advice}"
    with pytest.raises(StartupError, match=error), unix_listener(OPTION, tmp_path / name):
        pass


async def test_a_tcp_address_in_use_is_named_with_its_option() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = Address("127.0.0.1", taken.getsockname()[1])
        with pytest.raises(StartupError, match=rf"cannot listen on control.http = '{address}'"):
            await bind_tcp("control.http", address)


async def test_an_application_is_built_when_its_first_client_connects() -> None:
    built = 0

    def build() -> ASGIApp:
        nonlocal built
        built += 1
        return PlainTextResponse("served")

    sockets = await bind_tcp("http", Address("127.0.0.1", 0))
    port = sockets[0].getsockname()[1]
    async with trio.open_nursery() as nursery:
        await nursery.start(serve_app, build, sockets)
        await trio.testing.wait_all_tasks_blocked()
        assert built == 0
        for _ in range(2):
            async with await trio.open_tcp_stream("127.0.0.1", port) as client:
                await client.send_all(b"GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
                answer = b"".join([part async for part in client])
            assert answer.startswith(b"HTTP/1.1 200")
            assert answer.endswith(b"served")
        assert built == 1
        nursery.cancel_scope.cancel()


async def test_a_server_that_nobody_asked_closes_its_sockets() -> None:
    sockets = await bind_tcp("http", Address("127.0.0.1", 0))
    async with trio.open_nursery() as nursery:
        await nursery.start(serve_app, lambda: PlainTextResponse("never"), sockets)
        nursery.cancel_scope.cancel()
    assert all(listener.fileno() == -1 for listener in sockets)
