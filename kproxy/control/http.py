"""The HTTP listener of operators: /metrics, /healthz, /readyz, the status page and its facts."""

from typing import TYPE_CHECKING

import trio

from kproxy.config import Address, Config
from kproxy.control.fact_source import FactSource
from kproxy.control.serving import bind_tcp, serve_app
from kproxy.control.token_file import open_token
from kproxy.control.transaction_control import TransactionControl
from kproxy.proxy.stats import Stats

if TYPE_CHECKING:
    from starlette.types import ASGIApp


async def serve_http(
    config: Config,
    stats: Stats,
    facts: FactSource,
    control: TransactionControl,
    *,
    task_status: trio.TaskStatus[Address | None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve until cancelled; ``started`` gets the bound address once connections are accepted (None: HTTP is off).

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
        await nursery.start(serve_app, build, sockets)
        task_status.started(bound)
