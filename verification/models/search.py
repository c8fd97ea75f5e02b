"""Breadth-first search: the first trace that is found to a broken invariant is one of the shortest."""

from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Iterable, Iterator
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

    def run_to_end(self, first: S, is_over: Callable[[S], bool], is_fault: Callable[[str], bool], name: str) -> Found:
        """As ``run``, up to the first broken invariant. One more, ``name``, holds if each state leads to an end.

        ``is_over``: the end is reached; ``is_fault``: a move, by its name, that does not count as a way there. So if
        every move that stays possible happens at last, each run ends once there are no more faults.
        """
        moves, before = self._moves, defaultdict[S, list[S]](list)

        def watched(state: S) -> Iterator[tuple[str, S]]:
            for move, after in moves(state):
                if not is_fault(move):
                    before[after].append(state)
                yield move, after

        self._moves = watched
        try:
            found = self.run(first, "")
        finally:
            self._moves = moves
        if found.traces or found.is_cut:
            return found
        waiting = [state for state in self._came if is_over(state)]
        ends = set(waiting)
        while waiting:
            for state in before[waiting.pop()]:
                if state not in ends:
                    ends.add(state)
                    waiting.append(state)
        stuck = next((state for state in self._came if state not in ends), None)
        return found if stuck is None else found._replace(traces={name: self._trace(stuck)})

    def _trace(self, state: S) -> list[str]:
        names: list[str] = []
        came = self._came[state]
        while came is not None:
            names.append(came[1])
            came = self._came[came[0]]
        return names[::-1]
