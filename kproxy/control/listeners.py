"""The HTTP listeners: that of operators, and those of the control API with the token that they ask for.

The control API has a Unix socket for this user, and a TCP port for requests with the token.
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import trio

from kproxy.config import Address, Config, StartupError
from kproxy.config.process_options import ControlOptions
from kproxy.control.fact_source import FactSource
from kproxy.control.serving import bind_tcp, serve_app, unix_listener
from kproxy.control.transaction_control import TransactionControl
from kproxy.proxy.stats import Stats

if TYPE_CHECKING:
    import socket
    import ssl

    from starlette.routing import Route
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

#: For the responses to requests that kproxy ends.
_LAST_SECONDS: Final = 1.0
_TOKEN_LENGTHS: Final = range(16, 1025)


class InFlight:
    """The control API's requests in flight: kproxy exits in the middle of none, and none ends without a response."""

    def __init__(self) -> None:
        self._scopes: set[trio.CancelScope] = set()
        self._changed = trio.lowlevel.ParkingLot()

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self._scopes)

    def watch(self, app: "ASGIApp") -> "ASGIApp":
        async def counted(scope: "Scope", receive: "Receive", send: "Send") -> None:
            if scope["type"] != "http":
                await app(scope, receive, send)
                return
            begun = False

            async def begin(message: "Message") -> None:
                nonlocal begun
                begun = True
                await send(message)

            cancelled = trio.CancelScope()
            self._scopes.add(cancelled)
            try:
                with cancelled:
                    await app(scope, receive, begin)
                if cancelled.cancelled_caught and not begun:
                    await _end_of_kproxy()(scope, receive, send)
            finally:
                self._scopes.remove(cancelled)
                self._changed.unpark_all()

        return counted

    async def quiet(self) -> None:
        """Waits until no request is in flight."""
        while self.count:
            await self._changed.park()

    async def end(self) -> None:
        """Ends the requests in flight: their clients receive 503."""
        for scope in self._scopes:
            scope.cancel()
        with trio.move_on_after(_LAST_SECONDS):
            await self.quiet()


def _end_of_kproxy() -> "ASGIApp":
    """The response to a request that kproxy ends because it stops."""
    from kproxy.codec.messages import ErrorCode
    from kproxy.control.problems import answer, of_error

    why = "kproxy is being stopped; whether this was done is open: ask again after its restart, or another kproxy"
    return answer(of_error(ErrorCode.COORDINATOR_NOT_AVAILABLE, why))


async def serve_control(
    config: ControlOptions,
    control: TransactionControl,
    more: "Callable[[], Sequence[Route]]" = lambda: (),
    refused: Callable[[str], None] = lambda reason: None,
    in_flight: InFlight | None = None,
    tls: "ssl.SSLContext | None" = None,
    closed: Callable[[str], None] = lambda reason: None,
    *,
    task_status: trio.TaskStatus[Address | None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve until cancelled, with the routes that ``more`` returns; ``in_flight`` counts the requests.

    ``tls``: what control.http encrypts by; None: it does not. ``refused`` is called with the reason of each refused
    request, ``closed`` with that of each connection that is refused or ended for others.

    ``started`` gets the bound TCP address, or None, once all listeners accept connections.

    Returns at once if both listeners are off. StartupError if one can't listen or there is no token.
    """
    served: list[tuple[Address | None, bytes | None, list[socket.socket], ssl.SSLContext | None]] = []
    bound: Address | None = None
    with ExitStack() as stack:
        if config.control_socket is not None:
            listener = stack.enter_context(unix_listener("control.socket", config.control_socket))
            served.append((None, None, [listener], None))
        if config.control_http is not None and config.control_token_file is not None:
            token = read_token(config.control_token_file)
            sockets = await bind_tcp("control.http", config.control_http)
            bound = Address(config.control_http.host, sockets[0].getsockname()[1])
            # With TLS any name will do: a browser that a foreign name leads here does not accept the certificate.
            served.append((bound if tls is None else None, token, sockets, tls))
        counted = in_flight or InFlight()

        @cache
        def api() -> "ASGIApp":
            from kproxy.control.control_api import make_api

            return counted.watch(make_api(control, more()))

        async with trio.open_nursery() as nursery:
            for hosts, needed, sockets, context in served:
                build = partial(_guarded, api, hosts, needed, refused)
                await nursery.start(partial(serve_app, build, sockets, context, refused=closed))
            task_status.started(bound)


def _guarded(
    api: "Callable[[], ASGIApp]", hosts: Address | None, token: bytes | None, refused: Callable[[str], None]
) -> "ASGIApp":
    """The application with the rules of one listener; ``hosts``: Host must name this address; None: any."""
    from kproxy.control.guard import Guard, Rules, by_rules, host_names

    rules = Rules(None if hosts is None else host_names(hosts), token)
    return Guard(api(), by_rules(rules), refused)


async def serve_http(
    config: Config,
    stats: Stats,
    facts: FactSource,
    control: TransactionControl,
    *,
    task_status: trio.TaskStatus[Address | None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve /metrics, /healthz, /readyz, the status page and its facts until cancelled.

    ``started`` gets the bound address once connections are accepted (None: HTTP is off).

    Raises StartupError (exit code CANNOT_BIND) if the address is in use or not this host's, or the token can't be read.
    """
    if config.http is None:
        task_status.started(None)
        return
    token = open_token(config)
    sockets = await bind_tcp("http", config.http)
    bound = Address(config.http.host, sockets[0].getsockname()[1])

    def build() -> "ASGIApp":
        from kproxy.control.operator_app import make_app

        return make_app(config, stats, facts, control, token)

    async with trio.open_nursery() as nursery:
        refused = partial(stats.refused.count_http_connection, "http")
        await nursery.start(partial(serve_app, build, sockets, refused=refused))
        task_status.started(bound)


def open_token(config: Config) -> bytes | None:
    """The token of ``control.token.file``; None if no listener asks for one. StartupError."""
    file = config.control_token_file
    return None if file is None or (config.http is None and config.control_http is None) else read_token(file)


def read_token(path: Path) -> bytes:
    """The token in a file. StartupError if it cannot be read, or has not 16 to 1024 printable characters."""
    try:
        token = path.read_bytes().strip()
    except OSError as error:
        raise StartupError(f"cannot read control.token.file = '{path}': {error.strerror}") from None
    if len(token) not in _TOKEN_LENGTHS or not all(0x21 <= byte <= 0x7E for byte in token):
        raise StartupError(f"control.token.file = '{path}' must hold 16 to 1024 printable characters without spaces")
    return token
