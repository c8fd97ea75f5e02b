"""Cuts a failing run down to what breaks the invariant, whatever its plan is made of."""

from collections.abc import Callable
from typing import Final, Generic, TypeVar, cast

from verification.simulation.plan import Plan
from verification.simulation.world import Outcome

P = TypeVar("P", bound=Plan)
T = TypeVar("T")

#: A failing plan is run at most so often again while it is cut down.
ATTEMPTS: Final = 400


class Shrinker(Generic[P]):
    """Tries smaller plans, and keeps those that break the same invariant."""

    def __init__(self, outcome: Outcome, run: Callable[[P], Outcome], attempts: int = ATTEMPTS) -> None:
        """``outcome`` is that of a plan which broke an invariant; ``run`` runs another, at most ``attempts`` times."""
        assert outcome.broken is not None
        self._best = outcome
        self._invariant = outcome.broken[0]
        self._run = run
        self._left = attempts

    @property
    def plan(self) -> P:
        """The smallest plan as yet."""
        return cast(P, self._best.plan)

    def shrink(self, cut: "Callable[[Shrinker[P]], None]") -> Outcome:
        """Has ``cut`` try what it knows, again and again, until nothing more can be left out."""
        before = None
        while before is not self._best and self._left:
            before = self._best
            cut(self)
        return self._best

    def fails(self, plan: P) -> bool:
        """Whether a smaller plan breaks the invariant, too; then it is the one that is cut further."""
        if not self._left:
            return False
        self._left -= 1
        outcome = self._run(plan)
        if outcome.broken is None or outcome.broken[0] != self._invariant:
            return False
        self._best = outcome
        return True

    def drop(self, of: Callable[[P], tuple[T, ...]], put: Callable[[P, tuple[T, ...]], P]) -> None:
        """Leaves out as many of some items as can be: halves first, then ever smaller runs of them."""
        size = max(1, len(of(self.plan)) // 2)
        while size:
            at = 0
            while at < len(items := of(self.plan)):
                if not self.fails(put(self.plan, items[:at] + items[at + size :])):
                    at += size
            size //= 2
