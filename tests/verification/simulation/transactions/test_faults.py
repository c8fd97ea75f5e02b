"""Each fault of the transaction log, and of what partitions know, does what it is called."""

import pytest

from tests.verification.simulation.transactions.peers import producer_plan
from verification.simulation.plan import FaultPlan
from verification.simulation.transactions.broker_txn_faults import NATIVE
from verification.simulation.transactions.faults import FAULTS
from verification.simulation.transactions.plan import (
    Life,
    ProducerPlan,
    ReaderPlan,
    Round,
    TransactionPlan,
    world_plan,
)
from verification.simulation.transactions.world import run
from verification.simulation.world import Outcome


def busy() -> ProducerPlan:
    """Twelve transactions of one record, one every 0.2 s."""
    one = TransactionPlan(0.2, (Round(0.0, ((0, 1),)),), 0.0, commits=True)
    return producer_plan(request_timeout=6.0, timeout_ms=15_000, lives=(Life(0.5, 0, (one,) * 12),))


def struck(kind: str, *, where: float = 0.6, much: float = 0.5) -> Outcome:
    faults = (FaultPlan(1.5, kind, where, much),)
    return run(world_plan(1, (busy(),), (ReaderPlan(0, 0, 12),), faults, 1))


def lines(outcome: Outcome, text: str) -> int:
    return sum(text in line for line in outcome.trace)


@pytest.mark.parametrize("kind", [kind for kind in FAULTS if kind not in NATIVE])
def test_producers_and_readers_get_over_it(kind: str) -> None:
    outcome = struck(kind)
    assert outcome.broken is None
    assert lines(outcome, f"fault {kind} ") == 1


@pytest.mark.parametrize("kind", ["log_lost", "log_unheard", "log_slow"])
def test_appends_to_the_log_suffer(kind: str) -> None:
    assert lines(struck(kind), f"does so ({kind})") == 2


def test_a_snapshot_is_in_the_log() -> None:
    before, after = (lines(struck(kind), "1 records of 65535/-1/-1") for kind in ("forget", "snapshot"))
    assert not before
    assert after >= 1


def test_a_late_request_is_held_up() -> None:
    outcome = struck("late", where=0.0)
    assert lines(outcome, "EndTxnRequest is held up for 4.500 s") == 1
