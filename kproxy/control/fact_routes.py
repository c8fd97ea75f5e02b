"""The routes that tell what is running and change nothing: the same on the control API and beside the status page."""

from typing import Any, Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from kproxy.control.fact_source import FactSource
from kproxy.proxy.facts import Rows, fact_json

STATUS: Final = "/v1/status"
CLIENTS: Final = "/v1/clients"
LANES: Final = "/v1/lanes"
BROKERS: Final = "/v1/brokers"
#: Of ``CLIENTS``, in the query: those with this client.id alone.
CLIENT_ID: Final = "client_id"


def fact_routes(facts: FactSource) -> list[Route]:
    """One for each list, and the status."""

    async def status(request: Request) -> Response:
        return JSONResponse(fact_json(facts.status()))

    async def clients(request: Request) -> Response:
        return _rows("clients", facts.clients(request.query_params.get(CLIENT_ID)))

    async def lanes(request: Request) -> Response:
        return _rows("lanes", facts.lanes())

    async def brokers(request: Request) -> Response:
        return _rows("brokers", facts.brokers())

    pages = {STATUS: status, CLIENTS: clients, LANES: lanes, BROKERS: brokers}
    return [Route(path, page, methods=["GET"]) for path, page in pages.items()]


def _rows(name: str, found: Rows[Any]) -> Response:
    return JSONResponse({"total": found.total, name: [fact_json(row) for row in found.rows]})
