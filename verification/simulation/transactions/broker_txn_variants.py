"""Broken on purpose: kproxy without one rule of the brokers' transactions, and the runs that show what it keeps out."""

from typing import Final

from kproxy.net.txn.broker.broker_requests import BrokerRequests
from kproxy.net.txn.broker.stable_groups import StableGroups
from kproxy.txn.client_sequences import ClientSequences
from kproxy.txn.procedures import broker_owner, broker_protocol, continuing
from kproxy.txn.procedures.broker_owner import BrokerOwner
from kproxy.txn.procedures.kept_epoch import KeptEpoch
from kproxy.txn.procedures.managed_transaction import ManagedTransaction
from kproxy.txn.procedures.transaction import Transaction
from kproxy.txn.transactional_id import TransactionalId
from verification.simulation.transactions import broken_broker_rules, broken_rules, broker_txn_scripts, invariants
from verification.simulation.transactions.variants import Variant

_LOST: Final = (invariants.OUTCOME, invariants.LOST)
_OTHERS: Final = (invariants.ABORTED, invariants.TORN, invariants.OUTCOME, invariants.ZOMBIE)

NATIVE_VARIANTS: Final = (
    Variant(
        "an EndTxn without a response is reported as a success",
        ((BrokerRequests, "end", broken_broker_rules.told_without_an_answer),),
        broker_txn_scripts.ended_unheard,
        _LOST,
    ),
    Variant(
        "the next transaction begins under the epoch of the last",
        ((BrokerOwner, "_renew", broken_broker_rules.keeps_the_epoch),),
        broker_txn_scripts.ended_late,
        (*_LOST, *_OTHERS, invariants.OFFSETS),
    ),
    Variant(
        "a client's EndTxn over an old connection is let in",
        ((TransactionalId, "admit", broken_rules.admits_any_connection),),
        broker_txn_scripts.ended_twice,
        _OTHERS,
    ),
    Variant(
        "a client's batch that comes late is taken for a new one",
        ((ClientSequences, "order", broken_broker_rules.always_next),),
        broker_txn_scripts.written_late,
        (invariants.DUPLICATE,),
    ),
    Variant(
        "a sequence that is used again in a later transaction is taken for a repeated batch",
        ((ClientSequences, "order", broken_rules.used_is_repeated),),
        broker_txn_scripts.sequence_reused,
        (invariants.OUTCOME,),
    ),
    Variant(
        "a late copy of a batch of the transaction before is taken for a new one",
        ((ClientSequences, "order", broken_rules.used_is_new),),
        broker_txn_scripts.copied_late,
        (invariants.ABORTED,),
    ),
    Variant(
        "a late copy of a batch of the transaction before dooms the next",
        ((Transaction, "accept", broken_rules.dooms_by_what_is_refused),),
        broker_txn_scripts.copied_late,
        (invariants.CAUSE,),
    ),
    Variant(
        "a former owner of the id keeps writing beside its owner",
        ((BrokerOwner, "_admit", broken_broker_rules.admits_who_had_it),),
        broker_txn_scripts.taken_over,
        _OTHERS,
    ),
    Variant(
        "a fence in response to a repeated commit is taken for an abort",
        ((broker_protocol, "REPLACED", frozenset()),),
        broker_txn_scripts.replaced_at_the_end,
        (invariants.OUTCOME,),
    ),
    Variant(
        "a client that has no next epoch is answered that it was replaced, and not that its commit is open",
        ((BrokerOwner, "_raise_epoch", broken_broker_rules.denies_its_commit),),
        broker_txn_scripts.replaced_after_the_end,
        (invariants.OUTCOME,),
    ),
    Variant(
        "a commit does not mind a batch that was refused",
        ((BrokerOwner, "_check_written", broken_rules.keep),),
        broker_txn_scripts.refused,
        _LOST,
    ),
    Variant(
        "offsets go without their member and generation",
        ((BrokerRequests, "commit_offsets", broken_broker_rules.without_a_generation),),
        broker_txn_scripts.moved_on_before_the_offsets,
        (invariants.INPUT,),
    ),
    Variant(
        "the epoch of a client is not in the log",
        ((KeptEpoch, "put", broken_rules.keep),),
        broker_txn_scripts.restarted_between,
        (invariants.CAUSE,),
    ),
    Variant(
        "what was open when kproxy was killed is ignored",
        ((continuing, "_outcome", broken_broker_rules.nothing_was_open),),
        broker_txn_scripts.restarted_within,
        (*_LOST, *_OTHERS),
    ),
    Variant(
        "what was being ended when kproxy was killed is taken for aborted",
        ((continuing, "_outcome", broken_broker_rules.all_is_lost),),
        broker_txn_scripts.restarted_at_the_end,
        (*_LOST, *_OTHERS),
    ),
    Variant(
        "a client continues under the newest epoch",
        ((broker_owner, "continue_client", broken_broker_rules.in_the_brokers_name),),
        broker_txn_scripts.replaced_before_the_restart,
        (*_LOST, *_OTHERS, invariants.CAUSE, invariants.FENCED),
    ),
    Variant(
        "an OffsetFetch does not wait until the offsets are stable",
        ((StableGroups, "wait", broken_broker_rules.at_once),),
        broker_txn_scripts.restarted_before_the_markers,
        (invariants.INPUT,),
    ),
    Variant(
        "a lost answer dooms nothing",
        ((ManagedTransaction, "failed", broken_rules.keep),),
        broker_txn_scripts.sent_again,
        (invariants.DUPLICATE,),
    ),
)
