"""The network over TCP sockets."""

import os
import socket
import time
from collections.abc import Collection, Iterable

import trio

from kproxy.config.os_limits import kept_files, may_open
from kproxy.dedup.identity import normal_host
from kproxy.net.balanced_io import BalancedIO
from kproxy.net.network import FilesShort
from kproxy.net.socket_io import SocketIO
from kproxy.proxy.permits import is_listed


class SocketListener:
    """A TCP port that takes connections."""

    def __init__(self, listener: trio.SocketListener, balancers: Collection[str] = ()) -> None:
        """Takes over a listener of trio's. ``balancers``: as ``SocketNetwork``."""
        self._listener = listener
        self._balancers = balancers
        self.port: int = listener.socket.getsockname()[1]

    async def accept(self) -> SocketIO:
        """As ``Listener``. A new descriptor is the lowest that is free: its number says how many are in use."""
        while True:
            stream = await self._listener.accept()
            sock = socket.socket(fileno=stream.socket.detach())
            if sock.fileno() >= may_open() - kept_files() // 2:
                sock.close()
                raise FilesShort
            try:
                balanced = self._balancers and is_listed(normal_host(sock.getpeername()[0]), self._balancers)
                return BalancedIO(sock) if balanced else SocketIO(sock)
            except OSError:
                sock.close()  # it was gone before it was set up

    @property
    def fileno(self) -> int:
        """The file descriptor; -1 after ``close``."""
        return self._listener.socket.fileno()

    def close(self) -> None:
        """Closes the port, unless another process has it, too."""
        self._listener.socket.close()


def _cause(error: OSError) -> str:
    """Return what the system says; trio puts the errors of a host's addresses into a group."""
    group = error.__cause__
    first = group.exceptions[0] if isinstance(group, ExceptionGroup) else error
    number = getattr(first, "errno", None) or 0
    return os.strerror(number) if number > 0 else error.strerror or str(error)


class SocketNetwork:
    """The network of the machine; made inside trio."""

    def __init__(self, inherited: Iterable[socket.socket] = (), balancers: Collection[str] = ()) -> None:
        """Reads the time of day once: from then on it advances as trio's clock does.

        ``inherited`` listen already, and are used in place of new ones for their addresses. ``balancers``: patterns of
        the addresses whose connections begin with a PROXY protocol header.
        """
        self._inherited = list(inherited)
        self._balancers = balancers
        #: All that were made, also those that are closed by now.
        self.listeners: list[SocketListener] = []
        self._epoch = time.time() - trio.current_time()

    async def connect(self, host: str, port: int, timeout_ms: int) -> SocketIO:
        """A connection. OSError if there is none within ``timeout_ms``."""
        try:
            with trio.fail_after(timeout_ms / 1000):
                stream = await trio.open_tcp_stream(host, port)
        except trio.TooSlowError as error:
            raise OSError(f"no connection to {host}:{port} within {timeout_ms} ms") from error
        except OSError as error:
            raise OSError(f"cannot connect to {host}:{port}: {_cause(error)}") from error
        raw = socket.socket(fileno=stream.socket.detach())
        try:
            return SocketIO(raw)
        except OSError:
            raw.close()  # it was gone before it was set up
            raise

    async def listen(self, host: str, port: int, backlog: int) -> list[SocketListener]:
        """A listener for each address of the host; port 0 is any. OSError if the port is unavailable.

        No host: all addresses of this one.
        """
        listeners = await self._adopt(host, port)
        if not listeners:
            listeners = await trio.open_tcp_listeners(port, host=host or None, backlog=backlog)
        made = [SocketListener(listener, self._balancers) for listener in listeners]
        self.listeners += made
        return made

    async def _adopt(self, host: str, port: int) -> list[trio.SocketListener]:
        """Listeners of the inherited sockets that are bound to an address."""
        if not self._inherited:
            return []
        rows = await trio.socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        wanted = {row[4][:2] for row in rows}
        found = [sock for sock in self._inherited if sock.getsockname()[:2] in wanted]
        for sock in found:
            self._inherited.remove(sock)
            sock.setblocking(False)
        return [trio.SocketListener(trio.socket.from_stdlib_socket(sock)) for sock in found]

    def wall(self) -> float:
        """Seconds since the epoch; no jump of the machine's clock shows in it."""
        return self._epoch + trio.current_time()
