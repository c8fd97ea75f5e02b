"""Broken on purpose: kproxy without one rule of its transactions, and the runs that show what the rule keeps out."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final
from unittest.mock import patch

from kproxy.net.txn.coordinator import Coordinator
from kproxy.net.txn.owner import Owner
from kproxy.net.txn.transaction import Transaction
from kproxy.testing.simulation.transactions import broken_rules, invariants
from kproxy.testing.simulation.transactions.plan import Taste
from kproxy.txn.view import IdView
from kproxy.txn.views import Views

Change = tuple[Any, str, Any]
"""An owner, the name of a function or property of it, and what to put in its place."""


@dataclass(frozen=True, slots=True)
class Variant:
    """One rule less."""

    #: What becomes of the rule.
    name: str
    changes: tuple[Change, ...]
    taste: Taste
    #: The invariants of which one breaks.
    breaks: tuple[str, ...]
    #: So many seeds show it at most.
    seeds: int = 40

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Without the rule until the block ends."""
        with ExitStack() as stack:
            for owner, name, new in self.changes:
                stack.enter_context(patch.object(owner, name, new))
            yield


_BUSY: Final = Taste(pauses=(0.0,), gaps=(0.0, 0.05), lives=(2, 3))
_RIVALS: Final = replace(_BUSY, twins=1.0, producers=(2, 3), commits=1.0)
_COPIES: Final = replace(_BUSY, faults=("dropped_answer", "lost_answer", "forget", "slow_broker"), fault_count=(10, 16))

VARIANTS: Final = (
    Variant(
        "undecided data are shown",
        ((Views, "verdict", broken_rules.shows_undecided),),
        replace(_BUSY, faults=()),
        (invariants.ABORTED,),
    ),
    Variant(
        "a decision counts under any nonce",
        ((IdView, "is_ours", broken_rules.yes),),
        replace(_RIVALS, faults=("log_slow", "upstream_delay")),
        invariants.INVARIANTS,
    ),
    Variant(
        "other copies are shown",
        ((Views, "is_other_copy", broken_rules.no),),
        _COPIES,
        (invariants.DUPLICATE,),
    ),
    Variant(
        "a decision does not say which copies count",
        ((Transaction, "decision", broken_rules.without_copies),),
        _COPIES,
        (invariants.DUPLICATE,),
    ),
    Variant(
        "a claim ends nothing that is not known to be over",
        ((IdView, "_is_below_claim", broken_rules.no),),
        replace(_BUSY, faults=("crash",), dies=0.8),
        (invariants.STUCK,),
    ),
    Variant(
        "nobody ends what is overdue",
        (
            (Owner, "is_overdue", broken_rules.no),
            (Coordinator, "end_overdue", broken_rules.keep),
        ),
        replace(_BUSY, faults=(), dies=0.8, lives=(1,)),
        (invariants.STUCK,),
    ),
    Variant(
        "the end that another producer's claim made is told as one's own",
        ((Owner, "_repeated", broken_rules.repeated_whoever_ended),),
        replace(_RIVALS, faults=(), second_version=(True,), instances=(1,), commits=0.2),
        (invariants.FENCED,),
    ),
)
