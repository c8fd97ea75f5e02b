"""Plans."""

import pytest

from verification.simulation.plan import BUSY_SECONDS, FAULTS
from verification.simulation.tastes import Taste, make_plan


def test_a_seed_is_a_plan() -> None:
    assert make_plan(5, Taste()) == make_plan(5, Taste())
    assert make_plan(5, Taste()) != make_plan(6, Taste())


@pytest.mark.parametrize("seed", range(30))
def test_plans_have_faults_and_what_clients_of_old_can_send(seed: int) -> None:
    plan = make_plan(seed, Taste())
    assert len(plan.faults) >= 5
    assert all(fault.kind in FAULTS and fault.time <= BUSY_SECONDS for fault in plan.faults)
    assert plan.sends > 10
    for client in plan.clients:
        assert client.magic == 2 if client.version >= 3 else client.magic < 2
        assert client.instance < plan.instances
        assert all(values for send in client.sends for _, values in send.batches)


def test_a_taste_names_the_faults() -> None:
    plan = make_plan(1, Taste(faults=("cut", "crash")))
    assert {fault.kind for fault in plan.faults} <= {"cut", "crash"}
    assert not make_plan(1, Taste(faults=())).faults


def test_many_plans_hold_equal_records_and_processes_that_share_an_identity() -> None:
    plans = [make_plan(seed, Taste()) for seed in range(30)]
    twins = [plan for plan in plans if len({(c.client_id, c.host) for c in plan.clients}) < len(plan.clients)]
    assert len(twins) > 5
    equal = 0
    for plan in plans:
        values = [value for c in plan.clients for send in c.sends for _, batch in send.batches for value in batch]
        equal += len(values) > len(set(values))
    assert equal > 20
