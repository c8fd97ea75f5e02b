"""The HTTP page of operators: /metrics, /healthz, /readyz, and an index that says where they are."""

from html import escape

import trio
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from kproxy import __version__
from kproxy.config import Address, Config, show
from kproxy.control.metrics import make_registry, render
from kproxy.control.serving import bind_tcp, serve_app
from kproxy.proxy.stats import Stats

_INDEX = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>kproxy {instance}</title></head><body>
<h1>kproxy {version}</h1>
<p>Instance {instance}: clients at {listen}, brokers from {bootstrap}.</p>
<ul>
<li><a href="/metrics">/metrics</a>: for Prometheus</li>
<li><a href="/healthz">/healthz</a>: 200 while the process is alive</li>
<li><a href="/readyz">/readyz</a>: 200 while clients are served, else 503 and the reasons</li>
</ul>
</body></html>
"""


def not_ready_reasons(stats: Stats) -> list[str]:
    """Why clients are not served now; empty if they are."""
    if stats.ready:
        return []
    if not stats.brokers:
        return ["no broker has been reached yet"]
    return ["not listening for clients: starting up or shutting down"]


def make_app(config: Config, stats: Stats) -> Starlette:
    """The ASGI application; it only reads ``stats``."""
    registry = make_registry(stats)

    async def index(request: Request) -> Response:
        return HTMLResponse(
            _INDEX.format(
                version=escape(__version__),
                instance=escape(config.instance_id),
                listen=escape(str(config.listen)),
                bootstrap=escape(show(config.bootstrap_servers)),
            )
        )

    async def metrics(request: Request) -> Response:
        page, content_type = render(registry, request.headers.get("accept", ""))
        return Response(page, headers={"content-type": content_type})

    async def healthz(request: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def readyz(request: Request) -> Response:
        reasons = not_ready_reasons(stats)
        body = {"ready": not reasons, "brokers": stats.brokers, "reasons": reasons}
        return JSONResponse(body, status_code=503 if reasons else 200)

    pages = {"/": index, "/metrics": metrics, "/healthz": healthz, "/readyz": readyz}
    return Starlette(routes=[Route(path, page) for path, page in pages.items()])


async def serve_http(
    config: Config, stats: Stats, *, task_status: trio.TaskStatus[Address | None] = trio.TASK_STATUS_IGNORED
) -> None:
    """Serve until cancelled; ``started`` gets the bound address once connections are accepted (None: HTTP is off).

    Raises StartupError (exit code CANNOT_BIND) if the address is in use or not this host's.
    """
    if config.http is None:
        task_status.started(None)
        return
    sockets = await bind_tcp("http", config.http)
    bound = Address(config.http.host, sockets[0].getsockname()[1])
    async with trio.open_nursery() as nursery:
        await nursery.start(serve_app, make_app(config, stats), sockets)
        task_status.started(bound)
