"""Breadth-first search: the first trace that is found to a broken invariant is one of the shortest."""

from collections import deque
from collections.abc import Callable, Hashable, Iterable
from typing import Generic, NamedTuple, TypeVar

S = TypeVar("S", bound=Hashable)


class Trace(NamedTuple):
    """What led to a broken invariant."""

    invariant: str
    steps: list[str]


class Found(NamedTuple):
    """What a search came to."""

    states: int
    is_cut: bool
    """Whether it ended at the limit: nothing was found as far as it came, no more."""
    traces: dict[str, list[str]]
    """By broken invariant: what happened, from the first state on."""

    @property
    def trace(self) -> Trace | None:
        """Of the invariant that was found to be broken first."""
        return next((Trace(invariant, steps) for invariant, steps in self.traces.items()), None)


class Search(Generic[S]):
    """Over all states that ``moves`` leads to."""

    def __init__(
        self, moves: Callable[[S], Iterable[tuple[str, S]]], broken: Callable[[S], Iterable[str]], most_states: int
    ) -> None:
        """``moves`` gives each next state with its name; ``broken`` the invariants that do not hold in a state."""
        self._moves = moves
        self._broken = broken
        self._most_states = most_states
        self._came: dict[S, tuple[S, str] | None] = {}

    def run(self, first: S, looked_for: str | None = None) -> Found:
        """Explores until all is seen, there are too many states, or an invariant ``looked_for`` (its name begins so)
        is broken. Nothing is explored after a state with a broken invariant."""
        self._came = {first: None}
        broken: dict[str, S] = {}
        waiting = deque([first])
        while waiting and len(self._came) <= self._most_states:
            before = waiting.popleft()
            for name, state in self._moves(before):
                if state in self._came:
                    continue
                self._came[state] = before, name
                wrong = list(self._broken(state))
                for invariant in wrong:
                    broken.setdefault(invariant, state)
                if not wrong:
                    waiting.append(state)
            if looked_for is not None and any(invariant.startswith(looked_for) for invariant in broken):
                break
        is_cut = len(self._came) > self._most_states
        return Found(len(self._came), is_cut, {name: self._trace(state) for name, state in broken.items()})

    def _trace(self, state: S) -> list[str]:
        names: list[str] = []
        came = self._came[state]
        while came is not None:
            names.append(came[1])
            came = self._came[came[0]]
        return names[::-1]
