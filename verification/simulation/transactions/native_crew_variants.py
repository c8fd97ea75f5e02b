"""Broken on purpose: kproxy without one rule of groups at home in the broker, and runs that show what it keeps out."""

from typing import Final

from kproxy.net.txn.broker.broker_ends import BrokerEnds
from kproxy.net.txn.broker.broker_member import BrokerMember
from kproxy.net.txn.broker.member_ids import MemberIds
from kproxy.net.txn.broker.votes import Votes
from verification.simulation.transactions import broken_native_crews, invariants, native_crew_scripts
from verification.simulation.transactions.crew_history import PREPARED, TOGETHER
from verification.simulation.transactions.variants import Variant

_LOST: Final = (invariants.OUTCOME, invariants.LOST, TOGETHER)

NATIVE_CREW_VARIANTS: Final = (
    Variant(
        "only who decides tells the brokers",
        ((BrokerEnds, "run", broken_native_crews.by_who_decides_alone),),
        native_crew_scripts.decided_and_gone,
        (invariants.STUCK, *_LOST),
    ),
    Variant(
        "the log says that the broker was told before it is",
        ((BrokerEnds, "_end_now", broken_native_crews.noted_first),),
        native_crew_scripts.told_unheard,
        (invariants.STUCK, *_LOST),
    ),
    Variant(
        "a member's id is used again before it is ended, and nobody asks",
        ((MemberIds, "joined", broken_native_crews.free_at_once), (Votes, "check", broken_native_crews.unasked)),
        native_crew_scripts.prepared_in_turn,
        (*_LOST, PREPARED),
    ),
    Variant(
        "the brokers are not asked before a decision",
        ((Votes, "check", broken_native_crews.unasked),),
        native_crew_scripts.ended_by_the_broker,
        _LOST,
    ),
    Variant(
        "the log does not say where a member writes",
        ((BrokerMember, "_native", broken_native_crews.nameless),),
        native_crew_scripts.committed,
        (invariants.STUCK, *_LOST),
    ),
)
