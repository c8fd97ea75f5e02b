"""Places for the connections of an HTTP listener: so many in all, and for each address."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

import trio

from kproxy.proxy.senders import sender_of


class Limits(NamedTuple):
    """The most connections of one listener that are open at the same time."""

    connections: int
    #: For each address (IPv6: each /64 network). A Unix socket's clients have none, and are not counted by it.
    per_address: int

    @classmethod
    def of(cls, connections: int) -> "Limits":
        """So many in all, and a quarter of them for each address."""
        return cls(connections, max(connections // 4, _FEWEST))


_FEWEST: Final = 4


class Evicted(Exception):
    """The connection ends, since another one needs its place."""


class Places:
    """Gives places to connections. Where all are taken, one that waits for its client gives way: the oldest."""

    def __init__(self, limits: Limits, refused: Callable[[str], None]) -> None:
        """``refused`` is called with the reason whenever a connection is refused, or ended for a newer one."""
        self.refused = refused
        self._limits = limits
        self._held: dict[str, set[Place]] = {}
        self._count = 0

    def take(self, host: str) -> "Place | None":
        """A place for a connection from an address, empty for a Unix socket; None if it has to be closed."""
        sender = sender_of(host)
        if sender and len(self._held.get(sender, ())) >= self._limits.per_address:
            if not self._evict_one([sender]):
                self.refused("max_connections_per_ip")
                return None
        elif self._count >= self._limits.connections and not self._evict_one(self._by_connections()):
            self.refused("max_connections")
            return None
        place = Place(self, sender)
        self._held.setdefault(sender, set()).add(place)
        self._count += 1
        return place

    def _by_connections(self) -> list[str]:
        """The senders; first the one with most connections."""
        return sorted(self._held, key=lambda sender: len(self._held[sender]), reverse=True)

    def _evict_one(self, senders: list[str]) -> bool:
        for sender in senders:
            waiting = [place for place in self._held[sender] if place.waits_for_client]
            if waiting:
                min(waiting, key=lambda place: place.since).evict()
                self.refused("evicted")
                return True
        return False

    def free(self, place: "Place", sender: str) -> None:
        """Gives a place back; may be called twice."""
        held = self._held.get(sender, set())
        if place in held:
            held.remove(place)
            self._count -= 1
            if not held:
                del self._held[sender]


class Place:
    """The place of one connection."""

    def __init__(self, places: Places, sender: str) -> None:
        self._places = places
        self._sender = sender
        self._scopes: set[trio.CancelScope] = set()
        self._evicted = False
        #: When the client began with what the connection waits for, by trio's clock, in seconds.
        self.since = trio.current_time()

    @property
    def waits_for_client(self) -> bool:
        """Whether the connection waits for its client to send something, or to read."""
        return bool(self._scopes)

    def begin(self) -> None:
        """Records that the client has to send something new from now on: a request, or the body of one."""
        self.since = trio.current_time()

    @contextmanager
    def waits(self, seconds: float) -> Iterator[None]:
        """A block that waits for the client. TooSlowError after ``seconds``; Evicted where another needs the place."""
        if self._evicted:
            raise Evicted
        with trio.move_on_after(seconds) as scope:
            self._scopes.add(scope)
            try:
                yield
            finally:
                self._scopes.remove(scope)
        if scope.cancelled_caught:
            raise Evicted if self._evicted else trio.TooSlowError

    def evict(self) -> None:
        """Ends what waits; the place is free at once."""
        self._evicted = True
        for scope in self._scopes:
            scope.cancel()
        self.leave()

    def leave(self) -> None:
        """Records that the connection has ended."""
        self._places.free(self, self._sender)
