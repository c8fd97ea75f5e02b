"""Homes of runs."""

import pytest

from kproxy.proxy.coordinator_rules import Home
from kproxy.testing.fake_broker import fake_server
from verification.simulation.transactions import invariants
from verification.simulation.transactions.homes import FAULTS, HOMES, MEMBER_HOMES, HomePlan, draw_home, faults_of
from verification.simulation.transactions.plan import Taste, make_plan
from verification.simulation.transactions.scripts import by_hand, producer
from verification.simulation.transactions.world import TransactionWorld, run


def test_a_seed_has_a_home_and_all_else_is_the_same_in_any() -> None:
    drawn = [draw_home(seed, HOMES, (0, 1, 2)) for seed in range(40)]
    assert {one.home for one in drawn} == set(HOMES)
    assert {one.transaction_version for one in drawn} == {0, 1, 2}
    of_clients = (Home.KPROXY, Home.BROKER_FENCED)
    plans = [make_plan(3, Taste(homes=(home,), faults=("crash",))) for home in of_clients]
    assert len({plan.producers for plan in plans}) == len({plan.faults for plan in plans}) == 1


def test_each_home_has_the_faults_that_can_befall_it() -> None:
    for home in HOMES:
        assert {"crash", "leader", "late"} < set(faults_of(home, FAULTS)) < set(FAULTS)
        assert ("coordinator" in faults_of(home, FAULTS)) == HomePlan(home).is_native
    assert faults_of(Home.KPROXY, ("snapshot", "markers")) == ("snapshot",)


def test_there_are_member_groups_only_where_they_are_known() -> None:
    plans = [make_plan(seed, Taste()) for seed in range(60)]
    assert {plan.place.home for plan in plans if plan.member_groups} == MEMBER_HOMES == {Home.KPROXY, Home.BROKER}
    alone = [
        batch
        for plan in plans
        if plan.place.is_native
        for member_group in plan.member_groups
        for batch in member_group.batches
    ]
    assert alone
    assert all(batch.own is None and not batch.prepares for batch in alone)


@pytest.mark.parametrize("home", [Home.BROKER, Home.BROKER_FENCED])
@pytest.mark.parametrize("version", [1, 2])
def test_brokers_agree_on_a_level_and_their_readers_see_what_kproxys_see(home: Home, version: int) -> None:
    outcome = run(make_plan(4, Taste(homes=(home,), transaction_versions=(version,), faults=())))
    assert outcome.broken is None
    assert outcome.acknowledged
    assert outcome.plan.readers[-1].direct


def test_what_brokers_leave_open_for_ever_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without data it holds no reader up."""
    plan = producer(timeout_ms=3_000)

    async def script(world: TransactionWorld) -> None:
        process = world.process(plan, 0)
        await process.initialize()
        await process._join([0], process.begin(0))
        process.killed()

    led = by_hand(1, script, plan, place=HomePlan(Home.BROKER_FENCED, 1))
    assert run(led).broken is None
    monkeypatch.setattr(fake_server, "expire_transactions", lambda _: None)
    assert run(led).broken == (invariants.STUCK, "the brokers have transactions of id open")
