"""What is put in the place of kproxy's rules to see what happens without them."""

from typing import Any, Final

from kproxy.codec._generated.transaction_decision import TransactionDecision
from kproxy.net.txn.owner import Owner
from kproxy.net.txn.transaction import Transaction
from kproxy.txn.ids import Producer
from kproxy.txn.requests import TxnRequest
from kproxy.txn.verdict import Verdict
from kproxy.txn.views import Views

_VERDICT: Final = Views.verdict
_DECISION: Final = Transaction.decision


def no(*_: Any, **__: Any) -> bool:
    """Any question of a rule."""
    return False


def yes(*_: Any, **__: Any) -> bool:
    """Any question of a rule."""
    return True


def keep(*_: Any, **__: Any) -> None:
    """Not done."""


def shows_undecided(self: Views, producer_id: int, epoch: int) -> Verdict:
    """What is not aborted is committed."""
    verdict = _VERDICT(self, producer_id, epoch)
    return Verdict.COMMITTED if verdict is Verdict.UNDECIDED else verdict


def without_copies(self: Transaction, *parts: Any) -> TransactionDecision:
    """Which copy counts is left out."""
    decision = _DECISION(self, *parts)
    for part in decision.parts:
        for topic in part.topics:
            for row in topic.partitions:
                row.copies = []
    return decision


def repeated_whoever_ended(self: Owner, request: TxnRequest, committed: bool) -> Producer | None:
    """An end that stands in the log is the one that is asked for."""
    view = self.keeper.view
    last = view.last if view is not None else None
    if last is None or last.client != request.client or last.next_client == request.client:
        return None
    return last.next_client if last.next_client == self.keeper.client and last.committed == committed else None
