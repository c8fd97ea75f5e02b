"""Whole runs with transactions."""

import os
import subprocess
import sys

import pytest

from kproxy.proxy.coordinator_rules import Home
from verification.simulation.transactions.plan import Taste, make_plan
from verification.simulation.transactions.world import run

pytestmark = pytest.mark.long

_DIGESTS = """
from verification.simulation.transactions.plan import Taste, make_plan
from verification.simulation.transactions.world import run
print(*(run(make_plan(seed, Taste())).digest for seed in range(2)))
"""


@pytest.mark.parametrize("seed", range(4))
def test_without_faults_all_is_well(seed: int) -> None:
    outcome = run(make_plan(seed, Taste(faults=())))
    assert outcome.broken is None
    assert outcome.acknowledged


@pytest.mark.parametrize("seed", range(8))
def test_invariants_hold(seed: int) -> None:
    assert run(make_plan(seed, Taste())).broken is None


def test_no_answer_to_the_control_api_is_lost_when_faults_have_ended() -> None:
    """Sixteen losses and one driver: what was left of them held up the end of the run."""
    taste = Taste(homes=(Home.KPROXY,), faults=("control_lost",))
    assert run(make_plan(0, taste)).broken is None


def test_the_same_seed_is_the_same_run_in_any_process() -> None:
    digests = [run(make_plan(seed, Taste())).digest for seed in range(2)]
    assert len(set(digests)) == 2
    env = {**os.environ, "PYTHONHASHSEED": "7"}
    done = subprocess.run([sys.executable, "-c", _DIGESTS], env=env, capture_output=True, text=True, check=True)
    assert done.stdout.split() == digests
