"""What a command runs, tells and gives back."""

import pytest

from verification.simulation.command import Simulation, Wanted, simulate
from verification.simulation.plan import FaultPlan, Plan
from verification.simulation.world import Outcome

FAULTS = (FaultPlan(1.0, "cut", 0.0, 0.0),)


def run_seed(seed: int) -> Outcome:
    """Every seed from 5 on breaks something."""
    broken = ("bad", f"in {seed}") if seed >= 5 else None
    return Outcome(Plan(seed, (), FAULTS), broken, (f"trace of {seed}",), 2, {})


def shrink(outcome: Outcome) -> Outcome:
    return Outcome(outcome.plan, outcome.broken, ("shortest",), 0, {})


SIMULATION = Simulation(
    run_seed, shrink, lambda plan: (f"cast of {plan.seed}",), "things", 2, lambda seed: f"--first-seed {seed} --seeds 1"
)


def told(
    capsys: pytest.CaptureFixture[str], seeds: range, *, keep_going: bool = False, trace: bool = False
) -> tuple[int, str]:
    return simulate(SIMULATION, Wanted(seeds, 1, keep_going, trace)), capsys.readouterr().out


def test_runs_that_hold_are_summed_up(capsys: pytest.CaptureFixture[str]) -> None:
    status, text = told(capsys, range(5))
    assert status == 0
    assert "5 runs: 0 things, 5 faults, 10 records acknowledged" in text


def test_the_first_failure_ends_the_runs_and_is_shown_as_short_as_it_gets(capsys: pytest.CaptureFixture[str]) -> None:
    status, text = told(capsys, range(3, 20))
    assert status == 1
    assert "4 runs: " in text
    assert "seed 5: bad: in 5\nagain: --first-seed 5 --seeds 1\n" in text
    assert "seed 5, cut down:\ncast of 5\nshortest\nbroken: bad: in 5\ntrace " in text
    assert "seed 7" not in text


def test_all_seeds_are_run_if_asked_for_and_twenty_failures_named(capsys: pytest.CaptureFixture[str]) -> None:
    status, text = told(capsys, range(40), keep_going=True)
    assert status == 1
    assert "40 runs: " in text
    assert "seed 24: bad: in 24" in text
    assert "seed 25" not in text


def test_the_trace_of_one_seed_is_printed_and_no_other_run(capsys: pytest.CaptureFixture[str]) -> None:
    status, text = told(capsys, range(4, 10), trace=True)
    assert (status, "cast of 4\ntrace of 4\n" in text, "seed" in text) == (0, True, False)
    assert told(capsys, range(6, 10), trace=True)[0] == 1
