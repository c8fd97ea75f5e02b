"""Rules by which a prepared member can still be committed: the broker that keeps its data may have aborted them.

They hold before the decision is written: after it every member must end as decided, or the transaction is torn.
"""

from typing import Final

from kproxy.codec._generated.describe_transactions import (
    DescribeTransactionsResponseTransactionState as Described,
)
from kproxy.codec.messages import ErrorCode
from kproxy.txn.ids import Producer
from kproxy.txn.prepared_parts import DecisionScope, prepared_parts
from kproxy.txn.states import TransactionState
from kproxy.txn.txn_error import TxnError
from kproxy.txn.view import IdView
from kproxy.txn.view_values import Joined

#: So long, or a tenth of its time-out if that is less, a member must have left: to be told of the decision.
_MARGIN_MS: Final = 10_000


def members_to_ask(view: IdView, also: DecisionScope) -> list[Joined]:
    """The members of a decision whose data brokers keep from readers; those that wrote nothing need not be asked."""
    asked = [
        view.members.get(Producer(record.producer_id, record.epoch))
        for record in prepared_parts(view, also)
        if record.topics
    ]
    return [joined for joined in asked if joined is not None and joined.broker_transaction is not None]


def told_expiry_ms(joined: Joined, told: Described | None) -> int:
    """The time at which the broker aborts a member, by its description. TxnError (TRANSACTION_ABORTABLE) if it has."""
    transaction = joined.broker_transaction
    assert transaction is not None
    state = told.transaction_state if told is not None else "unknown"
    is_open = state == TransactionState.ONGOING.value
    if told is None or not is_open or (told.producer_id, told.producer_epoch) != transaction.producer:
        name = transaction.transactional_id
        raise _lost(joined, f"the broker has ended {name}, where it wrote (it is {state})")
    return told.transaction_start_time_ms + told.transaction_timeout_ms


def refuse_expiring(joined: Joined, until_ms: int, now_ms: float) -> None:
    """TxnError (TRANSACTION_ABORTABLE) if the broker may abort a member, at ``until_ms``, before it is ended."""
    transaction = joined.broker_transaction
    assert transaction is not None
    left_ms = until_ms - now_ms
    if left_ms < min(_MARGIN_MS, transaction.timeout_ms / 10):
        name = transaction.transactional_id
        raise _lost(joined, f"the broker aborts {name}, where it wrote, in {left_ms:.0f} ms")


def _lost(joined: Joined, why: str) -> TxnError:
    member = f"member {joined.name}" if joined.name else "the owner's part"
    return TxnError(ErrorCode.TRANSACTION_ABORTABLE, f"{member} can't be committed any more: {why}")
