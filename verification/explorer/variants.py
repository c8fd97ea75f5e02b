"""The coordinator without one of its rules, each with the small world that shows what the rule is for."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Final, NamedTuple
from unittest.mock import patch

from kproxy.txn.client_sequences import ClientSequences
from kproxy.txn.procedures.announcements import Announcements
from kproxy.txn.procedures.claim_keeper import ClaimKeeper
from kproxy.txn.procedures.former_epochs import FormerEpochs
from kproxy.txn.procedures.log_owner import LogOwner
from kproxy.txn.procedures.pending_offsets import PendingOffsets
from kproxy.txn.procedures.takeover import Takeover
from kproxy.txn.procedures.transaction import Transaction
from kproxy.txn.view import IdView
from verification.explorer import broken_rules, invariants
from verification.simulation.transactions import broken_rules as rules


class Variant(NamedTuple):
    """One rule less."""

    #: What becomes of the rule.
    name: str
    changes: tuple[rules.Change, ...]
    #: The name of the world in which it is missed, and what breaks there.
    scenario: str
    breaks: str

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Without the rule until the block ends."""
        with ExitStack() as stack:
            for owner, name, new in self.changes:
                stack.enter_context(patch.object(owner, name, new))
            yield


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
)
