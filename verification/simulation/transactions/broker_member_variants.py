"""Broken on purpose: kproxy without one rule for groups that brokers coordinate, and runs that show the effect."""

from typing import Final

from kproxy.txn.procedures.broker_ends import BrokerEnds
from kproxy.txn.procedures.broker_member import BrokerMember
from kproxy.txn.procedures.member_ids import MemberIds
from kproxy.txn.procedures.votes import Votes
from verification.simulation.transactions import broken_broker_members, broker_member_scripts, invariants
from verification.simulation.transactions.member_history import PREPARED, TOGETHER
from verification.simulation.transactions.variants import Variant

_LOST: Final = (invariants.OUTCOME, invariants.LOST, TOGETHER)

BROKER_MEMBER_VARIANTS: Final = (
    Variant(
        "only who decides tells the brokers",
        ((BrokerEnds, "run", broken_broker_members.by_who_decides_alone),),
        broker_member_scripts.decided_and_gone,
        (invariants.STUCK, *_LOST),
    ),
    Variant(
        "the log says that the broker was informed before it is",
        ((BrokerEnds, "_end_now", broken_broker_members.noted_first),),
        broker_member_scripts.told_unheard,
        (invariants.STUCK, *_LOST),
    ),
    Variant(
        "a member's id is used again before it is ended, and nobody asks",
        ((MemberIds, "joined", broken_broker_members.free_at_once), (Votes, "check", broken_broker_members.unasked)),
        broker_member_scripts.prepared_in_turn,
        (*_LOST, PREPARED),
    ),
    Variant(
        "the brokers are not asked before a decision",
        ((Votes, "check", broken_broker_members.unasked),),
        broker_member_scripts.ended_by_the_broker,
        _LOST,
    ),
    Variant(
        "below transaction.version 2 an id that rests keeps its epoch",
        ((MemberIds, "take_unfenced", broken_broker_members.never_fenced),),
        broker_member_scripts.added_late,
        (invariants.STUCK,),
        first=3,
    ),
    Variant(
        "the log does not say where a member writes",
        ((BrokerMember, "_native", broken_broker_members.nameless),),
        broker_member_scripts.committed,
        (invariants.STUCK, *_LOST),
    ),
)
