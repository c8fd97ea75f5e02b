"""Non-blocking sockets: try first, wait only if it would block. A proxy spends its time on wake-ups and copies."""

import fcntl
import select
import socket
import struct
import sys
import termios
from collections.abc import Sequence

import trio

from kproxy.net.end_watch import Ended, EndWatch
from kproxy.proxy.slots import Buffer

#: SO_LINGER: on, for no time.
_RESET = struct.pack("ii", 1, 0)

#: Buffers for one ``sendmsg``; the kernel takes up to 1024.
_GATHER = 256
#: How many calls may succeed at once before others get their turn.
_TURNS = 16
#: TCP keep-alive: a peer that vanished is noticed within about 30 s.
_KEEPALIVE = ((socket.TCP_KEEPIDLE, 10), (socket.TCP_KEEPINTVL, 5), (socket.TCP_KEEPCNT, 4))


class SocketIO:
    """A connected TCP socket (``kproxy.net.network.ByteIO``)."""

    __slots__ = ("_ended_by", "_sock", "_turns", "_unacked", "_watch", "closed", "peer_host", "stalled_at")

    def __init__(self, sock: socket.socket) -> None:
        """Takes over a connected socket. OSError if the connection is closed already."""
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in _KEEPALIVE:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)
        self._sock = sock
        self._turns = 0
        self._unacked = 0
        self._ended_by = 0
        self._watch: EndWatch | None = None
        #: The peer's address without the port.
        self.peer_host: str = sock.getpeername()[0]
        self.closed = False
        #: Since when a write waits for the peer to read (trio's clock); None if none does.
        self.stalled_at: float | None = None

    @property
    def balanced(self) -> bool:
        return False

    @property
    def server_name(self) -> None:
        """Nobody is asked for by name without TLS."""

    @property
    def peer_certificate(self) -> None:
        """Nobody shows one without TLS."""

    @property
    def greets(self) -> bool:
        return False

    @property
    def local_host(self) -> str:
        host: str = self._sock.getsockname()[0]
        return host

    @property
    def peer(self) -> str:
        try:
            host, port = self._sock.getpeername()[:2]
        except OSError:
            return "?"
        return f"{host}:{port}"

    async def introduced(self) -> None:
        """Nobody stands between this end and the peer."""

    def receive_now(self, buffers: Sequence[memoryview]) -> int | None:
        try:
            if len(buffers) == 1:
                return self._sock.recv_into(buffers[0])
            return self._sock.recvmsg_into(buffers)[0]
        except (BlockingIOError, InterruptedError):
            return None

    async def readable(self) -> None:
        self._turns = 0
        if self.closed:
            raise trio.ClosedResourceError
        await trio.lowlevel.wait_readable(self._sock)

    def should_yield(self) -> bool:
        self._turns += 1
        if self._turns < _TURNS:
            return False
        self._turns = 0
        return True

    async def send_all(self, buffers: list[Buffer]) -> int:
        total = 0
        while buffers:
            batch = buffers[:_GATHER]
            size = sum(map(len, batch))
            total += size
            sent = self._send_now(batch)
            if sent < size:
                await self._send_rest(batch, sent)
            del buffers[:_GATHER]
        return total

    async def send_shared(self, view: memoryview) -> int:
        sent = self._send_now([view])
        if sent < len(view):
            rest: list[Buffer] = [bytes(view[sent:])]
            await self._send_rest(rest, 0)
        return len(view)

    def send_at_once(self, buffers: list[Buffer]) -> int:
        total = 0
        if len(buffers) == 1:
            total = self._send_now(buffers)
            if total:
                buffers[:] = [memoryview(buffers[0])[total:]] if total < len(buffers[0]) else []
            return total
        while buffers and (sent := self._send_now(buffers[:_GATHER])):
            total += sent
            while sent and sent >= len(buffers[0]):
                sent -= len(buffers.pop(0))
            if sent:
                buffers[0] = memoryview(buffers[0])[sent:]
                break
        return total

    def _send_now(self, buffers: list[Buffer]) -> int:
        try:
            return self._sock.sendmsg(buffers) if len(buffers) > 1 else self._sock.send(buffers[0])
        except (BlockingIOError, InterruptedError):
            return 0

    async def _send_rest(self, buffers: list[Buffer], sent: int) -> None:
        """Writes what is left of the buffers after ``sent`` bytes; releases whole buffers as it proceeds."""
        left = list(buffers)
        buffers.clear()
        while True:
            while left and sent >= len(left[0]):
                sent -= len(left.pop(0))
            if not left:
                return
            left[0], sent = memoryview(left[0])[sent:], 0
            self.stalled_at = trio.current_time()
            await trio.lowlevel.wait_writable(self._sock)
            self.stalled_at = None
            sent = self._send_now(left)

    def unacked(self) -> int:
        if not self.closed:
            self._unacked = struct.unpack("i", fcntl.ioctl(self._sock, termios.TIOCOUTQ, b"\0\0\0\0"))[0]
        return self._unacked

    def limit_unacknowledged(self, timeout_ms: int) -> None:
        if not self.closed:
            self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, timeout_ms)

    def peer_closed(self) -> bool:
        return self.closed or bool(self._ends())

    def watch_end(self, watch: EndWatch, ended: Ended) -> None:
        if self.closed:
            watch.found(ended)
        else:
            watch.watch(self._sock.fileno(), ended)
            self._watch = watch

    def pending(self) -> int:
        """Bytes that can be read (FIONREAD)."""
        if self.closed:
            return 0
        return int.from_bytes(fcntl.ioctl(self._sock, termios.FIONREAD, b"\0\0\0\0"), sys.byteorder)

    def resets_on_close(self) -> None:
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)

    def closed_well(self) -> bool:
        return (self._ended_by if self.closed else self._ends()) == select.POLLRDHUP

    def _ends(self) -> int:
        poll = select.poll()
        poll.register(self._sock, select.POLLRDHUP)  # POLLHUP and POLLERR are always reported
        return sum(events for _, events in poll.poll(0))

    def close(self) -> None:
        if not self.closed:
            self._ended_by = self._ends()
            self._unacked = self.unacked()
            self.closed = True
            if self._watch is not None and (ended := self._watch.forget(self._sock.fileno())) is not None:
                self._watch.found(ended)
            trio.lowlevel.notify_closing(self._sock)
            self._sock.close()
