"""Broken on purpose: kproxy without one rule of members or prepared parts, and the runs that show what it keeps out."""

from typing import Final

from kproxy.net.txn.topic_policies import TopicPolicies
from kproxy.txn import prepared_parts
from kproxy.txn import view as view_module
from kproxy.txn.procedures import batch_decisions, log_owner, members
from kproxy.txn.procedures.implicit_transactions import ImplicitTransactions
from kproxy.txn.procedures.log_decider import LogDecider
from kproxy.txn.procedures.log_owner import LogOwner
from kproxy.txn.procedures.member import Member
from kproxy.txn.procedures.rejects import Rejects
from verification.simulation.transactions import broken_members, broken_rules, invariants, member_scripts
from verification.simulation.transactions.member_history import ONCE, PREPARED, TOGETHER
from verification.simulation.transactions.variants import Variant

_LOST: Final = (invariants.OUTCOME, invariants.LOST)

MEMBER_VARIANTS: Final = (
    Variant(
        "members write without a word to the log",
        ((Member, "join", broken_members.joins_in_silence), (Member, "_announce", broken_members.writes_in_silence)),
        member_scripts.left_open,
        (invariants.STUCK,),
    ),
    Variant(
        "a member joins under its owner's producer id, and the broker's answer to the decision is reported",
        (
            (Member, "join", broken_members.joins_as_its_owner),
            (LogDecider, "decide", broken_rules.told_by_the_broker),
            (log_owner, "is_any_prepared", broken_rules.no),
        ),
        member_scripts.committed_alone,
        _LOST,
    ),
    Variant(
        "a member is refused the name under which its own earlier try has joined",
        ((members, "named_parts", broken_members.named_by_anybody),),
        member_scripts.joined_late,
        (invariants.CAUSE,),
    ),
    Variant(
        "a claim aborts what is prepared",
        ((view_module, "_RULES", broken_members.CLAIMS_EVERYTHING),),
        member_scripts.prepared_for_long,
        (PREPARED,),
    ),
    Variant(
        "a part is reported as prepared when its record was sent",
        ((Member, "_until_prepared", broken_members.prepared_when_sent),),
        member_scripts.prepared_unheard,
        (PREPARED,),
    ),
    Variant(
        "what is prepared is decided by a former owner of the id",
        ((view_module, "_RULES", broken_members.DECIDES_AS_FORMER),),
        member_scripts.decided_late,
        (TOGETHER,),
    ),
    Variant(
        "a commit covers what another owner has prepared itself",
        (
            (prepared_parts, "_own_parts", broken_members.covers_every_own_part),
            (batch_decisions, "refuse_ambiguous", broken_rules.keep),
        ),
        member_scripts.prepared_by_another,
        (invariants.ABORTED,),
    ),
    Variant(
        "a commit leaves out what a former owner has prepared itself with the members that it names",
        ((prepared_parts, "_own_parts", broken_members.covers_its_own_part),),
        member_scripts.prepared_with_own,
        (TOGETHER,),
    ),
    Variant(
        "a decision that has nothing to wait for is interrupted by a new producer",
        ((LogOwner, "_why_not", broken_members.waits_with_nothing),),
        member_scripts.initialized_meanwhile,
        (PREPARED,),
    ),
    Variant(
        "a batch id is not kept",
        ((view_module, "_RULES", broken_members.FORGETS_BATCHES),),
        member_scripts.committed_unheard,
        (ONCE,),
    ),
    Variant(
        "a client of a member that has ended writes plain records",
        ((ImplicitTransactions, "of", broken_members.writes_without_a_member),),
        member_scripts.outlived,
        (invariants.ABORTED,),
    ),
    Variant(
        "a member's producer id is rejected before the log was read",
        ((Rejects, "_reject", broken_members.rejects_unread),),
        member_scripts.rejected_unread,
        (*_LOST, TOGETHER),
        12,
    ),
    Variant(
        "members write to compacted topics",
        ((TopicPolicies, "is_compacted", broken_members.not_asked),),
        member_scripts.compacted,
        _LOST,
    ),
)
