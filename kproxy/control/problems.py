"""Errors of the control API: problem+json (RFC 9457) with Kafka's name, its number, and what to do."""

from collections.abc import Mapping
from http import HTTPStatus
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from starlette.responses import JSONResponse

from kproxy.codec.messages import ErrorCode
from kproxy.errors import KproxyError

MEDIA_TYPE: Final = "application/problem+json"
_RETRY_AFTER_SECONDS: Final = 1


class Advice(NamedTuple):
    """The HTTP status of an error, and what to do."""

    status: HTTPStatus
    what_to_do: str


_UNKNOWN: Final = Advice(
    HTTPStatus.INTERNAL_SERVER_ERROR, "Look at kproxy's log; kproxy txn describe shows the outcome of the transaction."
)
_WAIT: Final = Advice(HTTPStatus.SERVICE_UNAVAILABLE, "Try again in a moment.")
_TAKEN_OVER: Final = Advice(
    HTTPStatus.CONFLICT, "Another producer or kproxy took the transactional id over: begin a new transaction."
)
_ADVICE: Final[Mapping[ErrorCode, Advice]] = MappingProxyType(
    {
        ErrorCode.INVALID_REQUEST: Advice(HTTPStatus.BAD_REQUEST, "See /v1/openapi.json for what is right."),
        ErrorCode.INVALID_TRANSACTION_TIMEOUT: Advice(
            HTTPStatus.BAD_REQUEST, "Ask for less, or raise transaction.max.timeout.ms."
        ),
        ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: Advice(
            HTTPStatus.NOT_FOUND, "Look for the right name with kproxy txn list, or begin a transaction."
        ),
        ErrorCode.RESOURCE_NOT_FOUND: Advice(HTTPStatus.NOT_FOUND, "Ask the kproxy whose log names it."),
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: Advice(
            HTTPStatus.FORBIDDEN, "Let the configuration allow this transactional id."
        ),
        ErrorCode.INVALID_TXN_STATE: Advice(
            HTTPStatus.CONFLICT, "Look at its state with kproxy txn describe: this can't be done in it."
        ),
        ErrorCode.CONCURRENT_TRANSACTIONS: Advice(
            HTTPStatus.CONFLICT, "A transaction or a decision is under way: try again when it is through."
        ),
        ErrorCode.TRANSACTION_ABORTABLE: Advice(HTTPStatus.CONFLICT, "Abort the transaction and begin a new one."),
        ErrorCode.PRODUCER_FENCED: _TAKEN_OVER,
        ErrorCode.INVALID_PRODUCER_EPOCH: _TAKEN_OVER,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING: _TAKEN_OVER,
        ErrorCode.TRANSACTION_COORDINATOR_FENCED: _TAKEN_OVER,
        ErrorCode.NOT_COORDINATOR: Advice(
            HTTPStatus.CONFLICT, "Ask the kproxy that owns the transactional id, or wait for its time-out."
        ),
        ErrorCode.POLICY_VIOLATION: Advice(
            HTTPStatus.CONFLICT, "Write to topics without compaction, or leave these transactions to the broker."
        ),
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: _WAIT,
        ErrorCode.COORDINATOR_NOT_AVAILABLE: _WAIT,
        ErrorCode.NOT_ENOUGH_REPLICAS: _WAIT,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: _WAIT,
        ErrorCode.REQUEST_TIMED_OUT: Advice(
            HTTPStatus.GATEWAY_TIMEOUT, "Whether it was done is open: see kproxy txn describe, or ask again."
        ),
    }
)


class Problem(KproxyError):
    """A request that is refused before the service is asked."""

    def __init__(self, status: HTTPStatus, error_code: ErrorCode, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.error_code = error_code
        self.detail = detail


def invalid(detail: str) -> Problem:
    """A request that is malformed."""
    return Problem(HTTPStatus.BAD_REQUEST, ErrorCode.INVALID_REQUEST, detail)


def of_error(error_code: ErrorCode, message: str) -> Problem:
    """The error of the service, with advice."""
    advice = _ADVICE.get(error_code, _UNKNOWN)
    # As it stands: it may begin with a name, which is not to be changed.
    said = f"{message.rstrip('.')}. " if message else ""
    return Problem(advice.status, error_code, f"{said}{advice.what_to_do}")


def answer(problem: Problem, headers: Mapping[str, str] | None = None) -> JSONResponse:
    """The response; one that may be another a moment later says so (Retry-After)."""
    body: dict[str, Any] = {
        "type": f"urn:kproxy:error:{problem.error_code.name}",
        "title": problem.error_code.name,
        "status": int(problem.status),
        "detail": problem.detail,
        "error_code": int(problem.error_code),
        "retriable": problem.error_code.retriable,
    }
    more = {"retry-after": str(_RETRY_AFTER_SECONDS)} if problem.status == HTTPStatus.SERVICE_UNAVAILABLE else {}
    return JSONResponse(body, status_code=problem.status, headers={**(headers or {}), **more}, media_type=MEDIA_TYPE)
