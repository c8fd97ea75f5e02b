"""The HTTP pages for operators, without a password: metrics, health, readiness, the status page and its facts."""

from functools import partial
from importlib.resources import files
from typing import Final

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from kproxy.config import Config
from kproxy.control.control_api import error_answers, page_routes
from kproxy.control.fact_routes import fact_routes
from kproxy.control.fact_source import FactSource
from kproxy.control.guard import Guard
from kproxy.control.metrics import make_registry
from kproxy.control.metrics_page import MetricsPage
from kproxy.control.page_guard import PageRules, abort_ability, page_refusal, page_rules
from kproxy.control.transaction_control import TransactionControl
from kproxy.proxy.facts import not_ready_reasons
from kproxy.proxy.stats import Stats


def make_app(
    config: Config, stats: Stats, facts: FactSource, control: TransactionControl, token: bytes | None = None
) -> ASGIApp:
    """The ASGI application, with its guard. It changes nothing but aborts a transaction if asked with ``token``."""
    rules = page_rules(config, token)
    routes = [*_machine_routes(stats), *static_routes(rules), *fact_routes(facts), *page_routes(control)]
    app = Starlette(routes=routes, exception_handlers=error_answers())
    app.router.redirect_slashes = False
    return Guard(app, lambda scope: page_refusal(scope, rules), partial(stats.refused.count_http_refused, "http"))


def _machine_routes(stats: Stats) -> list[Route]:
    rendered = MetricsPage(make_registry(stats))

    async def metrics(request: Request) -> Response:
        return await rendered.respond(request)

    async def healthz(request: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def readyz(request: Request) -> Response:
        reasons = not_ready_reasons(stats.upstream)
        body = {"ready": not reasons, "brokers": stats.upstream.brokers, "reasons": reasons}
        return JSONResponse(body, status_code=503 if reasons else 200)

    pages = {"/metrics": metrics, "/healthz": healthz, "/readyz": readyz}
    return [Route(path, page) for path, page in pages.items()]


#: Nothing from elsewhere, nothing inline, in nobody's frame.
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS: Final = {
    "content-security-policy": _POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-cache",
}
_FILES: Final = {"/page.css": "text/css", "/page.js": "text/javascript"}
_ABILITY: Final = "{{abort}}"


def static_routes(rules: PageRules) -> list[Route]:
    """The page and what it loads."""
    directory = files("kproxy.control").joinpath("static")
    index = directory.joinpath("index.html").read_text(encoding="utf-8")
    texts = {path: directory.joinpath(path[1:]).read_text(encoding="utf-8") for path in _FILES}

    async def page(request: Request) -> Response:
        text = index.replace(_ABILITY, abort_ability(request.scope, rules))
        return Response(text, headers=_HEADERS, media_type="text/html")

    async def part(request: Request) -> Response:
        path = request.url.path
        return Response(texts[path], headers=_HEADERS, media_type=_FILES[path])

    return [Route("/", page), *(Route(path, part) for path in _FILES)]
