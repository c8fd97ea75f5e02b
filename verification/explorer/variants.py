"""The coordinator without one of its rules, each with the small world that shows what the rule is for."""

from typing import Final

from kproxy.txn import view
from kproxy.txn.client_sequences import ClientSequences
from kproxy.txn.procedures.announcements import Announcements
from kproxy.txn.procedures.claim_keeper import ClaimKeeper
from kproxy.txn.procedures.former_epochs import FormerEpochs
from kproxy.txn.procedures.log_decider import LogDecider
from kproxy.txn.procedures.log_owner import LogOwner
from kproxy.txn.procedures.log_owners import LogOwners
from kproxy.txn.procedures.pending_offsets import PendingOffsets
from kproxy.txn.procedures.takeover import Takeover
from kproxy.txn.procedures.transaction import Transaction
from kproxy.txn.transactional_id import TransactionalId
from kproxy.txn.view import IdView
from verification.explorer import broken_rules, invariants
from verification.explorer.variant import Variant
from verification.simulation.transactions import broken_rules as rules

VARIANTS: Final = (
    Variant(
        "an id that is taken over is claimed last",
        ((Takeover, "_continue", broken_rules.claims_last),),
        "spread, TV1",
        invariants.LOST,
    ),
    Variant(
        "what a former instance wrote is fenced when it was read",
        ((FormerEpochs, "_read", broken_rules.reads_first),),
        "spread, TV2",
        invariants.TORN,
    ),
    Variant(
        "what a former instance wrote is not fenced",
        ((FormerEpochs, "_read", broken_rules.fences_nothing),),
        "spread, TV2",
        invariants.TORN,
    ),
    Variant(
        "what a client repeats is not compared with what is there",
        ((ClientSequences, "restore", rules.keep),),
        "moved on, TV2",
        invariants.TWICE,
    ),
    Variant(
        "a decision leaves out what other instances have written",
        ((Transaction, "decision", rules.without_former),),
        "spread, TV1",
        invariants.LOST,
    ),
    Variant(
        "all of a former epoch counts",
        ((IdView, "_note_copies", broken_rules.counts_everything),),
        "forgotten, TV2",
        invariants.TWICE,
    ),
    Variant(
        "partitions are not announced",
        ((Announcements, "announce", broken_rules.announces_nothing),),
        "spread, TV1",
        invariants.NOTICED,
    ),
    Variant(
        "an announcement that is not acknowledged is taken for one that is there",
        ((ClaimKeeper, "announce", rules.announces_in_doubt),),
        "lost, TV1",
        invariants.NOTICED,
    ),
    Variant(
        "an announcement is given up, and its sequence goes to the decision",
        (
            (ClaimKeeper, "_append", rules.uses_the_sequence_again),
            (ClaimKeeper, "announce", rules.announces_in_doubt),
        ),
        "lost, TV2",
        invariants.NOTICED,
    ),
    Variant(
        "nobody is fenced where a partition joins",
        ((Announcements, "fence_others", broken_rules.fences_nobody),),
        "stood still, TV1",
        invariants.LOST,
    ),
    Variant(
        "others are fenced when the client has heard that a partition has joined",
        ((LogOwner, "join", broken_rules.joins_and_fences_then),),
        "stood still, TV1",
        invariants.LOST,
    ),
    Variant(
        "a partition that joins again is no reason to read the log",
        ((LogOwner, "join", broken_rules.joins_by_what_it_knows),),
        "stood still for longer, TV1",
        invariants.LOST,
    ),
    Variant(
        "a decision counts under any claim",
        ((IdView, "is_ours", rules.yes),),
        "moved, TV1",
        invariants.OPEN,
    ),
    Variant(
        "group offsets are not in the log",
        ((PendingOffsets, "append", broken_rules.takes_offsets_at_their_word),),
        "offsets, TV1",
        invariants.OFFSETS,
    ),
    Variant(
        "what is overdue is forgotten without a claim",
        ((LogOwner, "_lose", rules.lost_without_a_claim),),
        "overdue, TV1",
        invariants.OPEN,
    ),
    Variant(
        "a client whose abort a claim has settled keeps its epoch, and used sequences are repeated batches",
        (
            (LogOwner, "_raise_epoch", rules.keeps_its_epoch),
            (ClientSequences, "order", rules.used_is_repeated),
        ),
        "aborted, TV2",
        invariants.ANSWERED,
    ),
    Variant(
        "a client receives the newest identity of its id",
        ((LogDecider, "_take_decided", rules.takes_the_newest_identity),),
        "rivals elsewhere, TV2",
        invariants.GIVEN,
    ),
    Variant(
        "a claim may name an identity that a decision has given",
        ((view, "_comes_after", broken_rules.any_identity_is_new),),
        "rivals elsewhere, TV2",
        invariants.GIVEN,
    ),
    Variant(
        "an InitProducerId that was answered claims the id again",
        ((LogOwner, "initialize", rules.initializes_again),),
        "renewed, TV2",
        invariants.LOST,
    ),
    Variant(
        "an InitProducerId that is refused gives up the claim",
        ((Takeover, "answered", broken_rules.gives_up_its_claim),),
        "renewed, TV2",
        invariants.DOOMED,
    ),
    Variant(
        "the last end is forgotten with its id",
        ((LogOwners, "answer_expired", rules.keep),),
        "expired, TV2",
        invariants.FENCED,
    ),
    Variant(
        "a late batch of the transaction before is taken for a new one",
        ((ClientSequences, "order", rules.used_is_new),),
        "late, TV1",
        invariants.ABORTED,
    ),
    Variant(
        "an EndTxn over an old connection is let in",
        ((TransactionalId, "admit", rules.admits_any_connection),),
        "late, TV1",
        invariants.DOOMED,
    ),
)
