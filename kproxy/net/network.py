"""The interface between the shell and the outside world: connections, listeners and the time of day.

The shell is given a ``Network`` and asks nothing else, so that the same code runs over sockets and in a simulation.
"""

from collections.abc import Sequence
from typing import Protocol

from kproxy.net.end_watch import Ended, EndWatch
from kproxy.proxy.slots import Buffer


class ByteIO(Protocol):
    """A connection for one reader and one writer task: try first, wait only when it would block."""

    @property
    def closed(self) -> bool:
        """Whether it can't be used any more."""

    @property
    def stalled_at(self) -> float | None:
        """Since when a write waits for the peer to read (trio's clock, seconds); None if none does."""

    @property
    def peer_host(self) -> str:
        """The peer's address without the port."""

    @property
    def balanced(self) -> bool:
        """Whether a load balancer that names its clients (PROXY protocol) has the connection to the client."""

    @property
    def server_name(self) -> str | None:
        """The name under which the peer asked for this end (TLS's SNI), once it has sent something; None without."""

    @property
    def peer_certificate(self) -> bytes | None:
        """The certificate (DER) that the peer showed and proved, once it has sent something; None without."""

    @property
    def greets(self) -> bool:
        """Whether a handshake has to be over before anything can be read or written."""

    @property
    def local_host(self) -> str:
        """The address at which the peer reached this end."""

    @property
    def peer(self) -> str:
        """The peer's address, for logs."""

    async def introduced(self) -> None:
        """Returns when ``peer_host``, ``peer`` and ``local_host`` are the client's, also through a load balancer.

        OSError; RemoteProtocolError if the balancer does not send them. To be called once, before anything is read.
        """

    def receive_now(self, buffers: Sequence[memoryview]) -> int | None:
        """Bytes read into the buffers, 0 at the end of the stream, None if there is nothing yet. OSError if broken."""

    async def readable(self) -> None:
        """Waits until there is something to read. trio.ClosedResourceError if it is closed meanwhile."""

    def should_yield(self) -> bool:
        """Whether so many reads have gone through without a wait that others should run first."""

    async def send_all(self, buffers: list[Buffer]) -> int:
        """Writes all buffers in order, and empties the list; the bytes written. OSError if the connection is broken."""

    async def send_shared(self, view: memoryview) -> int:
        """As ``send_all``, of a view whose bytes may change while this task waits: what is left then is copied."""

    def send_at_once(self, buffers: list[Buffer]) -> int:
        """Writes what goes without a wait and takes it out of the list; the bytes written. OSError if broken."""

    def unacked(self) -> int:
        """Bytes written that the peer's kernel has not acknowledged.

        After ``close``: the number at that time.
        """

    def limit_unacknowledged(self, timeout_ms: int) -> None:
        """Ends the connection when bytes written are not acknowledged for so long, as a broken one (RFC 5482).

        Without a limit the kernel sends them again for minutes, and no keepalive probe meanwhile.
        """

    def peer_closed(self) -> bool:
        """Whether the peer has ended the connection, even if there is still data of it to read; or this end has."""

    def watch_end(self, watch: EndWatch, ended: Ended) -> None:
        """Lets ``watch`` report when ``peer_closed`` has become true; only once for a connection."""

    def pending(self) -> int:
        """Bytes of the peer that can be read, with TLS before they are decrypted; 0 after ``close``."""

    def resets_on_close(self) -> None:
        """Has ``close`` reset the connection: the peer sees that nobody serves it, as where nobody listens."""

    def closed_well(self) -> bool:
        """Whether the peer's FIN has arrived, and no reset. After ``close``: whether it had by then."""

    def close(self) -> None:
        """Closes the connection and wakes tasks that wait for it. May be called again."""


class FilesShort(OSError):
    """A connection was closed at once, since the file descriptors that are left are kept for clients that are there."""


class NetworkListener(Protocol):
    """A port that takes connections."""

    @property
    def port(self) -> int:
        """The port, also where any was asked for."""

    async def accept(self) -> ByteIO:
        """The next connection. trio.ClosedResourceError after ``close``, OSError if none is available just now.

        FilesShort: the next one may be taken at once.
        """

    def close(self) -> None:
        """Takes no more connections."""


class ClientNetworks(Protocol):
    """By principal, the networks for what clients ask for."""

    def for_client(self, principal: str) -> "Network":
        """For a client's own connection."""

    def on_behalf(self, principal: str) -> "Network":
        """For what kproxy does for it beside that."""


class Network(Protocol):
    """Where connections come from, and what time it is."""

    async def connect(self, host: str, port: int, timeout_ms: int) -> ByteIO:
        """A connection. OSError if there is none within ``timeout_ms``."""

    async def listen(self, host: str, port: int, backlog: int) -> Sequence[NetworkListener]:
        """A listener for each address of the host; port 0 is any. OSError if the port is unavailable."""

    def wall(self) -> float:
        """Seconds since the epoch; they advance as trio's clock does."""
