"""Plans with transactions, cut down."""

import pytest

from verification.simulation.transactions import cuts
from verification.simulation.transactions.plan import Taste, WorldPlan, make_plan
from verification.simulation.world import Outcome


def outcome(plan: WorldPlan) -> Outcome:
    """A world that breaks an invariant if producer 0 begins two transactions that are committed."""
    first = [producer for producer in plan.producers if producer.number == 0]
    commits = sum(one.commits for producer in first for life in producer.lives for one in life.transactions)
    return Outcome(plan, ("bad", f"{commits} commits") if commits >= 2 else None, (), 0, {})


def test_only_what_breaks_the_invariant_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuts, "run", outcome)
    seeds = (seed for seed in range(50) if outcome(make_plan(seed, Taste())).broken is not None)
    least = cuts.shrink(outcome(make_plan(next(seeds), Taste()))).plan
    assert isinstance(least, WorldPlan)
    assert not least.faults
    assert not least.readers
    (producer,) = least.producers
    assert sum(len(life.transactions) for life in producer.lives) == 2
