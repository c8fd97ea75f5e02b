"""One end of a connection in memory, as a program sees it."""

import errno
from collections.abc import Sequence
from math import inf
from typing import Final

import trio

from kproxy.net.end_watch import Ended, EndWatch
from kproxy.proxy.slots import Buffer
from verification.simulation.kernel import KernelEnd
from verification.simulation.wire import FIN, RST, Pipe

_TURNS: Final = 16


class VirtualIO:
    """One end of a connection; a ``kproxy.net.network.ByteIO``."""

    def __init__(self, incoming: Pipe, outgoing: Pipe, local_host: str, peer_host: str, kernel: KernelEnd) -> None:
        self._in = incoming
        self._out = outgoing
        self.kernel = kernel
        self._turns = 0
        self._unacked = 0
        self._closed_well = False
        self.local_host = local_host
        self.peer_host = peer_host
        self.peer = peer_host
        #: Whether the peer is a balancer that names its client (PROXY protocol).
        self.balanced = False
        self.closed = self._resets = self._finished = False
        #: When this end closed it, by trio's clock.
        self.closed_at = inf
        self.stalled_at: float | None = None

    async def introduced(self) -> None:
        """Nobody stands between the ends."""

    def receive_now(self, buffers: Sequence[memoryview]) -> int | None:
        """Receives like a socket: unread bytes first, then the reset or the end."""
        if self.closed:
            raise OSError(errno.EBADF, "closed")
        if self._in.inbox:
            return self._in.read(list(buffers))
        if self._in.reset:
            raise ConnectionResetError(errno.ECONNRESET, "reset by the peer, or given up")
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
        """Whether it has TLS; it has none."""
        return False

    @property
    def server_name(self) -> None:
        """Nobody is asked for by name without TLS."""

    @property
    def peer_certificate(self) -> None:
        """Nobody shows one without TLS."""

    async def send_shared(self, view: memoryview) -> int:
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
        if self._in.reset or self._finished:
            raise BrokenPipeError(errno.EPIPE, "reset by the peer")
        return self._out.write(data)

    def unacked(self) -> int:
        """Bytes that the peer's kernel has not acknowledged, as this end's knows it."""
        if not self.closed:
            self._unacked = self._out.unacknowledged
        return self._unacked

    def limit_unacknowledged(self, timeout_ms: int) -> None:
        """Ends the connection when bytes have not been acknowledged for so long (TCP_USER_TIMEOUT)."""
        self.kernel.limit_unacknowledged(timeout_ms)

    def peer_closed(self) -> bool:
        """Whether the end or a reset has arrived."""
        return self.closed or self._in.ended or self._in.reset

    def watch_end(self, watch: EndWatch, ended: Ended) -> None:
        """Has the end reported when it arrives."""
        self._in.when_over(lambda: watch.found(ended))

    def pending(self) -> int:
        """Bytes that have arrived."""
        return 0 if self.closed else len(self._in.inbox)

    def resets_on_close(self) -> None:
        """Has ``close`` reset the connection."""
        self._resets = True

    def closed_well(self) -> bool:
        """Whether the peer's FIN has arrived, and no reset; after ``close`` whether it had by then."""
        return self._closed_well if self.closed else self._in.ended and not self._in.reset

    def finish(self) -> None:
        """Sends the end of what it writes (``shutdown``); it may read on."""
        if not (self.closed or self._in.reset or self._finished):
            self._finished = True
            self._out.end(FIN)
            self._out.writers.unpark_all()

    def close(self) -> None:
        """Ends the connection; with a reset if there are unread bytes, as Linux does, or if that was asked for."""
        if self.closed:
            return
        self._unacked = self.unacked()
        self._closed_well = self._in.ended and not self._in.reset
        self.closed = True
        self.closed_at = trio.current_time()
        self._in.leave()
        resets = bool(self._in.inbox) or self._resets
        if not self._in.reset and (resets or not self._finished):  # a connection that was reset sends nothing more
            self._out.end(RST if resets else FIN)
        self._in.readers.unpark_all()
        self._out.writers.unpark_all()
