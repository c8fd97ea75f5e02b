"""The model of what a client has received: the rules hold, and each replaced rule breaks a promise."""

import pytest

from verification.models.evidence import FLAWS, HOLDS, Scenario, explore, main


@pytest.mark.parametrize("scenario", HOLDS, ids=lambda scenario: scenario.name)
def test_the_rules_hold(scenario: Scenario) -> None:
    found = explore(scenario)
    assert found.trace is None
    assert not found.is_cut
    assert found.states > 100


@pytest.mark.parametrize("scenario", FLAWS, ids=lambda scenario: scenario.name)
def test_each_replaced_rule_breaks_a_promise(scenario: Scenario) -> None:
    found = explore(scenario)
    assert found.trace is not None
    assert scenario.flaw is not None
    assert found.trace.invariant.startswith(scenario.flaw)


def test_a_lost_record_needs_a_cut_before_its_acknowledgement() -> None:
    [scenario] = [one for one in FLAWS if one.name == "what is not acknowledged was not received"]
    trace = explore(scenario).trace
    assert trace is not None
    assert any("is cut" in step for step in trace.steps)
    assert not any("has the acknowledgement" in step for step in trace.steps)


def test_the_command_counts_surprises(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(FLAWS[:2]) == 0
    assert "lost" in capsys.readouterr().out
