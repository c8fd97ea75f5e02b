"""Plans with transactions."""

from dataclasses import replace

import pytest

from kproxy.proxy.coordinator_rules import Home
from verification.simulation.plan import BUSY_SECONDS
from verification.simulation.transactions.homes import FAULTS, OUTAGES, faults_of
from verification.simulation.transactions.plan import PLACES, ROAMING, Taste, WorldPlan, make_plan
from verification.simulation.transactions.routes import AT_ONE
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


def test_clients_go_elsewhere_only_where_the_taste_says_so() -> None:
    lives = [life for plan in plans(Taste()) for one in plan.producers for life in one.lives]
    assert all(life.reach == AT_ONE and not any(one.turns for one in life.transactions) for life in lives)


def test_clients_that_go_elsewhere_do_all_that_clients_can() -> None:
    many = plans(ROAMING, 60)
    lives = [life for plan in many for one in plan.producers for life in one.lives]
    turns = [turn for life in lives for planned in life.transactions for turn in planned.turns]
    assert {turn.waits for turn in turns} == {True, False}
    assert {life.reach.is_spread for life in lives} == {bool(life.reach.others) for life in lives} == {True, False}
    assert {*OUTAGES} < {fault.kind for plan in many for fault in plan.faults}
    for plan in many:
        assert all(0 < fault.time <= BUSY_SECONDS for fault in plan.faults)
        for one in plan.producers:
            for life in one.lives:
                assert max(life.reach.others, default=0) < plan.instances
                assert all(turn.instance < plan.instances for planned in life.transactions for turn in planned.turns)


def test_what_else_is_in_the_plan_of_a_seed_does_not_depend_on_where_clients_go() -> None:
    for roaming, staying in zip(plans(ROAMING), plans(replace(ROAMING, roams=0.0)), strict=True):
        assert [one.transactional_id for one in roaming.producers] == [
            one.transactional_id for one in staying.producers
        ]
        assert {*staying.faults} <= {*roaming.faults}
        assert (roaming.readers, roaming.member_groups) == (staying.readers, staying.member_groups)
