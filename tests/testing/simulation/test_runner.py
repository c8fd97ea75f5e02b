"""Many seeds, and the shortest trace."""

import pytest

from kproxy.testing.simulation import invariants
from kproxy.testing.simulation.plan import Taste, make_plan
from kproxy.testing.simulation.runner import first_failure, run_seeds, shrink
from kproxy.testing.simulation.world import run


@pytest.fixture
def a_kproxy_that_forgets(monkeypatch: pytest.MonkeyPatch) -> None:
    """A log that loses the first record of partition 0."""
    real = invariants.read_logs
    monkeypatch.setattr(
        invariants, "read_logs", lambda cluster: [dict(list(real(cluster)[0].items())[1:]), *real(cluster)[1:]]
    )


def test_what_runs_come_to_is_counted() -> None:
    tallies = list(run_seeds(range(3), Taste(faults=()), 1))
    (tally,) = tallies
    plans = [make_plan(seed, Taste(faults=())) for seed in range(3)]
    assert (tally.runs, tally.faults, tally.failures) == (3, 0, ())
    assert tally.sends == sum(plan.sends for plan in plans)
    assert tally.acknowledged > 0


def test_several_processes_run_the_same() -> None:
    taste = Taste(faults=("delay",), fault_count=(1, 1), sends=(2, 3))
    one, two = (list(run_seeds(range(30), taste, jobs)) for jobs in (1, 2))
    assert one == two


@pytest.mark.usefixtures("a_kproxy_that_forgets")
def test_a_failure_is_cut_down_to_what_breaks_the_invariant() -> None:
    failed = first_failure(range(50), Taste(faults=("clock",), acks=(-1,), equal=0.0))
    assert failed is not None
    assert failed.broken is not None
    least = shrink(failed)
    assert least.broken is not None
    assert least.broken[0] == failed.broken[0] == invariants.LOST
    assert not least.plan.faults
    assert least.plan.sends == 1
    assert len(least.plan.clients) == 1
    assert run(least.plan).digest == least.digest


def test_seeds_without_a_failure_have_none() -> None:
    assert first_failure(range(3), Taste(faults=())) is None
