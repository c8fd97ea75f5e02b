"""The states of a client's connection."""

import pytest

from kproxy.net.connection_state import TRANSITIONS, ConnectionEvent, ConnectionState, next_state

SERVING, DRAINING, ENDING, FORSAKEN, ENDED = ConnectionState
DRAINS, STAYS, HAS_TO_END, LOGIN_LOST, END = ConnectionEvent


@pytest.mark.parametrize(
    ("events", "states"),
    [
        ([DRAINS, STAYS, DRAINS, END], [DRAINING, SERVING, DRAINING, ENDED]),
        ([DRAINS, DRAINS], [DRAINING, DRAINING]),
        ([HAS_TO_END, LOGIN_LOST, END], [ENDING, FORSAKEN, ENDED]),
        ([DRAINS, LOGIN_LOST], [DRAINING, FORSAKEN]),
    ],
)
def test_ways_through_the_table(events: list[ConnectionEvent], states: list[ConnectionState]) -> None:
    state, seen = SERVING, []
    for event in events:
        state = next_state(state, event)
        seen.append(state)
    assert seen == states


@pytest.mark.parametrize("event", [DRAINS, STAYS, HAS_TO_END])
@pytest.mark.parametrize("state", [ENDING, FORSAKEN])
def test_a_connection_that_has_to_end_serves_no_more(state: ConnectionState, event: ConnectionEvent) -> None:
    assert next_state(state, event) is state


@pytest.mark.parametrize("event", list(ConnectionEvent))
def test_one_that_has_ended_stays_so(event: ConnectionEvent) -> None:
    assert next_state(ENDED, event) is ENDED


def test_each_state_is_reached_and_left_for_the_last_one() -> None:
    assert {*TRANSITIONS.values()} == {*ConnectionState}
    assert {state for (state, event) in TRANSITIONS if event is END} == {*ConnectionState} - {ENDED}


def test_which_states_take_nothing_more() -> None:
    assert [state for state in ConnectionState if state.has_to_end] == [ENDING, FORSAKEN]
    assert [state for state in ConnectionState if state.is_draining] == [DRAINING]
