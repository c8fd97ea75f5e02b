"""Sends many frames over many connections, and counts what comes back."""

from collections import Counter
from collections.abc import Iterator
from typing import Final

import trio

from verification.hostile.mutations import Frame

_CONNECTIONS: Final = 24
#: Some requests wait for others, or for nothing: their connections are left.
_ANSWER_SECONDS: Final = 0.25
_CONNECT_SECONDS: Final = 10.0
ANSWERED: Final = "answered"
CLOSED: Final = "closed"
SILENT: Final = "silent"


def flood(port: int, frames: Iterator[Frame]) -> Counter[str]:
    """Sends all frames to a port of this host; how many were answered, closed the connection, or got nothing."""
    return trio.run(_flood, port, frames)


async def _flood(port: int, frames: Iterator[Frame]) -> Counter[str]:
    outcomes: Counter[str] = Counter()

    async def send() -> None:
        stream: trio.SocketStream | None = None
        for frame in frames:  # shared: each takes the next one
            if stream is None:
                with trio.fail_after(_CONNECT_SECONDS):
                    stream = await trio.open_tcp_stream("127.0.0.1", port)
            outcome = await _send(stream, frame.data)
            outcomes[outcome] += 1
            outcomes[frame.kind] += 1
            if outcome != ANSWERED:
                await trio.aclose_forcefully(stream)
                stream = None
        if stream is not None:
            await trio.aclose_forcefully(stream)

    async with trio.open_nursery() as nursery:
        for _ in range(_CONNECTIONS):
            nursery.start_soon(send)
    return outcomes


async def _send(stream: trio.SocketStream, data: bytes) -> str:
    with trio.move_on_after(_ANSWER_SECONDS):
        try:
            await stream.send_all(data)
            return ANSWERED if await _whole_answer(stream) else CLOSED
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return CLOSED
    return SILENT


async def _whole_answer(stream: trio.SocketStream) -> bool:
    buffer = b""
    while len(buffer) < 4 or len(buffer) < 4 + int.from_bytes(buffer[:4], "big"):
        part = await stream.receive_some(65_536)
        if not part:
            return False
        buffer += part
    return True
