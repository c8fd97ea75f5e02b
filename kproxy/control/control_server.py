"""The control API's listeners: a Unix socket for this user, a TCP port for requests with the token."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import cache, partial
from typing import TYPE_CHECKING

import trio

from kproxy.config import Address
from kproxy.config.process_options import ControlOptions
from kproxy.control.in_flight import InFlight
from kproxy.control.serving import bind_tcp, serve_app, unix_listener
from kproxy.control.token_file import read_token
from kproxy.control.transaction_control import TransactionControl

if TYPE_CHECKING:
    import socket
    import ssl

    from starlette.routing import Route
    from starlette.types import ASGIApp


def _no_routes() -> "Sequence[Route]":
    return ()


def _count_nowhere(reason: str) -> None:
    """Counts nothing."""


async def serve_control(
    config: ControlOptions,
    control: TransactionControl,
    more: "Callable[[], Sequence[Route]]" = _no_routes,
    refused: Callable[[str], None] = _count_nowhere,
    in_flight: InFlight | None = None,
    tls: "ssl.SSLContext | None" = None,
    *,
    task_status: trio.TaskStatus[Address | None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve until cancelled, with the routes that ``more`` returns; ``in_flight`` counts the requests.

    ``tls``: what control.http encrypts by; None: it does not.

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
                await nursery.start(serve_app, partial(_guarded, api, hosts, needed, refused), sockets, context)
            task_status.started(bound)


def _guarded(
    api: "Callable[[], ASGIApp]", hosts: Address | None, token: bytes | None, refused: Callable[[str], None]
) -> "ASGIApp":
    """The application with the rules of one listener; ``hosts``: Host must name this address; None: any."""
    from kproxy.control.guard import Guard, Rules, by_rules, host_names

    rules = Rules(None if hosts is None else host_names(hosts), token)
    return Guard(api(), by_rules(rules), refused)
