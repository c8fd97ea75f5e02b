"""The model of what a commit covers: its rules hold, none can be left out, and what they can't tell is known."""

import pytest

from verification.models.prepared_owners import SCENARIOS, Scenario, explore


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda one: one.name)
def test_the_rules_hold_and_none_can_be_left_out(scenario: Scenario) -> None:
    _, is_cut, trace = explore(scenario)
    assert not is_cut
    found = trace.invariant if trace is not None else ""
    assert found.startswith(scenario.flaw) if scenario.flaw is not None else not found
