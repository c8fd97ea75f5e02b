"""The control API's listeners: a Unix socket for this user, loopback for requests with the token."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import cache, partial
from typing import TYPE_CHECKING

import trio

from kproxy.config import Address, Config
from kproxy.control.in_flight import InFlight
from kproxy.control.serving import bind_tcp, serve_app, unix_listener
from kproxy.control.token_file import read_token
from kproxy.control.transaction_control import TransactionControl

if TYPE_CHECKING:
    import socket

    from starlette.routing import Route
    from starlette.types import ASGIApp


def _no_routes() -> "Sequence[Route]":
    return ()


def _count_nowhere(reason: str) -> None:
    """Counts nothing."""


async def serve_control(
    config: Config,
    control: TransactionControl,
    more: "Callable[[], Sequence[Route]]" = _no_routes,
    refused: Callable[[str], None] = _count_nowhere,
    in_flight: InFlight | None = None,
    *,
    task_status: trio.TaskStatus[Address | None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve until cancelled, with the routes that ``more`` returns; ``in_flight`` counts the requests.

    ``started`` gets the bound TCP address, or None, once all listeners accept connections.

    Returns at once if both listeners are off. StartupError if one can't listen or there is no token.
    """
    served: list[tuple[Address | None, bytes | None, list[socket.socket]]] = []
    bound: Address | None = None
    with ExitStack() as stack:
        if config.control_socket is not None:
            listener = stack.enter_context(unix_listener("control.socket", config.control_socket))
            served.append((None, None, [listener]))
        if config.control_http is not None and config.control_token_file is not None:
            token = read_token(config.control_token_file)
            sockets = await bind_tcp("control.http", config.control_http)
            bound = Address(config.control_http.host, sockets[0].getsockname()[1])
            served.append((bound, token, sockets))
        counted = in_flight or InFlight()

        @cache
        def api() -> "ASGIApp":
            from kproxy.control.control_api import make_api

            return counted.watch(make_api(control, more()))

        async with trio.open_nursery() as nursery:
            for address, needed, sockets in served:
                await nursery.start(serve_app, partial(_guarded, api, address, needed, refused), sockets)
            task_status.started(bound)


def _guarded(
    api: "Callable[[], ASGIApp]", address: Address | None, token: bytes | None, refused: Callable[[str], None]
) -> "ASGIApp":
    """The application with the rules of one listener; no address: the Unix socket's."""
    from kproxy.control.guard import Guard, Rules, by_rules, host_names

    rules = Rules(None if address is None else host_names(address), token)
    return Guard(api(), by_rules(rules), refused)
