"""What a fault relay does with byte streams: cut them into frames, end them."""

import contextlib
import socket
import struct
from collections.abc import Iterator
from typing import Final

import trio

_LONGEST_FRAME: Final = 1 << 28
_LENGTH: Final = struct.Struct(">i")
_AT_ONCE: Final = struct.pack("ii", 1, 0)


def cut_frames(buffer: bytearray) -> Iterator[bytes]:
    """Take whole frames, length prefix included, from the front of `buffer`; all of it if that is no Kafka."""
    while len(buffer) >= _LENGTH.size:
        (size,) = _LENGTH.unpack_from(buffer)
        end = 4 + size if 0 <= size <= _LONGEST_FRAME else len(buffer)
        if end > len(buffer):
            return
        frame = bytes(buffer[:end])
        del buffer[:end]
        yield frame


async def drain(stream: trio.SocketStream) -> None:
    """Send FIN and throw away what still comes, so that close does not turn into a reset."""
    with contextlib.suppress(trio.BrokenResourceError):
        await stream.send_eof()
        while await stream.receive_some():
            pass


def close(stream: trio.SocketStream) -> None:
    """Close at once; FIN, if nothing that came is unread."""
    stream.socket.close()


def reset(stream: trio.SocketStream) -> None:
    """Close with RST."""
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
    stream.socket.close()
