"""The HTTP pages of operators, without a password: /metrics, /healthz, /readyz, the status page and its facts."""

from functools import partial

import trio
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from kproxy.config import Address, Config
from kproxy.control.control_api import error_answers, page_routes
from kproxy.control.fact_routes import fact_routes
from kproxy.control.fact_source import FactSource
from kproxy.control.guard import Guard, read_token
from kproxy.control.metrics import make_registry, render
from kproxy.control.page import static_routes
from kproxy.control.page_guard import page_refusal, page_rules
from kproxy.control.serving import bind_tcp, serve_app
from kproxy.control.transaction_control import TransactionControl
from kproxy.proxy.facts import not_ready_reasons
from kproxy.proxy.stats import Stats


def make_app(
    config: Config, stats: Stats, facts: FactSource, control: TransactionControl, token: bytes | None = None
) -> ASGIApp:
    """The ASGI application, with its guard. It reads only; but aborts a transaction for who has ``token``."""
    rules = page_rules(config, token)
    routes = [*_machine_routes(stats), *static_routes(rules), *fact_routes(facts), *page_routes(control)]
    app = Starlette(routes=routes, exception_handlers=error_answers())
    app.router.redirect_slashes = False
    return Guard(app, lambda scope: page_refusal(scope, rules), partial(stats.count_http_refused, "http"))


def _machine_routes(stats: Stats) -> list[Route]:
    registry = make_registry(stats)

    async def metrics(request: Request) -> Response:
        page, content_type = render(registry, request.headers.get("accept", ""))
        return Response(page, headers={"content-type": content_type})

    async def healthz(request: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def readyz(request: Request) -> Response:
        reasons = not_ready_reasons(stats)
        body = {"ready": not reasons, "brokers": stats.brokers, "reasons": reasons}
        return JSONResponse(body, status_code=503 if reasons else 200)

    pages = {"/metrics": metrics, "/healthz": healthz, "/readyz": readyz}
    return [Route(path, page) for path, page in pages.items()]


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
    token = None if config.control_token_file is None else read_token(config.control_token_file)
    sockets = await bind_tcp("http", config.http)
    bound = Address(config.http.host, sockets[0].getsockname()[1])
    async with trio.open_nursery() as nursery:
        await nursery.start(serve_app, make_app(config, stats, facts, control, token), sockets)
        task_status.started(bound)
