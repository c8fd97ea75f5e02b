"""The states of a transaction: KIP-98's, and nothing that it does not know."""

import pytest

from kproxy.errors import LocalProtocolError
from kproxy.txn.states import TRANSITIONS, TransactionEvent, TransactionState, next_state

C, A = TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT


@pytest.mark.parametrize(
    ("events", "states"),
    [
        (
            [TransactionEvent.BEGAN, TransactionEvent.COMMIT_ASKED, TransactionEvent.COMMITTED],
            [TransactionState.ONGOING, TransactionState.PREPARE_COMMIT, C],
        ),
        (
            [TransactionEvent.BEGAN, TransactionEvent.ABORT_ASKED, TransactionEvent.ABORTED],
            [TransactionState.ONGOING, TransactionState.PREPARE_ABORT, A],
        ),
        (
            [TransactionEvent.BEGAN, TransactionEvent.COMMIT_ASKED, TransactionEvent.ABORTED],
            [TransactionState.ONGOING, TransactionState.PREPARE_COMMIT, A],
        ),
        (
            [
                TransactionEvent.BEGAN,
                TransactionEvent.COMMIT_ASKED,
                TransactionEvent.REFUSED,
                TransactionEvent.ABORT_ASKED,
                TransactionEvent.ABORTED,
            ],
            [
                TransactionState.ONGOING,
                TransactionState.PREPARE_COMMIT,
                TransactionState.ONGOING,
                TransactionState.PREPARE_ABORT,
                A,
            ],
        ),
        (
            [TransactionEvent.BEGAN, TransactionEvent.ABORTED, TransactionEvent.BEGAN],
            [TransactionState.ONGOING, A, TransactionState.ONGOING],
        ),
        (
            [TransactionEvent.INITIALIZED, TransactionEvent.BEGAN, TransactionEvent.PREPARED],
            [TransactionState.EMPTY, TransactionState.ONGOING, TransactionState.EMPTY],
        ),
        ([TransactionEvent.EXPIRED], [TransactionState.DEAD]),
    ],
)
def test_ways_through_the_table(events: list[TransactionEvent], states: list[TransactionState]) -> None:
    state, seen = TransactionState.EMPTY, []
    for event in events:
        state = next_state(state, event)
        seen.append(state)
    assert seen == states


@pytest.mark.parametrize("pending", [TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT])
@pytest.mark.parametrize(
    "event",
    [TransactionEvent.BEGAN, TransactionEvent.COMMIT_ASKED, TransactionEvent.ABORT_ASKED, TransactionEvent.INITIALIZED],
)
def test_nothing_comes_between_a_decision_and_its_outcome(pending: TransactionState, event: TransactionEvent) -> None:
    assert pending.is_pending
    with pytest.raises(LocalProtocolError, match=f"{event.name} in state {pending.value}"):
        next_state(pending, event)


def test_an_abort_that_was_asked_for_never_becomes_a_commit() -> None:
    assert (TransactionState.PREPARE_ABORT, TransactionEvent.COMMITTED) not in TRANSITIONS
    assert not [key for key in TRANSITIONS if key[0] is TransactionState.DEAD]


def test_every_state_can_be_reached() -> None:
    assert {*TRANSITIONS.values(), TransactionState.EMPTY} == set(TransactionState)
