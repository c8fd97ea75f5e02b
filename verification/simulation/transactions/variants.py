"""Broken on purpose: kproxy without one rule of its transactions, and the runs that show what the rule keeps out."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Final
from unittest.mock import patch

from kproxy.net.txn import group_offset_requests
from kproxy.net.txn.log_partition import LogPartition
from kproxy.net.txn.snapshots import Snapshots
from kproxy.net.txn.stable_offsets import StableOffsets
from kproxy.proxy.coordinator_rules import Home
from kproxy.txn import view as view_module
from kproxy.txn import views as views_module
from kproxy.txn.client_sequences import ClientSequences
from kproxy.txn.last_stable import LastStable
from kproxy.txn.procedures import pending_offsets
from kproxy.txn.procedures.announcements import Announcements
from kproxy.txn.procedures.claim_keeper import ClaimKeeper
from kproxy.txn.procedures.log_decider import LogDecider
from kproxy.txn.procedures.log_owner import LogOwner
from kproxy.txn.procedures.log_owners import LogOwners
from kproxy.txn.procedures.owner_requests import OwnerRequests
from kproxy.txn.procedures.transaction import Transaction
from kproxy.txn.transactional_id import TransactionalId
from kproxy.txn.view import IdView
from kproxy.txn.views import Views
from kproxy.txn.writes import Writes
from verification.explorer.broken_snapshots import HastyLoader
from verification.simulation.transactions import broken_rules, group_scripts, invariants, late_scripts, scripts
from verification.simulation.transactions.homes import LONE_FAULTS
from verification.simulation.transactions.plan import Taste, WorldPlan, make_plan


@dataclass(frozen=True, slots=True)
class Variant:
    """One rule less."""

    #: The name of the change.
    name: str
    changes: tuple[broken_rules.Change, ...]
    #: Of a taste, or made by hand.
    runs: Taste | Callable[[int], WorldPlan]
    #: The invariants of which one breaks.
    breaks: tuple[str, ...]
    #: So many seeds show it at most.
    seeds: int = 3
    #: A seed that showed it when this was written: it is tried first.
    first: int = 0

    @property
    def tried(self) -> Iterator[int]:
        """The seeds in the order in which they are tried."""
        yield from (self.first, *range(self.seeds))

    def plan(self, seed: int) -> WorldPlan:
        """One of the runs."""
        return make_plan(seed, self.runs) if isinstance(self.runs, Taste) else self.runs(seed)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Leaves the rule out until the block ends."""
        with ExitStack() as stack:
            for owner, name, new in self.changes:
                stack.enter_context(patch.object(owner, name, new))
            yield


_BUSY: Final = Taste(homes=(Home.KPROXY,), pauses=(0.0,), gaps=(0.0, 0.05), lives=(2, 3))
_RIVALS: Final = replace(_BUSY, twins=1.0, producers=(2, 3), commits=1.0)
_SEEDS: Final = 40
_BY_ACK: Final = (LogDecider, "decide", broken_rules.told_by_the_broker)
#: A kproxy that has lost what the log said shows nothing, or hides what was committed.
_HIDDEN: Final = (invariants.LOST, invariants.OUTCOME, invariants.STUCK, invariants.SKIPPED, invariants.FALLS)

VARIANTS: Final = (
    Variant(
        "undecided data are shown",
        ((Views, "verdict", broken_rules.shows_undecided),),
        replace(_BUSY, faults=()),
        (invariants.ABORTED,),
        _SEEDS,
        first=3,
    ),
    Variant(
        "a decision counts under any nonce",
        ((IdView, "is_ours", broken_rules.yes),),
        replace(_RIVALS, faults=("log_slow", "upstream_delay")),
        invariants.INVARIANTS,
        _SEEDS,
        first=1,
    ),
    Variant(
        "what was read of the log so far tells the last stable offset",
        ((StableOffsets, "stable", broken_rules.without_reading_on),),
        replace(_BUSY, faults=(), instances=(3,)),
        (invariants.STABLE, invariants.FALLS),
        _SEEDS,
        first=1,
    ),
    Variant(
        "what a reader starts from is taken for decided",
        ((LastStable, "looked_at", broken_rules.from_anywhere),),
        scripts.read_beyond,
        (invariants.STABLE,),
    ),
    Variant(
        "other copies are shown",
        ((Views, "is_other_copy", broken_rules.no),),
        scripts.copied,
        (invariants.DUPLICATE,),
    ),
    Variant(
        "a decision does not say which copies count",
        ((Transaction, "decision", broken_rules.without_copies),),
        scripts.copied,
        (invariants.DUPLICATE,),
    ),
    Variant(
        "a claim ends nothing that is not known to be over",
        ((IdView, "_is_below_claim", broken_rules.no),),
        replace(_BUSY, faults=("crash",), dies=0.8),
        (invariants.STUCK,),
        _SEEDS,
    ),
    Variant(
        "nobody ends what is overdue",
        (
            (LogOwner, "is_overdue", broken_rules.no),
            (LogOwners, "end_overdue", broken_rules.keep),
        ),
        scripts.overdue_here,
        (invariants.STUCK,),
    ),
    Variant(
        "what is overdue is forgotten without a claim",
        (
            (LogOwner, "_lose", broken_rules.lost_without_a_claim),
            (LogOwners, "end_overdue", broken_rules.keep),
        ),
        scripts.overdue_here,
        (invariants.STUCK,),
    ),
    Variant(
        "what is overdue elsewhere is taken for aborted without a claim",
        ((LogOwners, "end_overdue", broken_rules.ended_without_a_claim),),
        scripts.overdue_elsewhere,
        _HIDDEN,
    ),
    Variant(
        "the end that another producer's claim made is reported as one's own",
        ((LogOwner, "_repeated", broken_rules.repeated_whoever_ended),),
        replace(_RIVALS, faults=(), second_version=(True,), instances=(1,), commits=0.2),
        (invariants.FENCED,),
        _SEEDS,
        first=20,
    ),
    Variant(
        "a claim is believed by its acknowledgement",
        broken_rules.believed_by_its_acknowledgement(),
        scripts.rivals,
        (invariants.LOST, invariants.TORN, invariants.OUTCOME, invariants.STUCK, invariants.OFFSETS),
    ),
    Variant(
        "the decision before is adopted at a take-over",
        ((view_module, "_RULES", broken_rules.CLAIMS_IN_SILENCE),),
        scripts.crashed_in_second,
        (invariants.OUTCOME,),
    ),
    Variant(
        "the decision of a continued transaction names what its last instance wrote",
        ((Transaction, "decision", broken_rules.without_former),),
        scripts.continued,
        (invariants.LOST, invariants.TORN, invariants.OUTCOME),
    ),
    Variant(
        "what a client repeats at the next instance is not compared with what is there",
        ((ClientSequences, "restore", broken_rules.keep),),
        scripts.continued_unheard,
        (invariants.DUPLICATE,),
    ),
    Variant(
        "an EndTxn over an old connection is let in",
        ((TransactionalId, "admit", broken_rules.admits_any_connection),),
        scripts.ended_twice,
        (invariants.ABORTED, invariants.TORN, invariants.OUTCOME),
    ),
    Variant(
        "an EndTxn gives the newest identity of the id",
        ((LogDecider, "_take_decided", broken_rules.takes_the_newest_identity),),
        scripts.ended_while_replaced,
        (invariants.IDENTITY,),
        first=22,
    ),
    Variant(
        "an abort that a claim has settled gives its client no new identity, and used sequences are repeated batches",
        (
            (LogOwner, "_raise_epoch", broken_rules.keeps_its_epoch),
            (ClientSequences, "order", broken_rules.used_is_repeated),
        ),
        late_scripts.aborted_unheard,
        (invariants.OUTCOME, invariants.LOST),
    ),
    Variant(
        "a sequence that is used again in a later transaction is taken for a repeated batch",
        ((ClientSequences, "order", broken_rules.used_is_repeated),),
        late_scripts.sequence_reused,
        (invariants.OUTCOME,),
    ),
    Variant(
        "a late copy of a batch of the transaction before is taken for a new one",
        ((ClientSequences, "order", broken_rules.used_is_new),),
        late_scripts.copied_late,
        (invariants.ABORTED,),
    ),
    Variant(
        "a late copy of a batch of the transaction before dooms the next",
        ((Transaction, "accept", broken_rules.dooms_by_what_is_refused),),
        late_scripts.copied_late,
        (invariants.CAUSE,),
    ),
    Variant(
        "a repeated InitProducerId claims the id once more",
        ((LogOwner, "initialize", broken_rules.initializes_again),),
        late_scripts.initialized_again,
        (invariants.LOST,),
    ),
    Variant(
        "a TxnOffsetCommit over an old connection is let in",
        ((TransactionalId, "admit", broken_rules.admits_any_connection),),
        late_scripts.moved_again,
        (invariants.MOVED,),
    ),
    Variant(
        "a late TxnOffsetCommit joins whatever transaction is open",
        (
            (OwnerRequests, "commit_offsets", broken_rules.commits_offsets_unadded),
            (TransactionalId, "admit", broken_rules.admits_any_connection),
        ),
        late_scripts.moved_in_vain,
        (invariants.MOVED,),
    ),
    Variant(
        "the last end is forgotten with its id",
        ((LogOwners, "answer_expired", broken_rules.keep),),
        late_scripts.expired_unheard,
        (invariants.CAUSE,),
    ),
    Variant(
        "a time-out waits for data brokers",
        (
            (LogOwner, "_turn_to_abort", broken_rules.waits_for_its_turn),
            (LogOwners, "end_overdue", broken_rules.keep),
        ),
        scripts.overdue_without_replicas,
        (invariants.TIMEOUT,),
    ),
    Variant(
        "an instance that had the id before aborts what another one has at its time-out",
        ((LogOwners, "_is_over", broken_rules.overdue_wherever_it_is),),
        late_scripts.decided_after_the_time_out,
        (invariants.CAUSE,),
    ),
    Variant(
        "a transaction is timed out when its data are settled",
        ((LogOwner, "time_out", broken_rules.times_out_when_settled),),
        replace(_BUSY, faults=LONE_FAULTS, fault_count=(8, 12), lives=(1,), dies=1.0, timeouts_ms=(3_000,)),
        (invariants.TIMEOUT,),
        10,
    ),
    Variant(
        "data do not wait for their announcement",
        ((Announcements, "announce", broken_rules.announces_behind),),
        scripts.unannounced,
        (invariants.STUCK,),
    ),
    Variant(
        "a client receives the broker's answer to the decision",
        (_BY_ACK,),
        scripts.taken_over_unheard,
        (invariants.OUTCOME, invariants.LOST),
    ),
    Variant(
        "an announcement is given up, and its sequence goes to the decision",
        (
            _BY_ACK,
            (ClaimKeeper, "_append", broken_rules.uses_the_sequence_again),
            (ClaimKeeper, "announce", broken_rules.announces_in_doubt),
        ),
        scripts.announced_late,
        (invariants.OUTCOME, invariants.LOST),
    ),
    Variant(
        "the sequence of a refused batch goes to the next one",
        ((Writes, "refused", broken_rules.gives_the_sequence_on),),
        scripts.refused_behind_a_copy,
        (invariants.LOST, invariants.OFFSETS),
    ),
    Variant(
        "the generation is not checked after the offsets",
        ((pending_offsets, "one_of_each_member", broken_rules.nothing),),
        group_scripts.moved_on_before_the_offsets,
        (invariants.INPUT,),
    ),
    Variant(
        "an OffsetFetch does not wait for what is undecided",
        ((group_offset_requests, "undecided", broken_rules.nothing),),
        group_scripts.moved_on_before_the_decision,
        (invariants.INPUT,),
    ),
    Variant(
        "records are deleted before their snapshot is acknowledged",
        ((Snapshots, "take", broken_rules.deletes_first),),
        scripts.snapshot_lost,
        _HIDDEN,
    ),
    Variant(
        "a snapshot is loaded when one chunk is there",
        ((views_module, "PartitionLoader", HastyLoader),),
        scripts.snapshot_in_chunks,
        _HIDDEN,
    ),
    Variant(
        "a reader below the log's start continues at the start",
        ((LogPartition, "restart", broken_rules.goes_on_at_the_start),),
        scripts.snapshot_unread,
        _HIDDEN,
    ),
)
