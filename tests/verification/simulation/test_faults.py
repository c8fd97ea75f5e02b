"""Each fault does what it is called."""

import pytest

from tests.verification.simulation.worlds import client, fault, plan, send
from verification.simulation.plan import FAULTS, ClientPlan
from verification.simulation.world import Outcome, World, run


def steady(**more: object) -> ClientPlan:
    return client(*(send(b"%d" % n, gap=0.2, partition=0) for n in range(30)), **more)


def strikes(kind: str, *, where: float = 0.0, much: float = 0.5, **more: object) -> Outcome:
    return run(plan(steady(**more), faults=(fault(kind, 2.0, where, much),)))


def lines(outcome: Outcome, text: str) -> int:
    return sum(text in line for line in outcome.trace)


@pytest.mark.parametrize("kind", FAULTS)
def test_the_clients_get_over_it(kind: str) -> None:
    outcome = strikes(kind)
    assert lines(outcome, f"fault {kind}") == 1
    assert outcome.acknowledged == 30


@pytest.mark.parametrize(
    ("kind", "effect"),
    [
        ("crash", "is killed"),
        ("cut", "lost connection"),
        ("cut_answer", "lost connection"),
        ("close", "lost connection"),
        ("half_open", "lost connection"),
    ],
)
def test_what_harms_a_connection_of_a_client_ends_it(kind: str, effect: str) -> None:
    assert lines(strikes(kind), effect) >= 1
    assert lines(strikes(kind), "harms connection") == (kind != "crash")


@pytest.mark.parametrize(
    "kind", ["lost_answer", "dropped_answer", "not_enough_replicas", "after_append", "timed_out", "stepped_down"]
)
def test_what_a_broker_does_with_answers_makes_kproxy_send_again(kind: str) -> None:
    outcome = strikes(kind, where=0.0, much=0.3)
    assert lines(outcome, "does so") == 2
    assert lines(outcome, "gets t 0") > 30


def test_a_slow_reader_reads_late() -> None:
    quiet, slow = strikes("clock"), strikes("slow_reader", much=0.4)
    assert slow.trace[-1].split()[0] > quiet.trace[-1].split()[0] or lines(slow, "reads") == lines(quiet, "reads")
    assert lines(slow, "lost connection") == 0


def test_the_time_of_day_jumps() -> None:
    world = World(plan(steady()))
    before = world._wall
    world.jump(60.0)
    assert world._wall == before + 60.0


def test_a_fault_that_is_not_known_fails_the_run() -> None:
    broken = run(plan(steady(), faults=(fault("no such", 1.0),))).broken
    assert broken is not None
    assert "KeyError: 'no such'" in broken[1]
