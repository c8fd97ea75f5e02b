"""The webhook's shell: HTTPS for the API server, with the HTTP server of the control API."""

from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

import structlog
import trio

from kproxy.config import Address
from kproxy.config.os_limits import may_open
from kproxy.control.places import Limits
from kproxy.control.serving import Body, bind_tcp, serve_app
from kproxy.injection.admission import LONGEST_BODY, Decision, review, unread
from kproxy.injection.bodies import Bodies
from kproxy.injection.webhook_stats import WebhookStats
from kproxy.injection.wishes import Sidecar
from kproxy.net.tls_context import TlsFiles, renewed_context

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route
    from starlette.types import ASGIApp

log = structlog.get_logger("kproxy.webhook")

#: Pods whose label asks for the sidecar; and all pods of a namespace that asks for it.
PATHS: Final = {"/pods": False, "/namespaces": True}
#: The API server sends a body at once; it waits for no response for longer (timeoutSeconds in the chart).
_BODY_SECONDS: Final = 5
#: Bytes of all bodies together that are held in memory.
_MOST_BYTES: Final = 16 << 20
#: Each takes 50 KB with TLS. One API server opens a connection for each review that it waits for.
_CONNECTIONS: Final = 256


@dataclass(frozen=True, slots=True)
class Listen:
    """Where the webhook listens, and whom it serves."""

    #: For reviews, over HTTPS.
    reviews: Address
    files: TlsFiles
    #: For metrics and probes, over HTTP; None: nowhere.
    pages: Address | None = None


async def serve_webhook(
    listen: Listen,
    defaults: Sidecar,
    *,
    task_status: trio.TaskStatus[tuple[Address, Address | None]] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve until cancelled; ``started`` gets the bound addresses. A renewed certificate is used without a restart.

    With an authority in ``listen.files`` only clients with a certificate of it are served. StartupError if an address
    or a certificate cannot be used.
    """
    stats = WebhookStats()
    client_auth = "none" if listen.files.ca is None else "required"
    tls = renewed_context("--certificate", listen.files, client_auth, partial(stats.uses, "--certificate"))
    sockets = await bind_tcp("listen", listen.reviews)
    bound = Address(listen.reviews.host, sockets[0].getsockname()[1])
    connections = min(_CONNECTIONS, may_open() // 4)
    limits = Limits(connections, connections // 2)
    async with trio.open_nursery() as nursery:
        build = partial(make_app, defaults, stats)
        await nursery.start(partial(serve_app, build, sockets, tls, limits=limits, refused=stats.refused_connection))
        pages = None
        if listen.pages is not None:
            sockets = await bind_tcp("http", listen.pages)
            pages = Address(listen.pages.host, sockets[0].getsockname()[1])
            await nursery.start(partial(serve_app, partial(make_pages, stats), sockets))
        log.info("listening", listen=str(bound), http=str(pages or "off"))
        task_status.started((bound, pages))


def make_app(defaults: Sidecar, stats: WebhookStats) -> "ASGIApp":
    """The ASGI application: a path for each kind of selection, and one for probes."""
    from starlette.applications import Starlette
    from starlette.requests import ClientDisconnect
    from starlette.responses import Response
    from starlette.routing import Route

    bodies = Bodies(_MOST_BYTES)
    turn = trio.Lock()

    async def reviewed(request: "Request") -> Decision:
        async with bodies.read(request, LONGEST_BODY, _BODY_SECONDS) as body:
            if (unread := _unread(body)) is not None:
                stats.refused(unread[0])
                return unread[1]
            assert body is not None
            # A body that is not whole keeps no other from its turn. After each the loop looks at its connections.
            async with turn:
                await trio.lowlevel.checkpoint()
                decision = review(body.data, defaults, unlabelled=PATHS[request.url.path])
        stats.reviewed(decision.outcome)
        return decision

    async def admit(request: "Request") -> "Response":
        began = trio.current_time()
        try:
            decision = await reviewed(request)
        except ClientDisconnect:
            stats.refused("disconnected")
            return Response(status_code=HTTPStatus.BAD_REQUEST)
        stats.review_seconds.observe(trio.current_time() - began)
        _report(decision)
        return Response(decision.body, decision.status, media_type="application/json")

    return Starlette(routes=[_health(), *(Route(path, admit, methods=["POST"]) for path in PATHS)])


def _unread(body: Body | None) -> tuple[str, Decision] | None:
    """Why a body was not read to its end, as the metrics name it, and the response; None: it is whole."""
    if body is None:
        return "crowded", unread(HTTPStatus.SERVICE_UNAVAILABLE, "other requests needed the memory: try again")
    if body.is_too_long:
        status = HTTPStatus.REQUEST_ENTITY_TOO_LARGE
        return "too_long", unread(status, f"the request is longer than {LONGEST_BODY} bytes")
    if body.is_late:
        return "late", unread(HTTPStatus.REQUEST_TIMEOUT, f"the request did not end within {_BODY_SECONDS} s")
    return None


def make_pages(stats: WebhookStats) -> "ASGIApp":
    """The ASGI application for metrics and probes."""
    from starlette.applications import Starlette
    from starlette.routing import Route

    from kproxy.control.metrics import make_declared_registry
    from kproxy.control.metrics_page import MetricsPage

    page = MetricsPage(make_declared_registry(stats))

    async def metrics(request: "Request") -> "Response":
        return await page.respond(request)

    return Starlette(routes=[_health(), Route("/metrics", metrics)])


def _health() -> "Route":
    from starlette.responses import PlainTextResponse
    from starlette.routing import Route

    async def healthz(request: "Request") -> "Response":
        return PlainTextResponse("ok\n")

    return Route("/healthz", healthz)


def _report(decision: Decision) -> None:
    facts = {"pod": decision.pod, "outcome": decision.outcome, "reason": decision.reason}
    if decision.outcome in ("refused", "malformed"):
        log.warning("pod not admitted", **facts)
    else:
        log.info("pod admitted", **facts)
