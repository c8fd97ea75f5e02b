"""Many seeds."""

from functools import partial

from verification.simulation.runner import first_failure, run_seeds
from verification.simulation.tastes import Taste, make_plan
from verification.simulation.world import run_seed


def test_what_runs_come_to_is_counted() -> None:
    tallies = list(run_seeds(range(3), partial(run_seed, Taste(faults=())), 1))
    (tally,) = tallies
    plans = [make_plan(seed, Taste(faults=())) for seed in range(3)]
    assert (tally.runs, tally.faults, tally.failures) == (3, 0, ())
    assert tally.sends == sum(plan.sends for plan in plans)
    assert tally.acknowledged > 0


def test_several_processes_run_the_same() -> None:
    taste = Taste(faults=("delay",), fault_count=(1, 1), sends=(2, 3))
    one, two = (list(run_seeds(range(6), partial(run_seed, taste), jobs, chunk=2)) for jobs in (1, 2))
    assert one == two


def test_a_tally_is_of_so_many_seeds_as_asked_for() -> None:
    taste = Taste(faults=(), sends=(1, 2), clients=(1, 1))
    assert [tally.runs for tally in run_seeds(range(5), partial(run_seed, taste), 1, chunk=2)] == [2, 2, 1]


def test_seeds_without_a_failure_have_none() -> None:
    assert first_failure(range(3), partial(run_seed, Taste(faults=()))) is None
