"""A connection over another one: what the inner connection knows is asked there."""

from kproxy.net.end_watch import Ended, EndWatch
from kproxy.net.network import ByteIO


class WrappedIO:
    """The part of ``kproxy.net.network.ByteIO`` that every layer over a socket leaves to the socket."""

    __slots__ = ("_inner",)

    def __init__(self, inner: ByteIO) -> None:
        self._inner = inner

    @property
    def closed(self) -> bool:
        return self._inner.closed

    @property
    def stalled_at(self) -> float | None:
        return self._inner.stalled_at

    @property
    def peer_host(self) -> str:
        return self._inner.peer_host

    @property
    def balanced(self) -> bool:
        return self._inner.balanced

    @property
    def server_name(self) -> str | None:
        return self._inner.server_name

    @property
    def peer_certificate(self) -> bytes | None:
        return self._inner.peer_certificate

    @property
    def greets(self) -> bool:
        return self._inner.greets

    @property
    def local_host(self) -> str:
        return self._inner.local_host

    @property
    def peer(self) -> str:
        return self._inner.peer

    async def introduced(self) -> None:
        await self._inner.introduced()

    def should_yield(self) -> bool:
        return self._inner.should_yield()

    def unacked(self) -> int:
        return self._inner.unacked()

    def limit_unacknowledged(self, timeout_ms: int) -> None:
        self._inner.limit_unacknowledged(timeout_ms)

    def peer_closed(self) -> bool:
        return self._inner.peer_closed()

    def watch_end(self, watch: EndWatch, ended: Ended) -> None:
        self._inner.watch_end(watch, ended)

    def resets_on_close(self) -> None:
        self._inner.resets_on_close()

    def closed_well(self) -> bool:
        return self._inner.closed_well()
