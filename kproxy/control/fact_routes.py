"""The operations that change nothing: the same on the control API and for the status page."""

from http import HTTPStatus
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from kproxy.codec.messages import ErrorCode
from kproxy.control.fact_source import FactSource
from kproxy.control.openapi import routes
from kproxy.control.problems import Problem
from kproxy.proxy.facts import Rows, fact_json


def fact_routes(facts: FactSource) -> list[Route]:
    """The operations that change nothing."""
    return routes(_FactApi(facts))


class _FactApi:
    """One method for each operation (``kproxy.control.openapi``)."""

    def __init__(self, facts: FactSource) -> None:
        self._facts = facts

    async def status(self, request: Request) -> Response:
        return JSONResponse(fact_json(self._facts.status()))

    async def clients(self, request: Request) -> Response:
        return _rows("clients", self._facts.clients(request.query_params.get("client_id")))

    async def lanes(self, request: Request) -> Response:
        return _rows("lanes", self._facts.lanes())

    async def brokers(self, request: Request) -> Response:
        return _rows("brokers", self._facts.brokers())

    async def fleet(self, request: Request) -> Response:
        try:
            return JSONResponse(fact_json(await self._facts.fleet()))
        except OSError as error:
            code = ErrorCode.COORDINATOR_NOT_AVAILABLE
            raise Problem(HTTPStatus.SERVICE_UNAVAILABLE, code, f"The fleet is not known: {error}.") from None


def _rows(name: str, found: Rows[Any]) -> Response:
    return JSONResponse({"total": found.total, name: [fact_json(row) for row in found.rows]})
