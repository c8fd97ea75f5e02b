"""Long work beside the loop, in a thread: one piece at a time, since each may hold much memory."""

from collections.abc import Callable
from typing import Final, TypeVar

import trio

from kproxy.errors import KproxyError

T = TypeVar("T")

#: Of a message: reading more bytes than this into objects, or writing so much, may take 20 ms and more.
LONG_BYTES: Final = 65_536

_turn: Final = trio.lowlevel.RunVar[trio.CapacityLimiter]("long work")


async def beside(work: Callable[[], T]) -> T:
    """Return what ``work`` returns, or raise its KproxyError, once it was its turn of all work of the process.

    The error has no traceback: that would keep what the work had made until Python's collector finds it.
    """
    try:
        limiter = _turn.get()
    except LookupError:
        limiter = trio.CapacityLimiter(1)
        _turn.set(limiter)
    try:
        return await trio.to_thread.run_sync(work, limiter=limiter)
    except KproxyError as error:
        raise error.with_traceback(None)  # noqa: B904  # the same error
