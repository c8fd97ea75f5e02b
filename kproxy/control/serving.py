"""Sockets to listen on, and the HTTP server behind them."""

import errno
import logging
import socket
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

import trio
from hypercorn.config import Config as ServerConfig
from hypercorn.trio import serve
from starlette.types import ASGIApp

from kproxy.config import Address, ExitCode, StartupError

if TYPE_CHECKING:
    from hypercorn.typing import ASGIFramework

_SHUTDOWN_SECONDS: Final = 1.0
_BACKLOG: Final = 100
#: Nobody else may connect: who can write into the file decides transactions.
_SOCKET_MODE: Final = 0o600


async def serve_app(
    app: ASGIApp,
    sockets: Sequence[socket.socket],
    *,
    task_status: trio.TaskStatus[list[str]] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve until cancelled; takes the listening sockets over."""
    server = ServerConfig()
    server.bind = [f"fd://{listener.detach()}" for listener in sockets]
    server.include_server_header = False
    server.graceful_timeout = _SHUTDOWN_SECONDS
    server.errorlog = _quiet_log()
    # Starlette and hypercorn name the types of ASGI differently; they are the same at run time.
    await serve(cast("ASGIFramework", app), server, task_status=task_status)


async def bind_tcp(option: str, address: Address) -> list[socket.socket]:
    """Listens at an address; StartupError, with the option's name, if it is in use or not this host's."""
    try:
        listeners = await trio.open_tcp_listeners(address.port, host=address.host)
    except OSError as error:
        raise _cannot_listen(option, address, error.strerror) from None
    return [socket.socket(fileno=listener.socket.detach()) for listener in listeners]


@contextmanager
def unix_listener(option: str, path: Path, kind: int = socket.SOCK_STREAM) -> Iterator[socket.socket]:
    """Listens at a path, for this user only, and removes it at the end. ``kind`` of socket: stream or seqpacket.

    What a killed kproxy left there is replaced; StartupError if a living one listens, or something else is there.
    """
    listener = socket.socket(socket.AF_UNIX, kind)
    with listener:
        try:
            _clear_away(option, path)
            listener.bind(str(path))
            # Before it listens, so that at no moment somebody else can connect.
            path.chmod(_SOCKET_MODE)
            inode = path.stat().st_ino
            listener.listen(_BACKLOG)
        except OSError as error:
            raise _cannot_listen(option, path, error.strerror or str(error)) from None
        try:
            yield listener
        finally:
            with suppress(OSError):
                if path.stat().st_ino == inode:
                    path.unlink()


def _clear_away(option: str, path: Path) -> None:
    try:
        if not stat.S_ISSOCK(path.stat().st_mode):
            raise _cannot_listen(option, path, "a file that is no socket is there")
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        # A living one whose queue is full must not be waited for.
        probe.setblocking(False)
        result = probe.connect_ex(str(path))
    if result != errno.ECONNREFUSED:
        raise _cannot_listen(option, path, "another process listens there")
    path.unlink()


def _cannot_listen(option: str, where: Address | Path, why: str | None) -> StartupError:
    return StartupError(f"cannot listen on {option} = '{where}': {why}", ExitCode.CANNOT_BIND)


def _quiet_log() -> logging.Logger:
    log = logging.getLogger("http")
    log.setLevel(logging.WARNING)
    return log
