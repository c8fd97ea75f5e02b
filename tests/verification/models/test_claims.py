"""The model of processes with one instance.id: the rules hold, and each replaced rule breaks a promise."""

import pytest
from click.testing import CliRunner

from verification.models.claims import FLAWS, HOLDS, Scenario, explore, main

#: These take as long as all others together.
LONG = {
    "two begin at the same time",
    "what is fenced counts as come in between",
    "a killed process's note arrives late",
}


@pytest.mark.parametrize("scenario", [one for one in HOLDS if one.name not in LONG], ids=lambda one: one.name)
def test_the_rules_hold(scenario: Scenario) -> None:
    states, is_cut, trace = explore(scenario)
    assert trace is None
    assert not is_cut
    assert states > 10


@pytest.mark.parametrize("scenario", [one for one in FLAWS if one.name not in LONG], ids=lambda one: one.name)
def test_each_replaced_rule_breaks_a_promise(scenario: Scenario) -> None:
    _, _, trace = explore(scenario)
    assert trace is not None
    assert scenario.flaw is not None
    assert trace.invariant.startswith(scenario.flaw)


@pytest.mark.long
def test_of_two_that_begin_at_the_same_time_one_keeps_the_name() -> None:
    [scenario] = [one for one in HOLDS if one.name == "two begin at the same time"]
    states, is_cut, trace = explore(scenario)
    assert (trace, is_cut) == (None, False)
    assert states > 10_000


def test_the_command_runs_what_is_named_and_counts_surprises() -> None:
    result = CliRunner().invoke(main, ["a second one is to replace", "--traces"])
    assert result.exit_code == 0
    assert result.output.startswith("a second one is to replace the first: ")
