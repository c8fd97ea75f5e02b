"""The control API's listeners: a Unix socket for this user, loopback for who has the token."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

import trio
from starlette.routing import Route

from kproxy.config import Address, Config
from kproxy.control.control_api import make_api
from kproxy.control.guard import Guard, Rules, by_rules, host_names, read_token
from kproxy.control.in_flight import InFlight
from kproxy.control.serving import bind_tcp, serve_app, unix_listener
from kproxy.control.transaction_control import TransactionControl

if TYPE_CHECKING:
    import socket


def _count_nowhere(reason: str) -> None:
    """For who does not want to know."""


async def serve_control(
    config: Config,
    control: TransactionControl,
    more: Sequence[Route] = (),
    refused: Callable[[str], None] = _count_nowhere,
    in_flight: InFlight | None = None,
    *,
    task_status: trio.TaskStatus[Address | None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve until cancelled, ``more`` routes beside those of ``control``; ``in_flight`` counts the requests.

    ``started`` gets the bound TCP address, or None, once all listeners accept connections.

    Returns at once if both listeners are off. StartupError if one can't listen or there is no token.
    """
    served: list[tuple[Rules, list[socket.socket]]] = []
    bound: Address | None = None
    with ExitStack() as stack:
        if config.control_socket is not None:
            listener = stack.enter_context(unix_listener("control.socket", config.control_socket))
            served.append((Rules(hosts=None, token=None), [listener]))
        if config.control_http is not None and config.control_token_file is not None:
            token = read_token(config.control_token_file)
            sockets = await bind_tcp("control.http", config.control_http)
            bound = Address(config.control_http.host, sockets[0].getsockname()[1])
            served.append((Rules(host_names(bound), token), sockets))
        api = (in_flight or InFlight()).watch(make_api(control, more))
        async with trio.open_nursery() as nursery:
            for rules, sockets in served:
                await nursery.start(serve_app, Guard(api, by_rules(rules), refused), sockets)
            task_status.started(bound)
