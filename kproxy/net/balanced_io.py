"""A client's connection through a load balancer that sends the client's address first (PROXY protocol)."""

import socket

from kproxy.codec.proxy_header import MOST_LINE, START, Ends, body_size, is_line, read_binary, read_line
from kproxy.errors import RemoteProtocolError
from kproxy.net.socket_io import SocketIO


class BalancedIO(SocketIO):
    """A socket with the addresses that the balancer names, from ``introduced`` on."""

    __slots__ = ("_ends_told",)

    def __init__(self, sock: socket.socket) -> None:
        super().__init__(sock)
        #: What the balancer said; None: nothing yet, or it speaks for itself.
        self._ends_told: Ends | None = None

    async def introduced(self) -> None:
        """Reads the header. OSError; RemoteProtocolError if it is malformed or incomplete."""
        start = await self._exactly(START)
        if is_line(start):
            while not start.endswith(b"\r\n") and len(start) < MOST_LINE:
                start += await self._exactly(1)
            told = read_line(start)
        else:
            fixed = await self._exactly(4)
            told = read_binary(fixed, await self._exactly(body_size(fixed)))
        if told is not None:
            self._ends_told, self.peer_host = told, told.client

    @property
    def balanced(self) -> bool:
        return True

    @property
    def local_host(self) -> str:
        return super().local_host if self._ends_told is None else self._ends_told.balancer

    @property
    def peer(self) -> str:
        return super().peer if self._ends_told is None else f"{self.peer_host}:{self._ends_told.client_port}"

    async def _exactly(self, size: int) -> bytes:
        data = bytearray(size)
        view = memoryview(data)
        while len(view):
            count = self.receive_now([view])
            if count == 0 and len(view) == START == size:
                raise ConnectionAbortedError("the connection ended before its first byte, as a health check does")
            if count == 0:
                raise RemoteProtocolError("the connection ended within the PROXY protocol header")
            if count is None:
                await self.readable()
            view = view[count or 0 :]
        return bytes(data)
