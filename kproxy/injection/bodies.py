"""Bodies of requests that are read side by side, within an amount of memory."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import trio

from kproxy.control.serving import Body, read_bounded

if TYPE_CHECKING:
    from starlette.requests import Request


@dataclass(slots=True, eq=False)
class _Held:
    """What is held of one body."""

    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    size: int = 0


class Bodies:
    """Reads bodies. Where they take too much memory, the oldest that has not ended gives way."""

    def __init__(self, most_bytes: int) -> None:
        """``most_bytes`` is for all of them, those whose requests are not answered yet included."""
        self._most_bytes = most_bytes
        self._bytes = 0
        #: The oldest first.
        self._unfinished: dict[_Held, None] = {}

    @asynccontextmanager
    async def read(self, request: "Request", most_bytes: int, seconds: float) -> AsyncIterator[Body | None]:
        """The body as ``read_bounded`` returns it, which takes memory until the block ends; None: it gave way."""
        held, body = _Held(), None
        self._unfinished[held] = None
        try:
            with held.scope:
                body = await read_bounded(request, most_bytes, seconds, partial(self._received, held))
            self._unfinished.pop(held, None)
            yield body
        finally:
            self._unfinished.pop(held, None)
            self._bytes -= held.size

    def _received(self, held: _Held, size: int) -> None:
        held.size += size
        self._bytes += size
        while self._bytes > self._most_bytes and self._unfinished:
            oldest = next(iter(self._unfinished))
            del self._unfinished[oldest]
            self._bytes -= oldest.size
            oldest.size = 0
            oldest.scope.cancel()
