"""The meaning of a broker's responses to InitProducerId and EndTxn."""

import pytest

from kproxy.codec.messages import ErrorCode
from kproxy.txn.claims import NOBODY
from kproxy.txn.ids import Producer
from kproxy.txn.procedures.broker_protocol import FIRST, OVER, REPLACED, SECOND, Protocol, granted, leaves_open
from kproxy.txn.txn_error import TxnError


@pytest.mark.parametrize(
    ("resumed", "given"),
    [
        (NOBODY, Producer(7, 0)),
        (Producer(7, 3), Producer(7, 4)),
        (Producer(7, 32_766), Producer(8, 0)),  # the last epoch: the next one has a fresh producer id
    ],
)
def test_an_identity_is_taken_as_it_is_given(resumed: Producer, given: Producer) -> None:
    assert granted("id", resumed, given, is_reserved=False) == given


def test_a_fresh_producer_id_shows_that_the_broker_has_forgotten_who_owns_the_id() -> None:
    with pytest.raises(TxnError, match="has forgotten id, and its last owner") as refused:
        granted("id", Producer(7, 3), Producer(8, 0), is_reserved=False)
    assert refused.value.error_code is ErrorCode.PRODUCER_FENCED


def test_a_producer_id_of_kproxys_own_is_refused() -> None:
    with pytest.raises(TxnError, match="kproxy reserves") as refused:
        granted("id", NOBODY, Producer(1 << 61, 0), is_reserved=True)
    assert refused.value.error_code is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


@pytest.mark.parametrize("error", sorted(REPLACED))
def test_who_has_replaced_the_producer_of_a_repeated_commit_says_nothing_of_the_first(error: ErrorCode) -> None:
    assert leaves_open(error, was_commit_open=True)
    assert not leaves_open(error, was_commit_open=False)


@pytest.mark.parametrize("error", [ErrorCode.INVALID_TXN_STATE, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED])
def test_any_other_error_is_the_commits_outcome(error: ErrorCode) -> None:
    assert not leaves_open(error, was_commit_open=True)


def test_the_second_protocol_begins_at_its_level() -> None:
    assert [Protocol.of(level) for level in (0, 1, 2, 3)] == [FIRST, FIRST, SECOND, SECOND]
    assert (FIRST.level, SECOND.level) == (1, 2)
    assert REPLACED < OVER
