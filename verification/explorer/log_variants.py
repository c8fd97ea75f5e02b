"""Rules of the log, its snapshots, groups and members, replaced one by one, each with the world that shows its use."""

from functools import partial
from typing import Final

from kproxy.net.txn import group_offset_requests, snapshots
from kproxy.net.txn.log_partition import LogPartition
from kproxy.net.txn.snapshots import Snapshots
from kproxy.txn import claims, logged_group_offsets, views
from kproxy.txn import view as view_module
from kproxy.txn.procedures import claim_keeper, log_owner, pending_offsets
from kproxy.txn.procedures.claim_keeper import ClaimKeeper
from kproxy.txn.procedures.log_decider import LogDecider
from kproxy.txn.procedures.member import Member
from kproxy.txn.procedures.pending_offsets import PendingOffsets
from kproxy.txn.procedures.rejects import Rejects
from kproxy.txn.procedures.transaction import Transaction
from kproxy.txn.view import IdView
from kproxy.txn.writes import Writes
from verification.explorer import broken_claims, broken_groups, broken_rejects, broken_snapshots, invariants
from verification.explorer.variant import Variant
from verification.simulation.transactions import broken_members
from verification.simulation.transactions import broken_rules as rules

_BY_THE_BROKER: Final = ((LogDecider, "decide", rules.told_by_the_broker),)
_BELIEVED: Final = (
    (ClaimKeeper, "claim_once", broken_claims.believes_the_log),
    (ClaimKeeper, "holds", broken_claims.holds_what_it_has),
    (ClaimKeeper, "take_epoch", broken_claims.takes_its_own_epoch),
)
_UNREAD: Final = (
    (Rejects, "_reject", broken_rejects.rejects_unread),
    (Rejects, "look", broken_rejects.looks_unread),
)
_EPOCH_BY_EPOCH: Final = (
    (claim_keeper, "next_claim", partial(claims.next_claim, epochs=1)),
    (claim_keeper, "needs_producer_id", partial(claims.needs_producer_id, epochs=1)),
    (ClaimKeeper, "take_epoch", broken_claims.takes_the_next_epoch),
    (view_module, "_RULES", broken_claims.CLAIMS_BY_WRITING),
)
_FOR_ANYBODY: Final = (
    (ClaimKeeper, "claim_to_initialize", broken_claims.continues_for_anybody),
    (view_module, "_continued_by", broken_claims.continued_by_anybody),
)
_MEMBER_ALONE: Final = (
    (PendingOffsets, "check_member", broken_groups.checks_the_member),
    (pending_offsets, "one_of_each_member", broken_groups.forgets_the_generation),
)
_SILENT_MEMBER: Final = (
    (Member, "join", broken_members.joins_in_silence),
    (Member, "_announce", broken_members.writes_in_silence),
)
_MEMBER_AS_OWNER: Final = (
    *_BY_THE_BROKER,
    (Member, "join", broken_members.joins_as_its_owner),
    (log_owner, "is_any_prepared", rules.no),
)

LOG_VARIANTS: Final = (
    # claims and decisions
    Variant("a claim is believed that the log took", _BELIEVED, "rivals elsewhere, TV2", invariants.NOTICED),
    Variant("a claim is believed that the log took", _BELIEVED, "forgotten log, moved", invariants.NOTICED),
    Variant("the next epoch needs no claim", _EPOCH_BY_EPOCH, "repeated, TV1", invariants.NOTICED),
    Variant("a client receives the log's response", _BY_THE_BROKER, "forgotten log, TV1", invariants.LOST),
    Variant("a client receives the log's response", _BY_THE_BROKER, "last block", invariants.LOST),
    Variant(
        "the decision before is adopted",
        ((view_module, "_RULES", rules.CLAIMS_IN_SILENCE),),
        "overdue and killed",
        invariants.LOST,
    ),
    Variant(
        "an abort of kproxy's own is not told", ((IdView, "is_doomed", False),), "overdue and killed", invariants.LOST
    ),
    Variant(
        "an abort of nothing needs no claim",
        ((LogDecider, "check_nothing_open", broken_members.not_asked),),
        "aborted elsewhere",
        invariants.OPEN,
    ),
    Variant("a claim continues for anybody", _FOR_ANYBODY, "renewed instead, TV2", invariants.ANSWERED),
    # data
    Variant(
        "which copy counts is left out",
        ((Transaction, "decision", rules.without_copies),),
        "resent",
        invariants.TWICE,
    ),
    Variant(
        "the sequence of a refused batch goes to the next",
        ((Writes, "refused", rules.gives_the_sequence_on),),
        "refused",
        invariants.ANSWERED,
    ),
    # groups
    Variant(
        "the generation is not checked after the offsets",
        ((pending_offsets, "one_of_each_member", rules.nothing),),
        "shared group, TV1",
        invariants.INPUT,
    ),
    Variant(
        "an OffsetFetch does not wait for what is undecided",
        ((group_offset_requests, "undecided", rules.nothing),),
        "shared group, TV1",
        invariants.INPUT,
    ),
    Variant("the member is checked in any generation", _MEMBER_ALONE, "shared group, back, TV2", invariants.INPUT),
    Variant(
        "of two ids' offsets the older count",
        ((logged_group_offsets, "_rank", broken_groups.ranks_the_oldest_first),),
        "shared group, in turn, TV2",
        invariants.INPUT,
    ),
    Variant(
        "offsets stay with the epoch before",
        ((IdView, "_continue", broken_groups.leaves_offsets),),
        "offsets killed twice",
        invariants.OFFSETS,
    ),
    # snapshots
    Variant(
        "records are deleted before their snapshot is there",
        ((Snapshots, "take", rules.deletes_first),),
        "snapshots",
        invariants.LOADED,
    ),
    Variant(
        "a reader that lags continues at the log's start",
        ((LogPartition, "restart", rules.goes_on_at_the_start),),
        "snapshots unread",
        invariants.LOADED,
    ),
    Variant(
        "a snapshot is loaded when one chunk is there",
        ((views, "PartitionLoader", broken_snapshots.HastyLoader),),
        "snapshots in halves",
        invariants.LOADED,
    ),
    Variant(
        "a snapshot states what its writer has sent",
        ((Snapshots, "take", broken_snapshots.states_what_was_sent),),
        "snapshots continued",
        invariants.LOADED,
    ),
    Variant(
        "a snapshot leaves out which epochs are continued",
        ((snapshots, "snapshot_records", broken_snapshots.STATES_NO_FORMER),),
        "snapshots continued",
        invariants.LOADED,
    ),
    Variant(
        "a snapshot leaves out where former data end",
        ((snapshots, "snapshot_records", broken_snapshots.STATES_NO_ENDS),),
        "snapshots continued",
        invariants.LOADED,
    ),
    # members, and what is prepared
    Variant("members join in silence", _SILENT_MEMBER, "prepared, killed", invariants.NOTICED),
    Variant("a member joins under its owner's producer id", _MEMBER_AS_OWNER, "prepared, killed", invariants.PREPARED),
    Variant(
        "a claim aborts what is prepared",
        ((view_module, "_RULES", broken_members.CLAIMS_EVERYTHING),),
        "prepared, restarted",
        invariants.PREPARED,
    ),
    Variant(
        "a claim aborts what is prepared",
        ((view_module, "_RULES", broken_members.CLAIMS_EVERYTHING),),
        "prepared, killed",
        invariants.PREPARED,
    ),
    Variant(
        "a part is prepared when that was sent",
        ((Member, "_until_prepared", broken_members.prepared_when_sent),),
        "prepared, restarted",
        invariants.PREPARED,
    ),
    Variant(
        "a former owner decides what is prepared",
        ((view_module, "_RULES", broken_members.DECIDES_AS_FORMER),),
        "prepared by members",
        invariants.TORN,
    ),
    # rejected producer ids
    Variant(
        "nothing is rejected", ((Rejects, "_reject", broken_rejects.rejects_nothing),), "stray data", invariants.OPEN
    ),
    Variant("a producer id is rejected unread", _UNREAD, "met before they are read", invariants.LOST),
    Variant("a producer id is rejected unread", _UNREAD, "a member met", invariants.LOST),
    Variant(
        "a producer id is rejected that nobody met",
        ((Rejects, "reject", broken_rejects.rejects_what_nobody_met),),
        "named by an operator",
        invariants.LOST,
    ),
)
