"""Connections of the shell, without the shell."""

import ctypes
import socket
import struct

import trio

from kproxy.net.network import ByteIO
from kproxy.net.socket_io import SocketIO


def sockets() -> tuple[SocketIO, SocketIO]:
    """The two ends of a connection."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        one = socket.create_connection(server.getsockname())
        two, _ = server.accept()
    return SocketIO(one), SocketIO(two)


#: Not in the socket module: a filter for the packets that reach a socket (socket(7)).
_ATTACH_FILTER = 26


def cut_off(sock: socket.socket | trio.socket.SocketType) -> None:
    """From now on the kernel drops each packet that reaches a socket, and acknowledges nothing."""
    drop_all = ctypes.create_string_buffer(struct.pack("HBBI", 0x06, 0, 0, 0))  # BPF: return 0
    program = struct.pack("HL", 1, ctypes.addressof(drop_all))
    sock.setsockopt(socket.SOL_SOCKET, _ATTACH_FILTER, program)


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
