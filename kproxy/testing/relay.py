"""A TCP relay that understands Kafka's frames and injects the configured faults: a bad network for tests and
benchmarks.

It can be anywhere in a chain (client, relay, kproxy, relay, broker). Frames are recognized by their length prefix, a
response's API by the correlation id of its request. What is no Kafka frame passes unchanged.
"""

import contextlib
import random
import socket
import struct
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple

import trio

from kproxy.codec.messages import ApiKey

__all__ = ["Counts", "Drop", "Ending", "FaultRelay", "Faults", "Frame"]

_HOST: Final = "127.0.0.1"
_HEADER: Final = struct.Struct(">hhi")
_LONGEST_FRAME: Final = 1 << 28
_I32: Final = struct.Struct(">i")
_AT_ONCE: Final = struct.pack("ii", 1, 0)
_DRAIN_SECONDS: Final = 5.0
_STEPS_PER_SECOND: Final = 50
_UNKNOWN: Final = -1
_ASKED: Final = 4096
"""Requests remembered: those with acks=0 have no response."""


class Ending(Enum):
    """How a connection ends, on both of its sides."""

    FIN = "fin"
    """In good order: nothing more is sent, what still comes is read (so acknowledged by TCP) and thrown away."""
    RST = "rst"
    """Reset at once."""


@dataclass(frozen=True, slots=True)
class Drop:
    """Which frames of one API vanish: the `every`-th of the whole relay (0: none) and a random `share` of all."""

    every: int = 0
    share: float = 0.0
    api_key: int = ApiKey.PRODUCE
    ending: Ending | None = Ending.FIN
    """What happens to the connection then; None: it lives on with a hole in it."""


@dataclass
class Faults:
    """What a relay does to its connections. May be changed at any time, for connections that are open too."""

    drop_requests: Drop | None = None
    drop_answers: Drop | None = None
    request_delays: dict[int, float] = field(default_factory=dict)
    """Seconds by API key before a request is passed on; requests after it wait too."""
    answer_delays: dict[int, float] = field(default_factory=dict)
    cut_requests_at: int | None = None
    """End a connection when so many bytes of its requests, counted from its beginning, have been passed on."""
    cut_answers_at: int | None = None
    cut_ending: Ending = Ending.FIN
    swallow_requests: bool = False
    """Half-open: what the client sends, its end included, vanishes without a sign."""
    swallow_answers: bool = False
    bytes_per_second: float | None = None
    """Speed of each direction of each connection."""
    accepting: bool = True
    """Whether new connections are served; else they are reset."""


@dataclass
class Counts:
    """What a relay has seen and done so far; the counters are by API key (-1: not known)."""

    connections: int = 0
    requests: Counter[int] = field(default_factory=Counter)
    answers: Counter[int] = field(default_factory=Counter)
    dropped_requests: Counter[int] = field(default_factory=Counter)
    dropped_answers: Counter[int] = field(default_factory=Counter)
    swallowed_bytes: int = 0
    cuts: int = 0
    """Connections that the relay ended of itself, for whatever reason."""


class Frame(NamedTuple):
    """What arrived at a relay. Connections are numbered from 1; ``api_key`` is -1 where it is unknown.

    ``upstream`` is the host and port to which the connection is relayed.
    """

    connection: int
    is_answer: bool
    api_key: int
    data: bytes
    dropped: bool
    upstream: tuple[str, int]


class FaultRelay:
    """Relays connections to a port on to `upstream` (host and port; connections made later follow a change).

    :param host: the address to listen at.
    :param port: where to listen; 0 takes any, which `port` has once `serve` has started.
    :param seed: of all that is left to chance, which depends on the order of a connection's frames only.
    :param watch: is called with each frame when it arrives.
    """

    def __init__(
        self,
        upstream: tuple[str, int],
        *,
        host: str = _HOST,
        port: int = 0,
        faults: Faults | None = None,
        seed: int = 0,
        watch: Callable[[Frame], None] | None = None,
    ) -> None:
        self.upstream = upstream
        self.port = port
        self._host = host
        self.faults = faults or Faults()
        self.counts = Counts()
        self.watch = watch
        self._seed = seed
        self._open: set[_Connection] = set()
        self._running = trio.Event()
        self._running.set()

    async def serve(self, *, task_status: trio.TaskStatus[int] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled; reports the port when it listens.

        :raises OSError: the port is taken.
        """
        listeners = await trio.open_tcp_listeners(self.port, host=self._host)
        self.port = listeners[0].socket.getsockname()[1]
        async with trio.open_nursery() as nursery:
            await nursery.start(trio.serve_listeners, self._handle, listeners)
            task_status.started(self.port)

    @property
    def connections(self) -> int:
        return len(self._open)

    def pause(self) -> None:
        """Pass nothing on, and soon read nothing more, until `resume`."""
        if self._running.is_set():
            self._running = trio.Event()

    def resume(self) -> None:
        """Continue after `pause`; nothing was lost."""
        self._running.set()

    def cut_all(self, ending: Ending = Ending.RST) -> int:
        """End all connections now, also in the middle of a frame; return how many."""
        connections = list(self._open)
        for connection in connections:
            connection.end(ending)
        return len(connections)

    async def running(self) -> None:
        """Wait while the relay is paused."""
        while not self._running.is_set():
            await self._running.wait()

    async def _handle(self, client: trio.SocketStream) -> None:
        self.counts.connections += 1
        number = self.counts.connections  # others may open before this one is through to upstream
        if not self.faults.accepting:
            _reset(client)
            return
        target = self.upstream
        try:
            upstream = await trio.open_tcp_stream(*target)
        except OSError:
            _reset(client)
            return
        chance = random.Random(self._seed * 1_000_003 + number)
        connection = _Connection(self, client, upstream, target, number, chance)
        self._open.add(connection)
        try:
            await connection.run()
        finally:
            self._open.discard(connection)


class _Connection:
    """One client connection and the one upstream that belongs to it."""

    def __init__(
        self,
        relay: FaultRelay,
        client: trio.SocketStream,
        upstream: trio.SocketStream,
        target: tuple[str, int],
        number: int,
        chance: random.Random,
    ) -> None:
        self._relay = relay
        self._number = number
        self._client, self._upstream, self._target = client, upstream, target
        self._chance = chance
        self._asked: deque[tuple[int, int]] = deque(maxlen=_ASKED)
        self._passed = {"requests": 0, "answers": 0}
        self._scope = trio.CancelScope()
        self._ending = Ending.RST

    async def run(self) -> None:
        """Relay in both directions until both have ended or the relay ends them."""
        try:
            with self._scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._carry, self._client, self._upstream, "requests")
                    nursery.start_soon(self._carry, self._upstream, self._client, "answers")
                return
            if self._ending is Ending.FIN:
                await self._finish()
        finally:
            end = _reset if self._scope.cancelled_caught and self._ending is Ending.RST else _close
            end(self._client)
            end(self._upstream)

    def end(self, ending: Ending) -> None:
        if not self._scope.cancel_called:
            self._relay.counts.cuts += 1
            self._ending = ending
            self._scope.cancel()

    async def _finish(self) -> None:
        with trio.move_on_after(_DRAIN_SECONDS):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_drain, self._client)
                nursery.start_soon(_drain, self._upstream)

    async def _carry(self, source: trio.SocketStream, sink: trio.SocketStream, direction: str) -> None:
        """Pass one direction's frames on, then its end; a reset on one side becomes a reset on the other."""
        rest = bytearray()
        try:
            while data := await source.receive_some():
                rest += data
                for frame in _cut_frames(rest):
                    await self._pass(frame, sink, direction)
            await self._send(sink, bytes(rest), direction)
            if self._swallows(direction):
                await trio.sleep_forever()
            await self._relay.running()
            await sink.send_eof()
        except trio.BrokenResourceError:
            self._ending = Ending.RST
            self._scope.cancel()

    async def _pass(self, frame: bytes, sink: trio.SocketStream, direction: str) -> None:
        faults, counts = self._relay.faults, self._relay.counts
        if direction == "requests":
            api_key, seen, dropped = self._note_request(frame), counts.requests, counts.dropped_requests
            drop, delays = faults.drop_requests, faults.request_delays
        else:
            api_key, seen, dropped = self._asked_for(frame), counts.answers, counts.dropped_answers
            drop, delays = faults.drop_answers, faults.answer_delays
        seen[api_key] += 1
        hit = drop is not None and self._hits(drop, api_key, seen[api_key])
        if self._relay.watch is not None:
            self._relay.watch(Frame(self._number, direction == "answers", api_key, frame, hit, self._target))
        if drop is not None and hit:
            dropped[api_key] += 1
            if drop.ending is not None:
                self.end(drop.ending)
                await trio.lowlevel.checkpoint()
            return
        if delays.get(api_key):
            await trio.sleep(delays[api_key])
        await self._send(sink, frame, direction)

    def _hits(self, drop: Drop, api_key: int, number: int) -> bool:
        if api_key != drop.api_key:
            return False
        by_chance = self._chance.random() < drop.share
        return by_chance or (drop.every > 0 and number % drop.every == 0)

    def _swallows(self, direction: str) -> bool:
        faults = self._relay.faults
        return faults.swallow_requests if direction == "requests" else faults.swallow_answers

    async def _send(self, sink: trio.SocketStream, data: bytes, direction: str) -> None:
        await self._relay.running()
        if self._swallows(direction):
            self._relay.counts.swallowed_bytes += len(data)
            return
        faults = self._relay.faults
        limit = faults.cut_requests_at if direction == "requests" else faults.cut_answers_at
        left = None if limit is None else max(0, limit - self._passed[direction])
        if left is not None and left <= len(data):
            data = data[:left]
        await self._send_slowly(sink, data)
        self._passed[direction] += len(data)
        if left is not None and len(data) == left:
            self.end(faults.cut_ending)
            await trio.lowlevel.checkpoint()

    async def _send_slowly(self, sink: trio.SocketStream, data: bytes) -> None:
        begin = 0
        while (speed := self._relay.faults.bytes_per_second) and begin < len(data):
            size = max(1, int(speed / _STEPS_PER_SECOND))
            await sink.send_all(data[begin : begin + size])
            begin += size
            await trio.sleep(size / speed)
        await sink.send_all(data[begin:])

    def _note_request(self, frame: bytes) -> int:
        if len(frame) < 4 + _HEADER.size:
            return _UNKNOWN
        api_key, _, correlation_id = _HEADER.unpack_from(frame, 4)
        self._asked.append((correlation_id, api_key))
        return int(api_key)

    def _asked_for(self, frame: bytes) -> int:
        """Return a response's API; older requests without a response (Produce with acks=0) get none any more."""
        if len(frame) < 4 + _I32.size:
            return _UNKNOWN
        (correlation_id,) = _I32.unpack_from(frame, 4)
        place = next((at for at, (asked, _) in enumerate(self._asked) if asked == correlation_id), None)
        if place is None:
            return _UNKNOWN
        for _ in range(place):
            self._asked.popleft()
        return self._asked.popleft()[1]


def _cut_frames(buffer: bytearray) -> Iterator[bytes]:
    """Take whole frames, length prefix included, from the front of `buffer`; all of it if that is no Kafka."""
    while len(buffer) >= _I32.size:
        (size,) = _I32.unpack_from(buffer)
        end = 4 + size if 0 <= size <= _LONGEST_FRAME else len(buffer)
        if end > len(buffer):
            return
        frame = bytes(buffer[:end])
        del buffer[:end]
        yield frame


async def _drain(stream: trio.SocketStream) -> None:
    """Send FIN and throw away what still comes, so that close does not turn into a reset."""
    with contextlib.suppress(trio.BrokenResourceError):
        await stream.send_eof()
        while await stream.receive_some():
            pass


def _close(stream: trio.SocketStream) -> None:
    """Close at once; FIN, if nothing that came is unread."""
    stream.socket.close()


def _reset(stream: trio.SocketStream) -> None:
    """Close with RST."""
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
    stream.socket.close()
