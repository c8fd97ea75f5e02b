"""The model of broker-fenced's mapping: its rules hold, and each replaced rule fails."""

import pytest

from verification.models.fenced_mapping import SCENARIOS, Scenario, explore

_LARGEST = 3


@pytest.mark.parametrize("scenario", [one for one in SCENARIOS if one.sizes.kills <= _LARGEST - (one.flaw is None)])
def test_the_rules_hold_and_each_replaced_rule_fails(scenario: Scenario) -> None:
    states, is_cut, trace = explore(scenario)
    assert not is_cut
    assert states > 100
    found = trace.invariant if trace is not None else None
    assert (found is None) if scenario.flaw is None else (found is not None and found.startswith(scenario.flaw))
