"""Whole runs."""

import gc
import os
import subprocess
import sys

import pytest

from tests.verification.simulation.worlds import client, fault, plan, send
from verification.simulation import invariants
from verification.simulation.plan import GZIP, LOG_APPEND_TIME, OLD
from verification.simulation.tastes import Taste, make_plan
from verification.simulation.world import Outcome, World, run

pytestmark = pytest.mark.long

_DIGESTS = """
from verification.simulation.tastes import Taste, make_plan
from verification.simulation.world import run
print(*(run(make_plan(seed, Taste())).digest for seed in range(5)))
"""


def said(outcome: Outcome, text: str) -> bool:
    return any(text in line for line in outcome.trace)


@pytest.mark.parametrize("version", range(10))
@pytest.mark.parametrize("codec", [0, 1])
def test_each_version_writes_what_it_sends(version: int, codec: int) -> None:
    magic = min(version // 2, 1) if version < 3 else 2
    sends = [send(b"%d" % n, b"%d'" % n, partition=n % 2) for n in range(4)]
    outcome = run(plan(client(*sends, version=version, magic=magic, codec=codec)))
    assert outcome.broken is None
    assert outcome.acknowledged == 8


def test_acks_0_has_no_answers() -> None:
    outcome = run(plan(client(send(b"a"), send(b"b"), acks=0)))
    assert (outcome.broken, outcome.acknowledged, outcome.seen["sent, unknown"]) == (None, 0, 2)


@pytest.mark.parametrize("seed", range(25))
def test_without_faults_all_is_well(seed: int) -> None:
    outcome = run(make_plan(seed, Taste(faults=())))
    assert outcome.broken is None
    # One that waits for 2 s may give up while kproxy leases producer ids over a slow network.
    if min(client.request_timeout for client in outcome.plan.clients) > 2.0:
        assert not said(outcome, "lost connection")


def test_the_same_seed_is_the_same_run_in_any_process() -> None:
    digests = [run(make_plan(seed, Taste())).digest for seed in range(5)]
    assert len(set(digests)) == 5
    for hash_seed in ("1", "2"):
        env = {**os.environ, "PYTHONHASHSEED": hash_seed}
        done = subprocess.run([sys.executable, "-c", _DIGESTS], env=env, capture_output=True, text=True, check=True)
        assert done.stdout.split() == digests


def test_no_garbage_is_collected_in_a_run() -> None:
    class Watched(World):
        def _judge(self) -> tuple[str, str] | None:
            return (invariants.FAILED, "garbage is collected") if gc.isenabled() else super()._judge()

    assert gc.isenabled()
    assert run(plan(client(send(b"a"))), Watched).broken is None
    assert gc.isenabled()


def test_a_killed_kproxy_comes_back() -> None:
    sends = [send(b"%d" % n, gap=0.5) for n in range(6)]
    outcome = run(plan(client(*sends), faults=(fault("crash", 1.2),)))
    assert said(outcome, "kproxy-0 is killed")
    assert said(outcome, "lost connection")
    assert outcome.acknowledged == 6


def test_time_costs_nothing_and_every_client_comes_to_an_end() -> None:
    outcome = run(plan(client(send(b"a"), send(b"b", gap=15.0))))
    assert outcome.broken is None
    assert float(outcome.trace[-1].split()[0]) > 15


OTHERS = {
    "topic made again": Taste(faults=("topic", "cut", "crash", "lost_answer", "slow_broker"), pioneers=0.0),
    "times of the broker": Taste(topics=(LOG_APPEND_TIME,), pioneers=0.0),
    "compression of the topic": Taste(topics=(GZIP,), pioneers=0.0),
    "old records": Taste(ages=(OLD,), pioneers=0.0),
    "cluster in trouble": Taste(faults=("controller", "disk", "lag", "broker", "leader"), pioneers=0.0),
}


@pytest.mark.parametrize("name", OTHERS)
def test_invariants_hold_in_other_worlds(name: str) -> None:
    for seed in range(12):
        broken = run(make_plan(seed, OTHERS[name])).broken
        # A broker refuses batches while the topic does not exist. A client that has its next request ready sends that
        # one before it repeats the refused one, and changes the order itself, as without kproxy.
        assert broken is None or (name == "topic made again" and broken[0] == invariants.ORDER)


def test_a_partition_that_comes_into_being_is_written_to() -> None:
    late = client(*(send(b"%d" % n, gap=1.0, partition=6) for n in range(4)), backoffs=(1.0,))
    outcome = run(plan(late, faults=(fault("more_partitions", 0.5),)))
    assert (outcome.broken, outcome.acknowledged) == (None, 4)


def test_what_is_acknowledged_on_both_sides_of_a_deletion_is_held_against_both_logs() -> None:
    sends = [send(b"%d" % n, gap=1.0) for n in range(8)]
    outcome = run(plan(client(*sends), faults=(fault("topic", 4.5, much=0.05),)))
    assert outcome.broken is None
    assert outcome.acknowledged > 4


def test_a_producer_is_not_forgotten_while_a_batch_is_in_flight() -> None:
    sends = [send(b"%d" % n, gap=0.4) for n in range(6)]
    faults = [fault("state_lost", 0.5 + n / 10) for n in range(20)]
    calm = run(plan(client(*sends)))
    struck = run(plan(client(*sends), faults=tuple(faults)))
    # one more task changes what the network's latency is
    assert [line[10:] for line in struck.trace if "state_lost" not in line] == [line[10:] for line in calm.trace]


def test_nobody_adds_partitions_while_all_brokers_are_down() -> None:
    down = [fault("broker", 0.2, where=node / 3, much=0.5) for node in range(3)]
    outcome = run(plan(client(send(b"a")), faults=(*down, fault("more_partitions", 0.5))))
    assert outcome.broken is None


def test_an_exception_in_the_simulation_itself_is_reported_with_its_plan() -> None:
    class Broken(World):
        def _judge(self) -> tuple[str, str] | None:
            raise IndexError("out of range")

    outcome = run(plan(client(send(b"a"))), Broken)
    assert outcome.broken is not None
    assert outcome.broken[0] == invariants.FAILED
    assert "IndexError: out of range" in outcome.broken[1]
    assert outcome.trace
