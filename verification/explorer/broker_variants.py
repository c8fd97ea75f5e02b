"""A client's continuation at the broker without one of its rules, each with the world that shows its use."""

from typing import Any, Final

from kproxy.net.txn.broker.broker_requests import BrokerRequests
from kproxy.txn.procedures import broker_owner, continuing
from kproxy.txn.procedures.broker_owner import BrokerOwner
from kproxy.txn.procedures.kept_epoch import KeptEpoch
from verification.explorer import broken_continuing as rules
from verification.explorer import invariants
from verification.explorer.variant import Variant


def _continues(how: Any) -> tuple[Any, ...]:
    return ((broker_owner, "continue_client", how),)


def _judges(how: Any) -> tuple[Any, ...]:
    return ((continuing, "_outcome", how),)


_AT_THE_END: Final = (
    (KeptEpoch, "put", rules.puts_nothing),
    (BrokerOwner, "_ask_to_end", rules.records_at_the_end),
)

_DOES_NOT_WAIT: Final = ((KeptEpoch, "recorded", rules.does_not_wait),)
_OVER_A_COMMIT: Final = "killed over a commit, slow log, level"

BROKER_VARIANTS: Final = (
    Variant(
        "an abort that the log lacks",
        _judges(rules.loses_nothing_unrecorded),
        "restarted twice, level 1",
        invariants.LOST,
    ),
    Variant(
        "one epoch for a successor",
        _continues(rules.asks_for_one_epoch),
        "restarted early, slow log, level 2",
        invariants.OPEN,
    ),
    Variant(
        "one epoch for a successor",
        _continues(rules.asks_for_one_epoch),
        "restarted thrice, level 1",
        invariants.ABORTED,
    ),
    Variant(
        "what another has open is the client's",
        _continues(rules.takes_all_for_its_own),
        "restarted, slow log, level 1",
        invariants.ABORTED,
    ),
    Variant(
        "no wait for a slow log",
        _DOES_NOT_WAIT,
        _OVER_A_COMMIT + " 2",
        invariants.ABORTED,
    ),
    Variant(
        "no wait for a slow log",
        _DOES_NOT_WAIT,
        _OVER_A_COMMIT + " 1",
        invariants.ABORTED,
    ),
    Variant(
        "in the name of the broker's epoch",
        _continues(rules.trusts_the_broker),
        "restarted, replaced, level 2",
        invariants.LOST,
    ),
    Variant("an epoch is recorded before its end only", _AT_THE_END, "restarted, level 2", invariants.FENCED),
    Variant(
        "an open transaction is ignored", _judges(rules.ignores_what_is_open), "restarted, level 2", invariants.LOST
    ),
    Variant(
        "an open transaction is described",
        ((continuing, "_abort", rules.leaves_it_open),),
        "restarted, level 2",
        invariants.ABORTED,
    ),
    Variant(
        "the outcome is answered before the epoch is granted",
        _continues(rules.tells_before),
        "restarted twice, replaced, level 2",
        invariants.LOST,
    ),
    Variant(
        "two steps between two records", _continues(rules.records_once), "restarted twice, level 2", invariants.FENCED
    ),
    Variant(
        "a repeated commit is fenced, which is an abort",
        ((BrokerRequests, "end", rules.is_denied),),
        "repeated commit, level 2",
        invariants.ABORTED,
    ),
    Variant(
        "a repeated commit is fenced, which is an abort",
        ((BrokerRequests, "end", rules.is_denied),),
        "repeated commit, level 1",
        invariants.ABORTED,
    ),
    Variant(
        "nothing open is aborted, too",
        _continues(rules.aborts_always),
        "killed over a commit, level 2",
        invariants.ABORTED,
    ),
    Variant(
        "an abort since the record has aborted nothing",
        _judges(rules.loses_nothing_since),
        "restarted twice, level 2",
        invariants.LOST,
    ),
)
