"""Open transactions survive their kproxy in simulated runs: they are continued, and nothing is lost or doubled."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest

from kproxy.proxy.coordinator_rules import Home
from kproxy.txn.procedures import log_owner, takeover
from kproxy.txn.procedures.former import Former
from kproxy.txn.procedures.transaction import Transaction
from kproxy.txn.view import IdView
from verification.simulation.transactions import scripts
from verification.simulation.transactions.plan import ROAMING, Taste, make_plan
from verification.simulation.transactions.world import CONTINUED, run

_RESTORE = takeover.restore


@contextmanager
def counting(found: list[str]) -> Iterator[None]:
    """Adds the id of each transaction that is continued."""

    def restore(transaction: Transaction, former: Former, view: IdView, *what: Any) -> None:
        found.append(view.transactional_id)
        _RESTORE(transaction, former, view, *what)

    with patch.object(log_owner, "restore", restore):
        yield


@pytest.mark.parametrize("seed", range(4))
def test_a_transaction_survives_four_crashes(seed: int) -> None:
    found: list[str] = []
    with counting(found):
        assert run(scripts.continued(seed)).broken is None
    assert len(found) == 4


def test_runs_with_crashes_continue_transactions() -> None:
    found: list[str] = []
    crashes = replace(Taste(), homes=(Home.KPROXY,), faults=("crash",), fault_count=(6, 10), timeouts_ms=(15_000,))
    with counting(found):
        for seed in range(3):
            assert run(make_plan(seed, crashes)).broken is None
    assert found


def test_clients_that_go_to_other_kproxies_continue_their_transactions_there() -> None:
    outcomes = [run(make_plan(seed, ROAMING)) for seed in range(3)]
    assert [outcome.broken for outcome in outcomes] == [None] * len(outcomes)
    assert any(outcome.seen[CONTINUED] for outcome in outcomes)
