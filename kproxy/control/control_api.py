"""The routes of the control API: JSON in, one call of the transactions' service, JSON out."""

import json
import re
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import quote, unquote_to_bytes

import structlog
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from kproxy.codec.messages import ErrorCode
from kproxy.control import schemas
from kproxy.control.json_schema import Schema, faults
from kproxy.control.openapi import TRANSACTIONS, document, routes
from kproxy.control.problems import Problem, answer, invalid, of_error
from kproxy.control.serving import read_bounded
from kproxy.control.transaction_control import TransactionControl
from kproxy.txn.described import Described, Listing, OwnerId, described_json, listing_json
from kproxy.txn.txn_error import TxnError

log = structlog.get_logger("kproxy.control")

MAX_BODY_BYTES: Final = 262_144
_BODY_SECONDS: Final = 10.0
_MORE_FAULTS: Final = 5
_NUMBER: Final = re.compile("[0-9]{1,19}")
_LAST_PRODUCER_ID: Final = (1 << 63) - 1


def make_api(control: TransactionControl, more: Sequence[Route] = ()) -> Starlette:
    """The ASGI application, without its guard; ``control`` does the work, ``more`` are routes of other parts."""
    # 404 and 405 are HTTPExceptions, too
    app = Starlette(
        routes=[*routes(_Api(control)), *more], exception_handlers=error_answers() | {HTTPException: _http_error}
    )
    app.router.redirect_slashes = False
    return app


def page_routes(control: TransactionControl) -> list[Route]:
    """The operations that the status page uses: list and abort."""
    return routes(_Api(control), ("list", "abort"))


def error_answers() -> dict[Any, Any]:
    """The handler for each class of error; any other exception is a bug of kproxy, which the server logs."""
    return {Problem: _problem, TxnError: _txn_error, ClientDisconnect: _gone, Exception: _flaw}


class _Api:
    """One method for each operation (``kproxy.control.openapi``)."""

    def __init__(self, control: TransactionControl) -> None:
        self._control = control

    async def openapi(self, request: Request) -> Response:
        return JSONResponse(document())

    async def list(self, request: Request) -> Response:
        wanted = request.query_params.getlist("state")
        _check(wanted, {"type": "array", "items": schemas.STATE}, "state")
        undecided = request.query_params.get("undecided", "false")
        _check(undecided, schemas.UNDECIDED, "undecided")
        found = await self._control.list()
        rows = [row for row in found if not wanted or row.state in wanted]
        if undecided == "true":
            rows = [row for row in rows if row.is_undecided]
        return JSONResponse(listing_json(Listing(rows, found.stale)))

    async def describe(self, request: Request) -> Response:
        return JSONResponse(described_json(await self._control.describe(_id(request))))

    async def begin(self, request: Request) -> Response:
        body = await read_body(request, schemas.BEGIN)
        found = await self._control.begin(
            client_id=body.get("client_id"),
            transactional_id=body.get("transactional_id"),
            timeout_ms=body.get("timeout_ms", schemas.DEFAULT_TIMEOUT_MS),
        )
        log.info("transaction begun", transactional_id=found.transactional_id, client_id=found.client_id)
        where = f"{TRANSACTIONS}/{quote(found.transactional_id, safe='')}"
        return JSONResponse(described_json(found), status_code=HTTPStatus.CREATED, headers={"location": where})

    async def initialize(self, request: Request) -> Response:
        name, body = await _asked(request, schemas.INITIALIZE)
        timeout_ms = body.get("timeout_ms", schemas.DEFAULT_TIMEOUT_MS)
        found = await self._control.initialize(name, client_id=body.get("client_id", ""), timeout_ms=timeout_ms)
        return _changed("initialized", found)

    async def commit(self, request: Request) -> Response:
        name, body = await _asked(request, schemas.COMMIT)
        return _changed("committed", await self._control.commit(name, batch_id=body.get("batch_id"), **_parts(body)))

    async def abort(self, request: Request) -> Response:
        name, body = await _asked(request, schemas.ABORT)
        return _changed("aborted", await self._control.abort(name, **_parts(body)))

    async def prepare(self, request: Request) -> Response:
        name, body = await _asked(request, schemas.PREPARE)
        owner, batch_id = OwnerId(**body["owner"]), body.get("batch_id")
        return _changed("prepared", await self._control.prepare(name, owner=owner, batch_id=batch_id))

    async def begin_member(self, request: Request) -> Response:
        member = _member(request)
        name, body = await _asked(request, schemas.BEGIN_MEMBER)
        client_id, timeout_ms = body["client_id"], body.get("timeout_ms")
        found = await self._control.begin_member(
            name,
            member,
            client_id=client_id,
            owner=_owner(body),
            timeout_ms=timeout_ms,
            prefer_broker=body.get("prefer_broker", False),
        )
        return _changed("joined", found)

    async def prepare_member(self, request: Request) -> Response:
        member = _member(request)
        name, body = await _asked(request, schemas.PREPARE_MEMBER)
        found = await self._control.prepare_member(name, member, records=body.get("records"))
        return _changed("member prepared", found)

    async def abort_member(self, request: Request) -> Response:
        member = _member(request)
        name, _ = await _asked(request, schemas.ABORT_MEMBER)
        return _changed("member aborted", await self._control.abort_member(name, member))

    async def reject(self, request: Request) -> Response:
        given = request.path_params["producer_id"]
        if not _NUMBER.fullmatch(given) or (producer_id := int(given)) > _LAST_PRODUCER_ID:
            raise invalid(f"The producer id must be a whole number from 0 to {_LAST_PRODUCER_ID}, not {given[:40]!r}.")
        await read_body(request, schemas.REJECT)
        await self._control.reject(producer_id)
        log.info("producer id rejected", producer_id=producer_id)
        return JSONResponse({"producer_id": producer_id})


async def _asked(request: Request, schema: Schema) -> tuple[str, dict[str, Any]]:
    """The transactional id of a request, and its body."""
    name = _id(request)
    return name, await read_body(request, schema)


def _changed(done: str, found: Described) -> Response:
    log.info(f"transaction {done}", transactional_id=found.transactional_id)
    return JSONResponse(described_json(found))


def _id(request: Request) -> str:
    return _named(request, "transactional_id", "the transactional id", schemas.TRANSACTIONAL_ID)


def _member(request: Request) -> str:
    return _named(request, "member", "the member", schemas.MEMBER)


def _named(request: Request, parameter: str, what: str, schema: Schema) -> str:
    """A name in the path, which is percent-encoded UTF-8."""
    try:
        name = unquote_to_bytes(request.path_params[parameter]).decode()
    except UnicodeDecodeError:
        raise invalid(f"{what.capitalize()} in the path must be percent-encoded UTF-8.") from None
    _check(name, schema, what)
    return name


def _owner(body: dict[str, Any]) -> OwnerId | None:
    return OwnerId(**body["owner"]) if "owner" in body else None


def _parts(body: dict[str, Any]) -> dict[str, Any]:
    """The fields of a decision about members."""
    others = body.get("abort_others", False)
    return {"members": tuple(body.get("members", ())), "owner": _owner(body), "abort_others": others}


async def read_body(request: Request, schema: Schema) -> dict[str, Any]:
    """The JSON object that was sent, checked; empty if there is no body."""
    raw = await read_bounded(request, MAX_BODY_BYTES, _BODY_SECONDS)
    if raw.is_too_long:
        detail = f"A body has at most {MAX_BODY_BYTES} bytes."
        raise Problem(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, ErrorCode.MESSAGE_TOO_LARGE, detail)
    if raw.is_late:
        detail = "The body was not sent in time: nothing was done."
        raise Problem(HTTPStatus.REQUEST_TIMEOUT, ErrorCode.REQUEST_TIMED_OUT, detail)
    body = _parse(request, raw.data) if raw.data else {}
    _check(body, schema, "the body")
    return body


def _parse(request: Request, raw: bytes) -> Any:
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/json":
        detail = "A body must be JSON: Content-Type: application/json."
        raise Problem(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, ErrorCode.INVALID_REQUEST, detail)
    try:
        return json.loads(raw.decode(), object_pairs_hook=_unique, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise invalid(f"The body is no JSON: {error}.") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a field is given twice")
    return found


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no number of JSON")


def _check(value: object, schema: Schema, name: str) -> None:
    found = list(faults(value, schema, name))
    if found:
        more = f"; and {len(found) - _MORE_FAULTS} more" if len(found) > _MORE_FAULTS else ""
        raise invalid(f"{'; '.join(found[:_MORE_FAULTS])}{more}.")


async def _problem(request: Request, error: Problem) -> Response:
    return answer(error)


async def _txn_error(request: Request, error: TxnError) -> Response:
    return answer(of_error(error.error_code, error.message))


async def _http_error(request: Request, error: HTTPException) -> Response:
    unknown = error.status_code == HTTPStatus.NOT_FOUND
    code = ErrorCode.RESOURCE_NOT_FOUND if unknown else ErrorCode.INVALID_REQUEST
    detail = f"{request.method} {request.url.path}: {error.detail}. See /v1/openapi.json for all routes."
    return answer(Problem(HTTPStatus(error.status_code), code, detail), error.headers)


async def _gone(request: Request, error: ClientDisconnect) -> Response:
    return answer(invalid("The body did not end."))


async def _flaw(request: Request, error: Exception) -> Response:
    return answer(of_error(ErrorCode.UNKNOWN_SERVER_ERROR, ""))
