"""Routes of a client's connections: to one kproxy, to another one from some time on, or to several at the same time."""

from collections.abc import Iterable
from dataclasses import dataclass
from math import inf
from random import Random
from typing import Final

import trio

from verification.simulation.plan import instance_name


@dataclass(frozen=True, slots=True)
class Turn:
    """A client closes its connections and goes to a kproxy."""

    #: So many seconds after the begin of a transaction.
    after: float
    instance: int
    #: The client first waits for the responses to what it has sent.
    waits: bool = False


@dataclass(frozen=True, slots=True)
class Reach:
    """The connections that a process chooses by itself."""

    #: After a connection that failed the next one goes to any of these kproxies; if there are none, to the same one.
    others: tuple[int, ...] = ()
    #: Each connection goes to any of ``others``: a balancer spreads them.
    is_spread: bool = False


AT_ONE: Final = Reach()


class Route:
    """The route of one process."""

    def __init__(self, first: int, reach: Reach = AT_ONE, seed: str = "") -> None:
        """``first``: the kproxy that it begins at. ``seed`` decides between ``reach.others``."""
        self._at = first
        self._reach = reach
        self._rng = Random(seed)
        self._due: list[tuple[float, Turn]] = []
        self._taken = 0
        #: The kproxies that its connections went to.
        self.visited = {first}

    def schedule(self, turns: Iterable[Turn]) -> None:
        """A transaction begins now, in which the client goes elsewhere."""
        now = trio.current_time()
        self._due += [(now + turn.after, turn) for turn in turns]
        self._due.sort(key=lambda one: one[0])

    @property
    def turns_taken(self) -> int:
        """The number of turns taken by now: a connection from before the last one is not used again."""
        while self._due and self._due[0][0] <= trio.current_time():
            self._at = self._due.pop(0)[1].instance
            self._taken += 1
        return self._taken

    @property
    def interrupted_at(self) -> float:
        """The time at which the client stops waiting for responses (trio's clock), as far as is known."""
        now = trio.current_time()
        return next((at for at, turn in self._due if at > now and not turn.waits), inf)

    def next_host(self) -> str:
        """The host that the next connection goes to."""
        if self._reach.is_spread:
            self._at = self._rng.choice(self._reach.others)
        self.visited.add(self._at)
        return instance_name(self._at)

    def failed(self) -> None:
        """A connection failed."""
        if self._reach.others:
            self._at = self._rng.choice(self._reach.others)
