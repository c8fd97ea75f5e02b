"""A bounded part of the exploration: each rule that is replaced is missed, and kproxy's rules hold as far as it goes.

``python -m verification.models.transaction_log`` explores the whole.
"""

import pytest
from click.testing import CliRunner

from verification.models.search import Found
from verification.models.transaction_log.__main__ import main
from verification.models.transaction_log.explore import Result, explore
from verification.models.transaction_log.scenarios import SCENARIOS, Scenario

pytestmark = pytest.mark.long

STATES = {"broken": 20_000, "kproxys": 2_500}


@pytest.mark.parametrize("scenario", [one for one in SCENARIOS if one.broken], ids=lambda one: one.name)
def test_each_rule_that_is_replaced_is_missed(scenario: Scenario) -> None:
    for result in explore(scenario, STATES["broken"], only_broken=True):
        assert result.trace is not None, result.changes
        assert result.trace[0].startswith(result.flaw), result.trace
        assert not result.is_surprise


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda one: one.name)
def test_kproxys_rules_hold(scenario: Scenario) -> None:
    (result,) = explore(Scenario(scenario.name, scenario.about, scenario.sizes), STATES["kproxys"])
    assert result.trace is None
    assert not result.is_surprise


def test_a_surprise_is_a_flaw_of_kproxys_or_one_that_is_not_found() -> None:
    scenario = SCENARIOS[0]
    wrong = Found(10, False, {"I2 a": ["x"], "I1 b": ["x", "y"]})
    assert Result(scenario, "", "", wrong, 0.1).is_surprise
    assert Result(scenario, "own=nonce", "I6", wrong, 0.1).is_surprise
    assert Result(scenario, "own=nonce", "I1", wrong, 0.1).trace == ("I1 b", ["x", "y"])
    assert Result(scenario, "", "", wrong, 0.1).trace == ("I2 a", ["x"])


def test_the_command_prints_a_table_and_counts_surprises() -> None:
    done = CliRunner().invoke(main, ["seq-reuse", "--traces"])
    assert done.exit_code == 0
    assert "A sends COMMIT" in done.output
    assert "every invariant holds" in done.output
    few = CliRunner().invoke(main, ["seq-reuse", "--only-broken", "--most-states", "2"])
    assert few.exit_code == 1
