"""A network in memory, on trio's clock: hosts that connect to each other, and routes that are cut or held up."""

import errno
from collections.abc import Callable
from random import Random
from typing import Final

import trio

from verification.simulation.clock import VirtualClock
from verification.simulation.link import Link
from verification.simulation.tcp import syn_after
from verification.simulation.virtual_io import VirtualIO
from verification.simulation.weather import NEAR, Weather

_FIRST_FREE_PORT: Final = 40_000


class VirtualListener:
    """A port of a host; a ``kproxy.net.network.Listener``."""

    def __init__(self, port: int) -> None:
        """Nobody waits."""
        self.port = port
        self.closed = False
        self._waiting: list[VirtualIO] = []
        self._lot = trio.lowlevel.ParkingLot()

    def arrive(self, io: VirtualIO) -> None:
        """A connection has come."""
        self._waiting.append(io)
        self._lot.unpark()

    async def accept(self) -> VirtualIO:
        """The next one."""
        await trio.lowlevel.checkpoint()
        while not self._waiting and not self.closed:
            await self._lot.park()
        if self.closed:
            raise trio.ClosedResourceError
        return self._waiting.pop(0)

    def close(self) -> None:
        """Takes no more; who waits is refused."""
        self.closed = True
        for io in self._waiting:
            io.close()
        self._lot.unpark_all()


class VirtualNetwork:
    """All hosts and connections."""

    def __init__(self, seed: int, clock: VirtualClock, wall: Callable[[], float], weather: Weather = NEAR) -> None:
        """``wall``: the time of day, in seconds since the epoch."""
        self._weather = weather
        #: Until when (trio's clock) packets between two hosts are lost, in at least one direction.
        self._routes: dict[frozenset[str], float] = {}
        self.clock = clock
        self.links: list[Link] = []
        self.wall = wall
        #: The takers of connections, by host and port.
        self.takers: dict[tuple[str, int], tuple[str, Callable[[VirtualIO], None]]] = {}
        self._seed = seed
        self._made: dict[tuple[str, str], int] = {}
        #: Until when (trio's clock) all bytes to and from a host are held up, by host and leg.
        self._held: dict[tuple[str, str], float] = {}

    def connect(self, source: str, host: str, port: int) -> Link:
        """A new connection. ConnectionRefusedError if nobody listens."""
        taker = self.takers.get((host, port))
        if taker is None:
            raise ConnectionRefusedError(errno.ECONNREFUSED, f"nobody listens at {host}:{port}")
        link = self.join(taker[0], (source, host))
        link.port = port
        link.stall(max(self._held.get((end, link.leg), 0.0) for end in link.hosts) - trio.current_time())
        taker[1](link.far)
        return link

    def join(self, leg: str, hosts: tuple[str, str]) -> Link:
        """A connection between two hosts of which each takes its end."""
        source, host = hosts
        nth = self._made[source, host] = self._made.get((source, host), 0) + 1
        rng = Random(f"{self._seed} {source} {host} {nth}")
        link = Link(len(self.links), leg, self.clock, rng, hosts, self._weather)
        self.links.append(link)
        return link

    def hold(self, host: str, leg: str, seconds: float) -> None:
        """Holds up all bytes to and from a host on one leg for so long, also those of new connections."""
        self._held[host, leg] = max(self._held.get((host, leg), 0.0), trio.current_time() + seconds)
        for link in self.live(leg):
            if host in link.hosts:
                link.stall(seconds)

    def cut_route(self, one: str, other: str, seconds: float, *, there: bool = True, back: bool = True) -> None:
        """Loses all packets from a host to another (``there``) and the other way (``back``) for so long."""
        route = frozenset((one, other))
        self._routes[route] = max(self._routes.get(route, 0.0), trio.current_time() + seconds)
        for link in self.links:
            if frozenset(link.hosts) == route and not (link.near.closed and link.far.closed):
                is_up = link.hosts[0] == one
                link.cut_route(seconds, up=there if is_up else back, down=back if is_up else there)

    def open_at(self, source: str, host: str) -> float:
        """The time, by trio's clock, at which a connection that is begun now can be made."""
        now = trio.current_time()
        until = self._routes.get(frozenset((source, host)), 0.0)
        return syn_after(now, until) if until > now else now

    def live(self, leg: str) -> list[Link]:
        """The connections of a leg that both ends have open."""
        return [link for link in self.links if link.leg == leg and not link.over]


class Host:
    """One machine; a ``kproxy.net.network.Network``."""

    def __init__(
        self, network: VirtualNetwork, name: str, leg: str, reach: Callable[[str, str, int], Link] | None = None
    ) -> None:
        """``leg`` is what connections to its ports are called; ``reach`` connects it otherwise than directly."""
        self._reach = reach or network.connect
        self._network = network
        self.name = name
        self._leg = leg
        self._offset = network.wall() - trio.current_time()
        self._ends: list[VirtualIO] = []
        self._listeners: list[VirtualListener] = []
        self._dead = False
        #: The connection that it made last.
        self.newest: Link

    async def connect(self, host: str, port: int, timeout_ms: int) -> VirtualIO:
        """A connection, after a moment."""
        open_at = self._network.open_at(self.name, host)
        if open_at > trio.current_time() + timeout_ms / 1000:
            await trio.sleep(timeout_ms / 1000)
            raise TimeoutError(errno.ETIMEDOUT, f"no answer from {host}")
        await trio.sleep_until(open_at)
        await trio.sleep(min(0.002, timeout_ms / 1000))
        if self._dead:
            raise OSError(errno.ENETDOWN, "the process has ended")
        link = self.newest = self._reach(self.name, host, port)
        self._ends.append(link.near)
        return link.near

    async def listen(self, host: str, port: int, backlog: int) -> list[VirtualListener]:
        """A listener; port 0 is any."""
        await trio.lowlevel.checkpoint()
        takers = self._network.takers
        while not port or (host, port) in takers:
            if port:
                raise OSError(errno.EADDRINUSE, f"{host}:{port} is in use by a backlog of {backlog}")
            port = next(free for free in range(_FIRST_FREE_PORT, 65_536) if (host, free) not in takers)
        listener = VirtualListener(port)
        self._listeners.append(listener)

        def take(io: VirtualIO) -> None:
            self._ends.append(io)
            listener.arrive(io)

        takers[host, port] = (self._leg, take)
        return [listener]

    def wall(self) -> float:
        """Seconds since the epoch, as the machine believed when the process began."""
        return self._offset + trio.current_time()

    def kill(self) -> None:
        """``kill -9``: the kernel closes everything; what was written is still in flight."""
        self._dead = True
        ports = {listener.port for listener in self._listeners}
        for host, port in list(self._network.takers):
            if host == self.name and port in ports:
                del self._network.takers[host, port]
        for listener in self._listeners:
            listener.close()
        for end in self._ends:
            end.close()
