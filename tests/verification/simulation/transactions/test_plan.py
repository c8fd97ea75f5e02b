"""Plans with transactions."""

import pytest

from kproxy.proxy.coordinator_rules import Home
from verification.simulation.plan import BUSY_SECONDS
from verification.simulation.transactions.homes import FAULTS, faults_of
from verification.simulation.transactions.plan import PLACES, Taste, WorldPlan, make_plan
from verification.simulation.transactions.ways import Way


def plans(taste: Taste, count: int = 30) -> list[WorldPlan]:
    return [make_plan(seed, taste) for seed in range(count)]


def test_a_seed_is_a_plan() -> None:
    assert make_plan(5, Taste()) == make_plan(5, Taste())
    assert make_plan(5, Taste()) != make_plan(6, Taste())


@pytest.mark.parametrize("plan", plans(Taste()), ids=lambda plan: str(plan.seed))
def test_plans_are_what_a_world_can_run(plan: WorldPlan) -> None:
    alone = sum(len(life.transactions) for one in plan.producers for life in one.lives)
    assert plan.sends == alone + sum(len(member_group.batches) for member_group in plan.member_groups) > 0
    assert all(
        fault.kind in faults_of(plan.place.home, FAULTS) and 0 < fault.time <= BUSY_SECONDS for fault in plan.faults
    )
    assert plan.readers
    for producer in plan.producers:
        assert f"group-{producer.number}" in plan.groups
        for life in producer.lives:
            assert life.instance < plan.instances
            places = [place for one in life.transactions for row in one.rounds for place, _ in row.batches]
            assert all(0 <= place < PLACES for place in places)


def test_a_taste_says_what_happens() -> None:
    assert not any(plan.faults for plan in plans(Taste(faults=())))
    kinds = {fault.kind for plan in plans(Taste(faults=("cut", "late"))) for fault in plan.faults}
    assert kinds == {"cut", "late"}
    assert all(one.pipelines for plan in plans(Taste(pipelines=1.0)) for one in plan.producers)
    assert not any(plan.ids_expire for plan in plans(Taste(expires=0.0)))
    assert all(plan.ids_expire for plan in plans(Taste(expires=1.0)))
    lives = [
        life for plan in plans(Taste(homes=(Home.KPROXY,), moves=1.0)) for one in plan.producers for life in one.lives
    ]
    assert all(planned.moves for life in lives for planned in life.transactions)


def test_many_plans_hold_everything_that_can_happen() -> None:
    many = plans(Taste(), 80)
    assert {fault.kind for plan in many for fault in plan.faults} == set(FAULTS)
    assert any(len(plan.producers) > len({one.transactional_id for one in plan.producers}) for plan in many)
    assert any(life.dies_after is not None for plan in many for one in plan.producers for life in one.lives)
    assert {one.second_version for plan in many for one in plan.producers} == {True, False}
    assert {one.pipelines for plan in many for one in plan.producers} == {True, False}
    assert {plan.ids_expire for plan in many} == {True, False}
    assert {one.way for plan in many for one in plan.producers} == set(Way)
