"""Long work beside the loop, in a thread: one piece at a time, since each may hold much memory."""

from collections.abc import Callable
from typing import Final, TypeVar

import trio

from kproxy.budget import is_long
from kproxy.errors import KproxyError

T = TypeVar("T")

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


async def done(steps: int, work: Callable[[], T]) -> T:
    """Return what ``work`` returns: it is called at once, or beside the loop if so many steps are long work."""
    return await beside(work) if is_long(steps) else work()
