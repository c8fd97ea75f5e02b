"""The model of an instance that has not read an abort: its rules hold, and without each of them a record is lost."""

import pytest

from verification.models.aborted_elsewhere import SCENARIOS, Scenario, explore


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda one: one.name)
def test_the_rules_hold_and_none_can_be_left_out(scenario: Scenario) -> None:
    _, is_cut, trace = explore(scenario)
    assert not is_cut
    assert (trace.invariant[:2] if trace is not None else None) == scenario.flaw
