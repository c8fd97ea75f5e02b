"""Runs scenarios, as they are and with rules replaced, and says which results are surprises."""

import time
from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

from verification.models.search import Found, Search
from verification.models.transaction_log.invariants import broken
from verification.models.transaction_log.moves import Moves
from verification.models.transaction_log.rules import make_run
from verification.models.transaction_log.scenarios import Scenario
from verification.models.transaction_log.state import State, first_state


class Result(NamedTuple):
    """Of one run."""

    scenario: Scenario
    changes: str
    """The rules that are replaced; empty: none is."""
    flaw: str
    """The invariant that has to break."""
    found: Found
    seconds: float
    """Of CPU time."""

    @property
    def is_surprise(self) -> bool:
        """Whether a rule that was replaced was not missed, or kproxy's rules do not hold."""
        if not self.changes:
            return bool(self.found.traces)
        return not any(name.startswith(self.flaw) for name in self.found.traces)

    @property
    def trace(self) -> tuple[str, list[str]] | None:
        """What happened on the shortest way to the flaw that was looked for, or to any."""
        traces = self.found.traces
        if not traces:
            return None
        name = min(traces, key=lambda name: (not self.flaw or not name.startswith(self.flaw), len(traces[name])))
        return name, traces[name]


def explore(scenario: Scenario, most_states: int, *, only_broken: bool = False) -> Iterator[Result]:
    """Each run of a scenario, kproxy's own rules last; ``only_broken`` leaves these out."""
    runs = [*scenario.broken, *([] if only_broken else [("", "")])]
    for changes, flaw in runs:
        run = make_run(scenario.sizes, changes)
        search: Search[State] = Search(Moves(run), partial(broken, run), most_states)
        began = time.process_time()
        found = search.run(first_state(run), flaw or None)
        yield Result(scenario, changes, flaw, found, time.process_time() - began)
