"""Runs the scenarios of a model: the rules as they are, and each rule replaced by one that must fail."""

import sys
from collections.abc import Callable, Iterable
from typing import Protocol, TypeVar

from verification.models.search import Trace


class Named(Protocol):
    """What is explored."""

    @property
    def name(self) -> str:
        """What is replaced."""

    @property
    def flaw(self) -> str | None:
        """How the name of the invariant begins that must be broken; None: none may be."""


S = TypeVar("S", bound=Named)


def run_scenarios(
    scenarios: Iterable[S], explore: Callable[[S], tuple[int, bool, Trace | None]], *, traces: bool = False
) -> int:
    """Explores all and prints what was found; how many were a surprise.

    ``explore`` returns the states, whether the limit was met, and the first flaw. Surprises are printed with their
    traces; with ``traces``, or ``--traces`` on the command line, all flaws are.
    """
    surprises = 0
    for scenario in scenarios:
        states, cut, trace = explore(scenario)
        found = trace.invariant if trace is not None else "nothing"
        as_wanted = (trace is None) if scenario.flaw is None else found.startswith(scenario.flaw)
        surprises += not as_wanted
        sys.stdout.write(f"{'' if as_wanted else 'SURPRISE '}{scenario.name}: {states}{'+' * cut} states, {found}\n")
        sys.stdout.flush()
        if trace is not None and (not as_wanted or traces or "--traces" in sys.argv):
            sys.stdout.writelines(f"    {name}\n" for name in trace.steps)
    return surprises
