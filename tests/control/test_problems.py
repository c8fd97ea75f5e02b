import json

import pytest

from kproxy.codec.messages import ErrorCode
from kproxy.control.json_schema import faults
from kproxy.control.problems import answer, invalid, of_error
from kproxy.control.schemas import PROBLEM


@pytest.mark.parametrize(
    ("code", "status", "retriable"),
    [
        (ErrorCode.INVALID_REQUEST, 400, False),
        (ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, 403, False),
        (ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, 404, False),
        (ErrorCode.INVALID_TXN_STATE, 409, False),
        (ErrorCode.CONCURRENT_TRANSACTIONS, 409, True),
        (ErrorCode.PRODUCER_FENCED, 409, False),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 503, True),
        (ErrorCode.REQUEST_TIMED_OUT, 504, True),
        (ErrorCode.KAFKA_STORAGE_ERROR, 500, True),
    ],
)
def test_status_and_whether_to_try_again(code: ErrorCode, status: int, retriable: bool) -> None:
    found = answer(of_error(code, ""))
    body = json.loads(bytes(found.body))
    assert (found.status_code, body["status"], body["retriable"]) == (status, status, retriable)
    assert found.media_type == "application/problem+json"


@pytest.mark.parametrize("code", list(ErrorCode))
def test_every_error_has_its_name_and_says_what_to_do(code: ErrorCode) -> None:
    body = json.loads(bytes(answer(of_error(code, "")).body))
    assert not list(faults(body, PROBLEM))
    assert (body["title"], body["type"]) == (code.name, f"urn:kproxy:error:{code.name}")
    assert body["error_code"] == code
    assert body["detail"].endswith(".")


def test_what_the_service_says_comes_first() -> None:
    problem = of_error(ErrorCode.TRANSACTION_ABORTABLE, "the time is over")
    assert problem.detail == "the time is over. Abort the transaction and begin a new one."


def test_a_request_that_could_never_be_right() -> None:
    assert (invalid("No.").status, invalid("No.").error_code) == (400, ErrorCode.INVALID_REQUEST)
