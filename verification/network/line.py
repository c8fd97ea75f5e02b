"""The line between clients and kproxy: which packets it carries, and when. No I/O; the wire moves the bytes."""

import heapq
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from verification.network.packets import ACK, FIN, RST, SYN, Place, Segment, make_reset, parse

__all__ = ["Line", "Way", "client_of"]

_QUEUED_BYTES: Final = 64 << 20
_CONNECTIONS: Final = 4096
_WRAP: Final = 1 << 32


class Way(Enum):
    """A direction, named for what clients and kproxy send."""

    REQUESTS = "from the client"
    RESPONSES = "to the client"

    @property
    def back(self) -> "Way":
        return Way.RESPONSES if self is Way.REQUESTS else Way.REQUESTS


@dataclass
class _Expected:
    """Sequence numbers of which a kernel expects one next: what it acknowledged, and the end of what reached it."""

    acknowledged: int | None = None
    delivered: int | None = None

    def deliver(self, segment: Segment) -> None:
        ahead = 0 if self.delivered is None else (segment.end - self.delivered) % _WRAP
        if ahead < _WRAP // 2:
            self.delivered = segment.end

    def numbers(self) -> set[int]:
        return {number for number in (self.acknowledged, self.delivered) if number is not None}


@dataclass
class _Connection:
    """What the resets of one connection must know: ``expected`` is by the way on which the bytes come."""

    server: Place
    expected: dict[Way, _Expected] = field(default_factory=lambda: {way: _Expected() for way in Way})
    ended: set[Way] = field(default_factory=set)


@dataclass
class Counts:
    """Packets since the line was made."""

    carried: int = 0
    dropped: int = 0
    resets: int = 0


class Line:
    """Packets between one client namespace and kproxy, in order within each direction.

    :param delay_s: latency of each direction.
    """

    def __init__(self, delay_s: float = 0.0) -> None:
        self.delay_s = delay_s
        self.counts = Counts()
        self.losing: Callable[[Way, Segment], bool] | None = None
        """Segments that get lost besides those of ways that are cut."""
        self._cut: set[Way] = set()
        self._cut_after: Way | None = None
        self._queue: list[tuple[float, int, Way, bytes]] = []
        self._queued_bytes = 0
        self._number = 0
        self._connections: dict[Place, _Connection] = {}

    @property
    def is_cut(self) -> bool:
        """Whether no packet passes in any direction."""
        return self._cut == set(Way)

    @property
    def connections(self) -> set[Place]:
        """The client's ends of the connections that are not known to have ended."""
        return set(self._connections)

    def in_flight(self, way: Way) -> Counter[Place]:
        """Return how many segments with payload are in flight in a direction, by the client's end of the connection."""
        segments = (parse(packet) for _, _, taken, packet in self._queue if taken is way)
        return Counter(client_of(way, segment) for segment in segments if segment is not None and segment.payload)

    def cut(self, *ways: Way) -> None:
        """Drop all packets of these directions (both if none is named), those in flight too, until :meth:`heal`."""
        self._cut |= set(ways or Way)
        self._forget(lambda way, _: way in self._cut)

    def cut_after(self, way: Way) -> None:
        """Cut both directions when the next segment with payload has been delivered on this way."""
        self._cut_after = way

    def heal(self) -> None:
        """Carry everything again; what was dropped stays lost."""
        self._cut.clear()
        self._cut_after = self.losing = None

    def take(self, way: Way, packet: bytes, now: float) -> None:
        """Take a packet from a kernel. Above 64 MiB in the queue it is dropped, as by a router."""
        segment = parse(packet)
        if segment is not None:
            self._learn(way, segment)
        if way in self._cut or self._loses(way, segment) or self._queued_bytes + len(packet) > _QUEUED_BYTES:
            self.counts.dropped += 1
            return
        self._number += 1
        self._queued_bytes += len(packet)
        heapq.heappush(self._queue, (now + self.delay_s, self._number, way, packet))

    def due(self, now: float) -> Iterable[tuple[Way, bytes]]:
        """Yield the packets whose latency has passed, in the order in which they leave."""
        while self._queue and self._queue[0][0] <= now:
            _, _, way, packet = heapq.heappop(self._queue)
            self._queued_bytes -= len(packet)
            self.counts.carried += 1
            self._deliver(way, packet)
            yield way, packet

    def wait_s(self, now: float) -> float | None:
        """Return the time until the next packet leaves; None if there is none."""
        return max(0.0, self._queue[0][0] - now) if self._queue else None

    def reset(self, clients: Iterable[Place] | None = None) -> list[tuple[Way, bytes]]:
        """Return resets for both ends of connections, and drop what they have in flight.

        :param clients: the client's ends of the connections; all of them if not given.
        """
        chosen = set(self._connections if clients is None else clients)
        self._forget(lambda way, segment: segment is not None and client_of(way, segment) in chosen)
        made = [packet for place in chosen for packet in self._resets(place)]
        for place in chosen:
            self._connections.pop(place, None)
        self.counts.resets += len(chosen)
        return made

    def _resets(self, client: Place) -> Iterable[tuple[Way, bytes]]:
        connection = self._connections.get(client)
        if connection is None:
            return
        ends = {Way.REQUESTS: (client, connection.server), Way.RESPONSES: (connection.server, client)}
        for way, expected in connection.expected.items():
            for number in expected.numbers():
                yield way, make_reset(*ends[way], number)

    def _loses(self, way: Way, segment: Segment | None) -> bool:
        return self.losing is not None and segment is not None and self.losing(way, segment)

    def _learn(self, way: Way, segment: Segment) -> None:
        """Note what a segment says of its connection, whether it will arrive or not."""
        client = client_of(way, segment)
        if segment.flags & SYN and way is Way.REQUESTS:
            self._connections[client] = _Connection(segment.target)
            if len(self._connections) > _CONNECTIONS:
                del self._connections[next(iter(self._connections))]
        connection = self._connections.get(client)
        if connection is not None and segment.flags & ACK:
            connection.expected[way.back].acknowledged = segment.acknowledged

    def _deliver(self, way: Way, packet: bytes) -> None:
        segment = parse(packet)
        if segment is None:
            return
        client = client_of(way, segment)
        connection = self._connections.get(client)
        if connection is not None:
            connection.expected[way].deliver(segment)
            connection.ended |= {way} if segment.flags & FIN else set()
            if segment.flags & RST or connection.ended == set(Way):
                del self._connections[client]
        if segment.payload and way is self._cut_after:
            self._cut_after = None
            self.cut()

    def _forget(self, chosen: Callable[[Way, Segment | None], bool]) -> None:
        """Drop what is in flight and chosen."""
        kept = [each for each in self._queue if not chosen(each[2], parse(each[3]))]
        self.counts.dropped += len(self._queue) - len(kept)
        self._queue = kept
        heapq.heapify(self._queue)
        self._queued_bytes = sum(len(packet) for *_, packet in kept)


def client_of(way: Way, segment: Segment) -> Place:
    """Return the client's end of a segment's connection."""
    return segment.source if way is Way.REQUESTS else segment.target
