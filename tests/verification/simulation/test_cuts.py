"""The shortest trace."""

from functools import partial

import pytest

from verification.simulation import invariants
from verification.simulation.cuts import shrink
from verification.simulation.runner import first_failure
from verification.simulation.tastes import Taste
from verification.simulation.world import run, run_seed


@pytest.fixture
def a_kproxy_that_forgets(monkeypatch: pytest.MonkeyPatch) -> None:
    """A log that loses the first record of partition 0."""
    real = invariants.read_logs
    monkeypatch.setattr(
        invariants, "read_logs", lambda cluster: [dict(list(real(cluster)[0].items())[1:]), *real(cluster)[1:]]
    )


@pytest.mark.usefixtures("a_kproxy_that_forgets")
def test_a_failure_is_cut_down_to_what_breaks_the_invariant() -> None:
    failed = first_failure(range(50), partial(run_seed, Taste(faults=("clock",), acks=(-1,), equal=0.0)))
    assert failed is not None
    assert failed.broken is not None
    least = shrink(failed)
    assert least.broken is not None
    assert least.broken[0] == failed.broken[0] == invariants.LOST
    assert not least.plan.faults
    assert least.plan.sends == 1
    assert len(least.plan.clients) == 1
    assert run(least.plan).digest == least.digest
