"""A network in memory, on trio's clock: hosts that connect to each other, and connections that can be harmed."""

import errno
from collections.abc import Callable, Sequence
from random import Random
from typing import Final

import trio

from kproxy.net.end_watch import Ended, EndWatch
from kproxy.proxy.slots import Buffer
from verification.simulation.clock import VirtualClock
from verification.simulation.wire import FIN, GIVE_UP_SECONDS, RST, Pipe

_TURNS: Final = 16
_CAPACITIES: Final = (700, 5_000, 65_536, 65_536)
_FIRST_FREE_PORT: Final = 40_000


class VirtualIO:
    """One end of a connection; a ``kproxy.net.network.ByteIO``."""

    def __init__(self, incoming: Pipe, outgoing: Pipe, local_host: str, peer_host: str) -> None:
        """Of two pipes."""
        self._in = incoming
        self._out = outgoing
        self._turns = 0
        self._unacked = 0
        self._was_reset = False
        self.local_host = local_host
        self.peer_host = peer_host
        self.peer = peer_host
        self.closed = False
        self.stalled_at: float | None = None

    async def introduced(self) -> None:
        """Nobody stands between the ends."""

    def receive_now(self, buffers: Sequence[memoryview]) -> int | None:
        """As a socket: unread bytes first, then the reset or the end."""
        if self.closed:
            raise OSError(errno.EBADF, "closed")
        if self._in.inbox:
            return self._in.read(list(buffers))
        if self._in.reset:
            raise ConnectionResetError(errno.ECONNRESET, "reset by the peer")
        return 0 if self._in.ended else None

    async def readable(self) -> None:
        """Waits for bytes, the end or a reset; as at a socket, others have their turn once, in any case."""
        self._turns = 0
        if self._has_news:
            await trio.lowlevel.checkpoint()
        while not self._has_news:
            await self._in.readers.park()
        if self.closed:
            raise trio.ClosedResourceError

    @property
    def _has_news(self) -> bool:
        return bool(self._in.inbox) or self.closed or self._in.ended or self._in.reset

    def should_yield(self) -> bool:
        """As a socket's."""
        self._turns = (self._turns + 1) % _TURNS
        return self._turns == 0

    async def send_all(self, buffers: list[Buffer]) -> int:
        """Writes all, as fast as the peer reads."""
        data = memoryview(b"".join(buffers))
        buffers.clear()
        sent = self._send_now(data)
        while sent < len(data):
            self.stalled_at = trio.current_time()
            await self._out.writers.park()
            self.stalled_at = None
            if self.closed:
                raise trio.ClosedResourceError
            sent += self._send_now(data[sent:])
        return len(data)

    @property
    def greets(self) -> bool:
        """There is no TLS here."""
        return False

    @property
    def balanced(self) -> bool:
        """No balancer sends PROXY protocol headers."""
        return False

    @property
    def server_name(self) -> None:
        """Nobody is asked for by name without TLS."""

    @property
    def peer_certificate(self) -> None:
        """Nobody shows one without TLS."""

    async def send_shared(self, view: memoryview) -> int:
        """As ``send_all``."""
        return await self.send_all([bytes(view)])

    def send_at_once(self, buffers: list[Buffer]) -> int:
        """Writes what there is room for."""
        data = memoryview(b"".join(buffers))
        sent = self._send_now(data)
        buffers[:] = [data[sent:]] if sent < len(data) else []
        return sent

    def _send_now(self, data: memoryview) -> int:
        if self.closed:
            raise OSError(errno.EBADF, "closed")
        if self._in.reset:
            raise BrokenPipeError(errno.EPIPE, "reset by the peer")
        return self._out.write(data)

    def unacked(self) -> int:
        """Bytes that have not arrived."""
        if not self.closed:
            never = self._out.never_arrived
            self._unacked = self._out.on_way if never is None else never
        return self._unacked

    def peer_closed(self) -> bool:
        """Whether the end or a reset has arrived."""
        return self.closed or self._in.ended or self._in.reset

    def watch_end(self, watch: EndWatch, ended: Ended) -> None:
        """Has the end reported when it arrives."""
        self._in.when_over(lambda: watch.found(ended))

    def pending(self) -> bool:
        """Whether bytes have arrived."""
        return not self.closed and bool(self._in.inbox)

    def was_reset(self) -> bool:
        """Whether it ended otherwise than by the peer's FIN; after ``close`` the value at that time."""
        return self._was_reset if self.closed else self._in.reset

    def close(self) -> None:
        """Ends the connection; with a reset if there are unread bytes, as Linux does."""
        if self.closed:
            return
        self._unacked = self.unacked()
        self._was_reset = self._in.reset or not self._in.ended
        self.closed = True
        self._in.leave()
        self._out.end(RST if self._in.inbox else FIN)
        self._in.readers.unpark_all()
        self._out.writers.unpark_all()


class Link:
    """A connection between two hosts, from outside."""

    def __init__(self, number: int, leg: str, clock: VirtualClock, rng: Random, hosts: tuple[str, str]) -> None:
        """``leg`` says what it is for; the first of ``hosts`` is the one that connects."""
        self.number = number
        self.leg = leg
        self.hosts = hosts
        self.half_open = False
        #: When the kernels give up a half-open connection (trio's clock).
        self._given_up_at = 0.0
        latency = rng.choice((0.001, 0.003, 0.01, 0.04))
        self.up, self.down = (Pipe(clock, number, rng, latency, rng.choice(_CAPACITIES)) for _ in range(2))
        self.up.back, self.down.back = self.down, self.up
        self.near = VirtualIO(self.down, self.up, hosts[0], hosts[1])
        self.far = VirtualIO(self.up, self.down, hosts[1], hosts[0])
        self._clock = clock

    @property
    def over(self) -> bool:
        """Whether either end is closed."""
        return self.near.closed or self.far.closed

    def cut(self) -> None:
        """Breaks the connection: both ends see a reset, and bytes in flight are lost."""
        self.up.break_now()
        self.down.break_now()

    def cut_after(self, size: int, *, answers: bool) -> None:
        """As ``cut``, when so many more bytes have arrived in one direction."""
        (self.down if answers else self.up).cut_after(size, self.cut)

    def stall(self, seconds: float) -> None:
        """Holds up both directions."""
        self.up.stall(seconds)
        self.down.stall(seconds)

    def vanish(self) -> None:
        """Half-open: packets vanish; the kernels give up in the end."""
        self.half_open = True
        self.up.vanish()
        self.down.vanish()
        self._given_up_at = trio.current_time() + GIVE_UP_SECONDS
        self._clock.at(self._given_up_at, self.number, self.cut)

    @property
    def end_unseen_until(self) -> float:
        """When the far end can first see that the near end has left (trio's clock); 0 if it can see it now."""
        if self.far.closed or self.up.ended or self.up.reset:
            return 0.0
        return self._given_up_at if self.half_open else self.up.last_arrival


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

    def __init__(self, seed: int, clock: VirtualClock, wall: Callable[[], float]) -> None:
        """``wall``: the time of day, in seconds since the epoch."""
        self.clock = clock
        self.links: list[Link] = []
        self.wall = wall
        #: What takes connections, by host and port.
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
        nth = self._made[source, host] = self._made.get((source, host), 0) + 1
        rng = Random(f"{self._seed} {source} {host} {nth}")
        link = Link(len(self.links), taker[0], self.clock, rng, (source, host))
        self.links.append(link)
        link.stall(max(self._held.get((end, link.leg), 0.0) for end in link.hosts) - trio.current_time())
        taker[1](link.far)
        return link

    def hold(self, host: str, leg: str, seconds: float) -> None:
        """Holds up all bytes to and from a host on one leg for so long, also those of new connections."""
        self._held[host, leg] = max(self._held.get((host, leg), 0.0), trio.current_time() + seconds)
        for link in self.live(leg):
            if host in link.hosts:
                link.stall(seconds)

    def live(self, leg: str) -> list[Link]:
        """The connections of a leg that both ends have open."""
        return [link for link in self.links if link.leg == leg and not link.over]


class Host:
    """One machine; a ``kproxy.net.network.Network``."""

    def __init__(self, network: VirtualNetwork, name: str, leg: str) -> None:
        """``leg`` is what connections to its ports are called."""
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
        await trio.sleep(min(0.002, timeout_ms / 1000))
        if self._dead:
            raise OSError(errno.ENETDOWN, "the process has ended")
        link = self.newest = self._network.connect(self.name, host, port)
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
