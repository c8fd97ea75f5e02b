"""The diagram of a transaction's states is drawn from their table."""

import pytest

from kproxy.txn.states import TRANSITIONS, TransactionState
from tools import generate_states


def test_each_transition_is_an_arrow() -> None:
    diagram = generate_states.diagram()
    assert diagram.count("-->") == len(TRANSITIONS) + 2
    for (state, _), following in TRANSITIONS.items():
        assert f"{state.value} --> {following.value}: " in diagram
    assert all(state.value in diagram for state in TransactionState)


def test_only_the_diagrams_place_changes() -> None:
    page = f"before\n{generate_states.BEGIN}\nold\n{generate_states.END}\nbehind\n"
    drawn = generate_states.drawn(page)
    assert drawn.startswith(f"before\n{generate_states.BEGIN}\n```mermaid")
    assert drawn.endswith(f"```\n{generate_states.END}\nbehind\n")
    assert generate_states.drawn(drawn) == drawn


def test_a_page_without_a_place_is_refused() -> None:
    with pytest.raises(ValueError, match="no place"):
        generate_states.drawn("# Transactions\n")


def test_the_page_is_up_to_date() -> None:
    assert generate_states.main(["--check"]) == 0
