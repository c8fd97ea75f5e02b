"""Goes through every order of what may happen: each state is come to by running the same moves again."""

import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

from verification.explorer import invariants
from verification.explorer.engine import Action
from verification.explorer.states import key_of
from verification.explorer.world import World


class Found(NamedTuple):
    """The result of one search."""

    states: int
    is_cut: bool
    """Whether it ended at the limit: nothing was found as far as it came, no more."""
    traces: dict[str, tuple[str, list[str]]]
    """Each broken invariant: how, and what happened, from the beginning on."""
    runs: int
    """Runs that came to an end."""
    seconds: float
    """Seconds of CPU time."""


class _Node(NamedTuple):
    parent: "_Node | None"
    choice: int

    def path(self) -> list[int]:
        """The choices from the beginning on."""
        found, node = list[int](), self
        while node.parent is not None:
            found.append(node.choice)
            node = node.parent
        return found[::-1]


def search(make: Callable[[], World], most_states: int, looked_for: str | None = None) -> Found:
    """Explores until all is seen, there are too many states, or an invariant ``looked_for`` (its name begins so) fails.

    Nothing is explored after a state with a broken invariant.
    """
    began, runs = time.process_time(), 0
    world = make()
    seen = {key_of(world)}
    traces: dict[str, tuple[str, list[str]]] = {}
    waiting: list[tuple[_Node, World | None]] = [(_Node(None, -1), world)]
    while waiting and len(seen) <= most_states:
        node, kept = waiting.pop()
        path = node.path()
        world = kept or _again(make, path)
        moves = world.moves()
        if not moves:
            runs += 1
            _note(traces, make, path, invariants.unfinished(world))
        # the first move is made last, and the search continues from there: it needs no run of its own
        for choice in reversed(range(len(moves))):
            after = _again(make, path) if choice else world
            if not _happens(after, after.moves()[choice].do, traces, make, [*path, choice]):
                after.close()
                continue
            key = key_of(after)
            if key not in seen:
                seen.add(key)
                if not _note(traces, make, [*path, choice], invariants.broken(after)):
                    waiting.append((_Node(node, choice), after if choice == 0 else None))
                    if choice == 0:
                        continue
            after.close()
        if not moves:
            world.close()
        if looked_for is not None and any(name.startswith(looked_for) for name in traces):
            break
    _close(kept for _, kept in waiting)
    return Found(len(seen), len(seen) > most_states, traces, runs, time.process_time() - began)


def _close(worlds: Iterable[World | None]) -> None:
    for world in worlds:
        if world is not None:
            world.close()


def _again(make: Callable[[], World], path: list[int], texts: list[str] | None = None) -> World:
    """The world after these choices; ``texts`` takes what they were."""
    world = make()
    for choice in path:
        move = world.moves()[choice]
        if texts is not None:
            texts.append(move.text)
        move.do()
    return world


def _happens(
    world: World, do: Action, traces: dict[str, tuple[str, list[str]]], make: Callable[[], World], path: list[int]
) -> bool:
    """Makes a move; False if the product fails with an error that it must not have."""
    try:
        do()
    except Exception as error:
        if invariants.FAILED not in traces or len(path) < len(traces[invariants.FAILED][1]):
            texts = list[str]()
            _again(make, path[:-1], texts).close()
            traces[invariants.FAILED] = repr(error), texts
        return False
    return True


def _note(traces: dict[str, tuple[str, list[str]]], make: Callable[[], World], path: list[int], wrong: object) -> bool:
    """Keeps the shortest way to each broken invariant; whether there is any."""
    any_broken = False
    for name, how in wrong:  # type: ignore[attr-defined]
        any_broken = True
        if name not in traces or len(path) < len(traces[name][1]):
            texts = list[str]()
            _again(make, path, texts).close()
            traces[name] = how, texts
    return any_broken
