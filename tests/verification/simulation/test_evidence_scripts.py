"""What a client has received: runs made by hand hold, and kproxy without one of its rules is found out."""

import pytest

from kproxy.net.socket_io import SocketIO
from tests.verification.simulation.test_variants import is_shown
from verification.simulation.evidence_scripts import BY_ITEM, Script, long_cut_route
from verification.simulation.evidence_variants import EVIDENCE_VARIANTS, UNLIMITED
from verification.simulation.tastes import LAST_SEQUENCE, WIDE, make_plan
from verification.simulation.variants import Variant
from verification.simulation.world import run

pytestmark = pytest.mark.long

#: TCP_USER_TIMEOUT on connections that produce.
LIMITED = hasattr(SocketIO, "limit_unacknowledged")
needs_limit = pytest.mark.skipif(not LIMITED, reason="kproxy sets no TCP_USER_TIMEOUT yet")
SCRIPTS = [script for scripts in BY_ITEM.values() for script in scripts if script is not long_cut_route]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.__name__)
def test_runs_made_by_hand_hold(script: Script) -> None:
    for seed in range(5):
        assert run(script(seed)).broken is None


@needs_limit
def test_a_retry_after_a_long_cut_is_recognised() -> None:
    for seed in range(5):
        assert run(long_cut_route(seed)).broken is None


@pytest.mark.parametrize("variant", EVIDENCE_VARIANTS, ids=lambda variant: variant.name)
def test_a_rule_less_breaks_an_invariant(variant: Variant) -> None:
    assert any(is_shown(variant, seed) for seed in variant.tried)


@needs_limit
def test_no_user_time_out_is_found() -> None:
    assert any(is_shown(UNLIMITED, seed) for seed in UNLIMITED.tried)


@pytest.mark.parametrize("seed", range(1000, 1012))
def test_invariants_hold_beyond_a_server_room(seed: int) -> None:
    assert run(make_plan(seed, WIDE)).broken is None


def test_sequence_numbers_wrap_in_some_runs() -> None:
    seed = next(seed for seed in range(50) if make_plan(seed, WIDE).first_sequence == LAST_SEQUENCE - 3)
    trace = [line for line in run(make_plan(seed, WIDE)).trace if " gets t " in line]
    assert any(int(line.rpartition("/")[2]) > LAST_SEQUENCE - 100 for line in trace)
    assert any(int(line.rpartition("/")[2]) < 100 for line in trace)


def test_tastes_of_the_wide_kind_have_all_habits() -> None:
    plans = [make_plan(seed, WIDE) for seed in range(60)]
    clients = [client for plan in plans for client in plan.clients]
    assert {client.depth for client in clients} == {1, 2, 5, 50, 1000}
    assert {client.relay.value for client in clients} == {"none", "named", "unknown"}
    assert {client.clock_ms for client in clients} == {1, 1000}
    assert {client.closes_each for client in clients} == {True, False}
    assert {"route", "route_there", "route_back", "balancer"} <= {fault.kind for p in plans for fault in p.faults}
    assert len({plan.weather for plan in plans}) == 2
