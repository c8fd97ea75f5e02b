"""Plans with transactions, cut down."""

import pytest

from verification.simulation.transactions import cuts
from verification.simulation.transactions.plan import ROAMING, Taste, WorldPlan, make_plan
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


def roams(plan: WorldPlan) -> Outcome:
    """A world that breaks an invariant if two turns are taken, one of them to kproxy 1."""
    lives = [life for one in plan.producers for life in one.lives]
    turns = [turn.instance for life in lives for planned in life.transactions for turn in planned.turns]
    return Outcome(plan, ("bad", "") if len(turns) >= 2 and 1 in turns else None, (), 0, {})


def test_turns_that_break_nothing_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuts, "run", roams)
    seeds = (seed for seed in range(50) if roams(make_plan(seed, ROAMING)).broken is not None)
    least = cuts.shrink(roams(make_plan(next(seeds), ROAMING))).plan
    assert isinstance(least, WorldPlan)
    lives = [life for one in least.producers for life in one.lives]
    assert sum(len(planned.turns) for life in lives for planned in life.transactions) == 2
