"""Connections of the shell, without the shell."""

import socket

import trio

from kproxy.net.network import ByteIO
from kproxy.net.socket_io import SocketIO


def sockets() -> tuple[SocketIO, SocketIO]:
    """The two ends of a connection."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        one = socket.create_connection(server.getsockname())
        two, _ = server.accept()
    return SocketIO(one), SocketIO(two)


async def read(io: ByteIO, count: int, size: int = 65536, *, seconds: float = 5) -> bytes:
    """``count`` bytes, at most ``size`` of them at a time."""
    data = b""
    buffer = memoryview(bytearray(size))
    with trio.fail_after(seconds):
        while len(data) < count:
            got = io.receive_now([buffer])
            if got is None:
                await io.readable()
                continue
            assert got
            data += buffer[:got]
    return data
