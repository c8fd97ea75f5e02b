"""The webhook's shell: HTTPS for the API server, with the HTTP server of the control API."""

from typing import TYPE_CHECKING, Final

import structlog
import trio

from kproxy.config import Address
from kproxy.control.serving import bind_tcp, read_bounded, serve_app
from kproxy.injection.admission import LONGEST_BODY, Decision, review, too_long
from kproxy.injection.wishes import Sidecar
from kproxy.net.tls_context import TlsFiles, renewed_context

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.types import ASGIApp

log = structlog.get_logger("kproxy.webhook")

#: Pods whose label asks for the sidecar; and all pods of a namespace that asks for it.
PATHS: Final = {"/pods": False, "/namespaces": True}
_BODY_SECONDS: Final = 5
#: So many requests of the longest kind are held in memory at once; more wait.
_AT_ONCE: Final = 8


async def serve_webhook(
    listen: Address,
    files: TlsFiles,
    defaults: Sidecar,
    *,
    task_status: trio.TaskStatus[Address] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve until cancelled; ``started`` gets the bound address. A renewed certificate is used without a restart.

    StartupError if the address or the certificate cannot be used.
    """
    tls = renewed_context("--certificate", files)
    sockets = await bind_tcp("listen", listen)
    bound = Address(listen.host, sockets[0].getsockname()[1])
    async with trio.open_nursery() as nursery:
        await nursery.start(serve_app, lambda: make_app(defaults), sockets, tls)
        log.info("listening", listen=str(bound))
        task_status.started(bound)


def make_app(defaults: Sidecar) -> "ASGIApp":
    """The ASGI application: a path for each kind of selection, and one for probes."""
    from starlette.applications import Starlette
    from starlette.responses import PlainTextResponse, Response
    from starlette.routing import Route

    slots = trio.Semaphore(_AT_ONCE)

    async def healthz(request: "Request") -> "Response":
        return PlainTextResponse("ok\n")

    async def admit(request: "Request") -> "Response":
        async with slots:
            body = await read_bounded(request, LONGEST_BODY, _BODY_SECONDS)
            unlabelled = PATHS[request.url.path]
            decision = too_long() if body.is_too_long else review(body.data, defaults, unlabelled=unlabelled)
        _report(decision)
        return Response(decision.body, decision.status, media_type="application/json")

    return Starlette(routes=[Route("/healthz", healthz), *(Route(path, admit, methods=["POST"]) for path in PATHS)])


def _report(decision: Decision) -> None:
    facts = {"pod": decision.pod, "outcome": decision.outcome, "reason": decision.reason}
    if decision.outcome in ("refused", "malformed"):
        log.warning("pod not admitted", **facts)
    else:
        log.info("pod admitted", **facts)
