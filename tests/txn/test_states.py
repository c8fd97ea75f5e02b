"""The states of a transaction: KIP-98's, and nothing that it does not know."""

import pytest

from kproxy.errors import LocalProtocolError
from kproxy.txn.states import TRANSITIONS, Event, State, next_state

C, A = State.COMPLETE_COMMIT, State.COMPLETE_ABORT


@pytest.mark.parametrize(
    ("events", "states"),
    [
        ([Event.BEGAN, Event.COMMIT_ASKED, Event.COMMITTED], [State.ONGOING, State.PREPARE_COMMIT, C]),
        ([Event.BEGAN, Event.ABORT_ASKED, Event.ABORTED], [State.ONGOING, State.PREPARE_ABORT, A]),
        ([Event.BEGAN, Event.COMMIT_ASKED, Event.ABORTED], [State.ONGOING, State.PREPARE_COMMIT, A]),
        (
            [Event.BEGAN, Event.COMMIT_ASKED, Event.REFUSED, Event.ABORT_ASKED, Event.ABORTED],
            [State.ONGOING, State.PREPARE_COMMIT, State.ONGOING, State.PREPARE_ABORT, A],
        ),
        ([Event.BEGAN, Event.ABORTED, Event.BEGAN], [State.ONGOING, A, State.ONGOING]),
        ([Event.INITIALIZED, Event.BEGAN, Event.PREPARED], [State.EMPTY, State.ONGOING, State.EMPTY]),
        ([Event.EXPIRED], [State.DEAD]),
    ],
)
def test_ways_through_the_table(events: list[Event], states: list[State]) -> None:
    state, seen = State.EMPTY, []
    for event in events:
        state = next_state(state, event)
        seen.append(state)
    assert seen == states


@pytest.mark.parametrize("pending", [State.PREPARE_COMMIT, State.PREPARE_ABORT])
@pytest.mark.parametrize("event", [Event.BEGAN, Event.COMMIT_ASKED, Event.ABORT_ASKED, Event.INITIALIZED])
def test_nothing_comes_between_a_decision_and_its_outcome(pending: State, event: Event) -> None:
    assert pending.is_pending
    with pytest.raises(LocalProtocolError, match=f"{event.name} in state {pending.value}"):
        next_state(pending, event)


def test_an_abort_that_was_asked_for_never_becomes_a_commit() -> None:
    assert (State.PREPARE_ABORT, Event.COMMITTED) not in TRANSITIONS
    assert not [key for key in TRANSITIONS if key[0] is State.DEAD]


def test_every_state_can_be_reached() -> None:
    assert {*TRANSITIONS.values(), State.EMPTY} == set(State)
