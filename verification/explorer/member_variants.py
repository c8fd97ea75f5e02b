"""Rules of members at brokers, left out one by one, each with the world that shows it."""

from typing import Any, Final

from kproxy.txn.procedures.broker_ends import BrokerEnds
from kproxy.txn.procedures.broker_member import BrokerMember
from kproxy.txn.procedures.broker_members import BrokerMembers
from kproxy.txn.procedures.log_owners import LogOwners
from kproxy.txn.procedures.member_ids import MemberIds
from kproxy.txn.procedures.votes import Votes
from kproxy.txn.view import IdView
from verification.explorer import broken_member_ends, invariants
from verification.explorer.variant import Variant

_USED_TOO_SOON: Final = "an id is used again before its member is ended"


def _one(owner: Any, name: str, new: Any) -> tuple[Any, ...]:
    return ((owner, name, new),)


_TOO_SOON: Final = _one(MemberIds, "view_changed", broken_member_ends.free_when_decided)
_TOLD: Final = _one(BrokerEnds, "_is_told", broken_member_ends.is_told_anyway)

MEMBER_VARIANTS: Final = (
    Variant(_USED_TOO_SOON, _TOO_SOON, "members, unanswered twice, level 1", invariants.ENDED),
    Variant(_USED_TOO_SOON, _TOO_SOON, "members, unanswered twice, level 2", invariants.ENDED),
    Variant(
        "an id rests under the epoch of its last member",
        _one(BrokerMembers, "_fence", broken_member_ends.rests_unfenced),
        "members, unanswered, level 1",
        invariants.OPEN,
    ),
    Variant(
        "an id is used again whose fence had no response",
        _one(BrokerMembers, "_fence", broken_member_ends.fences_and_forgets),
        "members, unanswered, level 1",
        invariants.ENDED,
    ),
    Variant(
        "an id is used again whose InitProducerId had no response",
        _one(BrokerMembers, "make", broken_member_ends.uses_unanswered),
        "members, unanswered, level 2",
        invariants.ENDED,
    ),
    Variant(
        "an end that had no response counts as done", _TOLD, "members, unanswered twice, level 1", invariants.ENDED
    ),
    Variant(
        "an end that had no response counts as done", _TOLD, "members, unanswered twice, level 2", invariants.ENDED
    ),
    Variant(
        "an end is noted before its broker is asked",
        _one(BrokerEnds, "_end_now", broken_member_ends.notes_first),
        "members, killed twice, level 2",
        invariants.OPEN,
    ),
    Variant(
        "members are ended by the commit alone",
        _one(BrokerEnds, "run", broken_member_ends.looks_for_nothing),
        "members, unanswered, level 2",
        invariants.OPEN,
    ),
    Variant(
        "a late end is reported as torn, though another instance was first",
        _one(BrokerEnds, "_note_torn", broken_member_ends.reports_at_once),
        "members, elsewhere, level 1",
        invariants.ENDED,
    ),
    Variant(
        "members that a claim aborts are left to their broker",
        _one(IdView, "_to_be_ended", broken_member_ends.forgets_aborted),
        "members, taken, level 2",
        invariants.OPEN,
    ),
    Variant(
        "a commit is answered before its decision is in the log",
        _one(LogOwners, "decide", broken_member_ends.answers_before_the_decision),
        "members, killed twice, level 2",
        invariants.LOST,
    ),
    Variant(
        "the brokers are not asked before a decision",
        _one(Votes, "check", broken_member_ends.asks_nobody),
        "members, overdue, level 1",
        invariants.NOTICED,
    ),
    Variant(
        "the log does not say where a member writes",
        _one(BrokerMember, "_native", broken_member_ends.names_nothing),
        "members, a pair, level 1",
        invariants.LOST,
    ),
)
