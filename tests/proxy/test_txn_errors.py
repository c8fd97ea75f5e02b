"""Which error of a transaction a version can carry."""

import pytest

from kproxy.codec.messages import APIS, ApiKey, ErrorCode
from kproxy.proxy.txn_errors import wire_error
from kproxy.proxy.versions import TRANSACTIONS

ASKED = [*sorted(TRANSACTIONS), ApiKey.PRODUCE]
#: Java's EndTxnHandler ends the producer for good at these.
FATAL_AT_THE_END = {
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.PRODUCER_FENCED,
}


@pytest.mark.parametrize(
    ("api_key", "first"),
    [
        (ApiKey.INIT_PRODUCER_ID, 4),
        (ApiKey.ADD_PARTITIONS_TO_TXN, 2),
        (ApiKey.ADD_OFFSETS_TO_TXN, 2),
        (ApiKey.END_TXN, 2),
    ],
)
def test_a_fenced_producer_hears_so_from_the_version_on_that_knows_the_word(api_key: ApiKey, first: int) -> None:
    for version in range(APIS[api_key][2] + 1):
        wanted = ErrorCode.PRODUCER_FENCED if version >= first else ErrorCode.INVALID_PRODUCER_EPOCH
        assert wire_error(api_key, version, ErrorCode.PRODUCER_FENCED) == wanted


@pytest.mark.parametrize("api_key", [ApiKey.PRODUCE, ApiKey.TXN_OFFSET_COMMIT])
def test_leaders_and_groups_never_knew_the_word(api_key: ApiKey) -> None:
    newest = APIS[api_key][2]
    assert wire_error(api_key, newest, ErrorCode.PRODUCER_FENCED) == ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_stale_epoch_of_a_member_was_a_wrong_generation_before_its_word_was_known() -> None:
    told = [wire_error(ApiKey.TXN_OFFSET_COMMIT, version, ErrorCode.STALE_MEMBER_EPOCH) for version in range(7)]
    old, known = ErrorCode.INVALID_TXN_STATE, ErrorCode.ILLEGAL_GENERATION
    assert told == [old, old, old, known, known, known, ErrorCode.STALE_MEMBER_EPOCH]


@pytest.mark.parametrize("version", range(7))
def test_groups_know_epochs_and_no_mapping_of_ids(version: int) -> None:
    fenced = wire_error(ApiKey.TXN_OFFSET_COMMIT, version, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    assert fenced == ErrorCode.INVALID_PRODUCER_EPOCH


@pytest.mark.parametrize(
    ("api_key", "version", "wanted"),
    [
        (ApiKey.END_TXN, 5, ErrorCode.TRANSACTION_ABORTABLE),
        (ApiKey.END_TXN, 4, ErrorCode.TRANSACTION_ABORTABLE),
        (ApiKey.END_TXN, 3, ErrorCode.UNKNOWN_PRODUCER_ID),
        (ApiKey.ADD_PARTITIONS_TO_TXN, 3, ErrorCode.UNKNOWN_PRODUCER_ID),
        (ApiKey.ADD_OFFSETS_TO_TXN, 4, ErrorCode.TRANSACTION_ABORTABLE),
        (ApiKey.ADD_OFFSETS_TO_TXN, 3, ErrorCode.UNKNOWN_PRODUCER_ID),
        (ApiKey.TXN_OFFSET_COMMIT, 4, ErrorCode.TRANSACTION_ABORTABLE),
        (ApiKey.TXN_OFFSET_COMMIT, 3, ErrorCode.UNKNOWN_MEMBER_ID),
        (ApiKey.TXN_OFFSET_COMMIT, 2, ErrorCode.INVALID_TXN_STATE),
        (ApiKey.PRODUCE, 11, ErrorCode.TRANSACTION_ABORTABLE),
        (ApiKey.PRODUCE, 10, ErrorCode.INVALID_TXN_STATE),
    ],
)
def test_a_transaction_that_must_be_aborted(api_key: ApiKey, version: int, wanted: ErrorCode) -> None:
    assert wire_error(api_key, version, ErrorCode.TRANSACTION_ABORTABLE) == wanted


@pytest.mark.parametrize("version", range(6))
def test_a_take_over_is_never_fatal_at_the_end(version: int) -> None:
    """Readpath rule 3."""
    assert wire_error(ApiKey.END_TXN, version, ErrorCode.TRANSACTION_ABORTABLE) not in FATAL_AT_THE_END


@pytest.mark.parametrize("version", range(3, 14))
@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    ],
)
def test_a_leader_has_no_coordinators_errors_but_ones_that_make_clients_try_again(
    version: int, error: ErrorCode
) -> None:
    said = ErrorCode(wire_error(ApiKey.PRODUCE, version, error))
    assert said.retriable
    assert said != error or (version >= 12 and error == ErrorCode.CONCURRENT_TRANSACTIONS)


@pytest.mark.parametrize("api_key", ASKED)
def test_what_is_said_in_an_errors_place_is_known_to_the_version(api_key: ApiKey) -> None:
    for version in range(APIS[api_key][2] + 1):
        for error in ErrorCode:
            said = wire_error(api_key, version, error)
            assert wire_error(api_key, version, said) == said
            assert (said == ErrorCode.NONE) is (error == ErrorCode.NONE)


def test_a_brokers_error_that_is_not_known_here_is_passed_on() -> None:
    assert wire_error(ApiKey.PRODUCE, 9, 9999) == 9999
