"""Each fault of the brokers' coordinators does what it is called, and everybody gets over it."""

import pytest

from kproxy.proxy.coordinator_rules import Home
from tests.verification.simulation.transactions.test_faults import busy, lines
from verification.simulation.plan import FaultPlan
from verification.simulation.transactions.broker_txn_faults import NATIVE
from verification.simulation.transactions.homes import HomePlan
from verification.simulation.transactions.plan import ReaderPlan, world_plan
from verification.simulation.transactions.world import run
from verification.simulation.world import Outcome


def struck(kind: str, *, version: int = 2, where: float = 0.95, much: float = 0.5) -> Outcome:
    faults = (FaultPlan(1.5, kind, where, much),)
    place = HomePlan(Home.BROKER_FENCED, version)
    return run(world_plan(1, (busy(),), (ReaderPlan(0, 0, 12),), faults, 1, place=place))


@pytest.mark.parametrize("kind", NATIVE)
def test_producers_and_readers_get_over_it(kind: str) -> None:
    outcome = struck(kind, version=1)
    assert outcome.broken is None
    assert lines(outcome, f"fault {kind} ") == 1
    if kind.startswith("native_"):
        assert 1 <= lines(outcome, f"does so ({kind}) to EndTxnRequest") <= 3


def asked(outcome: Outcome) -> set[str]:
    """Which brokers were asked to end transactions."""
    return {line.split()[2] for line in outcome.trace if "is asked EndTxn" in line}


def test_the_coordinator_moves() -> None:
    calm = struck("forget")
    (home,) = asked(calm)
    elsewhere = 0.1 if home != "1" else 0.5
    moved = struck("coordinator", where=0.0, much=elsewhere)
    assert asked(moved) == {home, "1" if home != "1" else "2"}


def test_an_end_that_is_not_complete_holds_the_next_transaction_up() -> None:
    held, calm = struck("markers", much=0.9), struck("forget")
    assert lines(held, "gets t 0: 1 records") > lines(calm, "gets t 0: 1 records")
