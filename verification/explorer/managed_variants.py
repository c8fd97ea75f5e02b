"""Rules of transactions for clients without transactions, left out one by one, each with the world that shows it."""

from typing import Final

from kproxy.txn.procedures.application_transactions import ApplicationTransaction
from kproxy.txn.procedures.batch_decisions import BatchDecisions
from kproxy.txn.procedures.broker_control import BrokerControl
from kproxy.txn.procedures.managed_transaction import ManagedTransaction
from kproxy.txn.procedures.request_transaction import RequestTransaction
from verification.explorer import broken_managed, invariants
from verification.explorer.variant import Variant

_COMPARES_NOTHING: Final = ((ManagedTransaction, "came", broken_managed.compares_nothing),)
_TAKES_DATA: Final = (
    (ManagedTransaction, "write", broken_managed.takes_data_when_doomed),
    (ManagedTransaction, "_decide", broken_managed.decides_when_doomed),
)

MANAGED_VARIANTS: Final = (
    Variant("repeated records are not compared", _COMPARES_NOTHING, "by hand, balanced", invariants.TWICE),
    Variant("repeated records are not compared", _COMPARES_NOTHING, "by member, balanced", invariants.TWICE),
    Variant(
        "an error dooms nothing",
        ((ManagedTransaction, "failed", broken_managed.dooms_nothing),),
        "by hand, balanced",
        invariants.TWICE,
    ),
    Variant(
        "a doomed transaction takes data, and is committed", _TAKES_DATA, "by hand, apart, overdue", invariants.LOST
    ),
    Variant(
        "a request that fails in part is not aborted",
        ((RequestTransaction, "_write", broken_managed.aborts_no_part),),
        "by request, refused",
        invariants.OPEN,
    ),
    Variant(
        "a request is answered before it is committed",
        ((RequestTransaction, "_write", broken_managed.answers_before_the_end),),
        "by request, lost",
        invariants.LOST,
    ),
    Variant("repeated records are not compared", _COMPARES_NOTHING, "by rule, balanced", invariants.TWICE),
    Variant(
        "a kproxy that has begun believes any consumer",
        ((ApplicationTransaction, "void", broken_managed.begins_anywhere),),
        "by rule, killed",
        invariants.LOST,
    ),
    Variant(
        "an abort is answered though a commit came first",
        ((BatchDecisions, "abort", broken_managed.aborts_as_it_was),),
        "by hand, killed",
        invariants.ABORTED,
    ),
    Variant(
        "a commit that is repeated is another one",
        ((BatchDecisions, "commit", broken_managed.commits_again),),
        "prepared by hand, unheard",
        invariants.DOOMED,
    ),
    Variant(
        "repeated records are not compared",
        _COMPARES_NOTHING,
        "by hand, balanced at the broker, level 1",
        invariants.TWICE,
    ),
    Variant(
        "repeated records are not compared",
        _COMPARES_NOTHING,
        "by hand, balanced at the broker, level 2",
        invariants.TWICE,
    ),
    Variant(
        "a commit at the broker is not remembered",
        ((BrokerControl, "_answered", broken_managed.remembers_no_commit),),
        "by hand, unheard at the broker, level 2",
        invariants.DOOMED,
    ),
    Variant(
        "a request that was replaced is refused",
        ((RequestTransaction, "write", broken_managed.gives_up_when_replaced),),
        "by request, killed at the broker, level 1",
        invariants.FENCED,
    ),
    Variant(
        "a request is answered before it is committed",
        ((RequestTransaction, "_write", broken_managed.answers_before_the_end),),
        "by request, killed at the broker, level 2",
        invariants.LOST,
    ),
    Variant(
        "a request that fails in part is not aborted",
        ((RequestTransaction, "_write", broken_managed.aborts_no_part),),
        "by request, refused at the broker, level 2",
        invariants.OPEN,
    ),
)
