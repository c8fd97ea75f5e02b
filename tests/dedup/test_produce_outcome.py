import pytest

from kproxy.codec.messages import ErrorCode
from kproxy.dedup.produce_outcome import ProduceOutcome, outcome_of

APPENDED_PERHAPS = [
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.NETWORK_EXCEPTION,
]
REFUSED = [
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.INVALID_RECORD,
    ErrorCode.INVALID_TIMESTAMP,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.INVALID_REQUIRED_ACKS,
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    ErrorCode.POLICY_VIOLATION,
]


@pytest.mark.parametrize("error", APPENDED_PERHAPS)
def test_what_an_earlier_append_may_precede_is_open(error: ErrorCode) -> None:
    assert outcome_of(error) is ProduceOutcome.OPEN


@pytest.mark.parametrize("error", REFUSED)
def test_what_another_attempt_cannot_help_is_refused(error: ErrorCode) -> None:
    assert outcome_of(error) is ProduceOutcome.REFUSED


@pytest.mark.parametrize("error", [ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.LEADER_NOT_AVAILABLE])
def test_what_a_leader_says_before_it_appends_is_not_open(error: ErrorCode) -> None:
    assert outcome_of(error) is ProduceOutcome.NOT_NOW


@pytest.mark.parametrize("error", [ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER])
def test_written(error: ErrorCode) -> None:
    assert outcome_of(error) is ProduceOutcome.WRITTEN


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
    ],
)
def test_out_of_sequence(error: ErrorCode) -> None:
    assert outcome_of(error) is ProduceOutcome.OUT_OF_SEQUENCE


def test_a_higher_epoch_is_another_producers() -> None:
    assert outcome_of(ErrorCode.INVALID_PRODUCER_EPOCH) is ProduceOutcome.SUPERSEDED


def test_an_error_that_is_not_known_yet_proves_nothing() -> None:
    assert outcome_of(30_000) is ProduceOutcome.OPEN


def test_only_no_error_and_a_duplicate_are_ever_taken_for_written() -> None:
    written = {error for error in ErrorCode if outcome_of(error) is ProduceOutcome.WRITTEN}
    assert written == {ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER}


def test_no_retriable_error_but_the_clients_own_business_is_a_refusal() -> None:
    refused = {error for error in ErrorCode if error.retriable and outcome_of(error) is ProduceOutcome.REFUSED}
    assert refused == {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
    }
