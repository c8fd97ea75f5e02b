"""Listening sockets and their HTTP server, which is imported when its first client connects."""

import socket
import ssl
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import aclosing, contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import trio

from kproxy.config import Address, cannot_listen
from kproxy.config.os_limits import http_connections
from kproxy.control.addresses_in_use import is_listening
from kproxy.control.places import Limits
from kproxy.heap import trim

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import ASGIApp

_BACKLOG: Final = 100
#: What the HTTP server and the pages import; each takes 10 to 40 ms.
_PARTS: Final = (
    "h11",
    "starlette.applications",
    "prometheus_client",
    "kproxy.control.control_api",
)
#: Nobody else may connect: a process that can write to the socket decides transactions.
_SOCKET_MODE: Final = 0o600


class Body(NamedTuple):
    """What was read of a request's body."""

    data: bytes
    is_too_long: bool = False
    #: It had not ended in time.
    is_late: bool = False


async def read_bounded(
    request: "Request", most_bytes: int, seconds: float, received: Callable[[int], None] = lambda size: None
) -> Body:
    """The body, as far as it came in ``seconds``; no more of it is read once it is longer than ``most_bytes``.

    Nothing is read of a body that announces more. ``received`` is called with the number of bytes of each part.
    """
    announced = request.headers.get("content-length", "")
    if announced.isdecimal() and int(announced) > most_bytes:
        return Body(b"", is_too_long=True)
    data = bytearray()
    with trio.move_on_after(seconds) as scope:
        async with aclosing(request.stream()) as parts:
            async for part in parts:
                data += part
                received(len(part))
                if len(data) > most_bytes:
                    return Body(b"", is_too_long=True)
    return Body(bytes(data), is_late=scope.cancelled_caught)


async def serve_app(
    build: "Callable[[], ASGIApp]",
    sockets: Sequence[socket.socket],
    tls: ssl.SSLContext | None = None,
    *,
    limits: Limits | None = None,
    refused: Callable[[str], None] = lambda reason: None,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve the application that ``build`` returns until cancelled; takes the listening sockets over.

    ``tls``: what connections are encrypted by; None: they are not. ``limits``: None: as many connections as a page for
    operators needs. ``refused`` is called with the reason whenever a connection is refused or ended for others.

    The HTTP server is imported, and ``build`` is called, when the first client connects: a kproxy that nobody asks
    does not pay for them.
    """
    task_status.started()
    try:
        await _first_client(sockets)
        await _import_in_parts()
        from kproxy.control.asgi_server import AsgiServer

        server = AsgiServer(build(), tls, limits or Limits.of(http_connections()), refused)
        trim()  # imports free much of what they allocate
        await server.serve(sockets)
    finally:
        for listener in sockets:
            listener.close()


async def _first_client(sockets: Sequence[socket.socket]) -> None:
    async with trio.open_nursery() as nursery:

        async def wait(listener: socket.socket) -> None:
            await trio.lowlevel.wait_readable(listener)
            nursery.cancel_scope.cancel()

        for listener in sockets:
            nursery.start_soon(wait, listener)


async def _import_in_parts() -> None:
    """Other tasks run between the parts."""
    for module in _PARTS:
        import_module(module)
        await trio.lowlevel.checkpoint()


async def bind_tcp(option: str, address: Address) -> list[socket.socket]:
    """Listens at an address; StartupError, with the option's name, if it is in use or not this host's."""
    try:
        listeners = await trio.open_tcp_listeners(address.port, host=address.host or None)
    except OSError as error:
        raise cannot_listen(option, address, error) from None
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
            raise cannot_listen(option, path, error) from None
        try:
            yield listener
        finally:
            with suppress(OSError):
                if path.stat().st_ino == inode:
                    path.unlink()


def _clear_away(option: str, path: Path) -> None:
    try:
        if not stat.S_ISSOCK(path.stat().st_mode):
            raise cannot_listen(option, path, "a file that is not a socket has this name")
    except FileNotFoundError:
        return
    if is_listening(path):
        raise cannot_listen(option, path, "another process listens there")
    path.unlink()
