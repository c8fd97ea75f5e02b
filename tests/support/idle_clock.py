"""A clock for tests whose kproxy, brokers and clients are tasks of one process."""

import math
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
import trio
from trio.testing import MockClock

_IDLE_S = 0.005
"""What a task sent over loopback has arrived long before."""


@contextmanager
def idle_clock() -> Iterator[MockClock]:
    """Yields a clock that moves only when all tasks wait, and then to the next deadline.

    So a busy machine makes no time-out expire. While a thread works for a task, time passes at its usual rate.
    The clock does not know of other processes: a test that waits for one needs the real time.
    """
    clock = MockClock(autojump_threshold=_IDLE_S)
    run_sync, working = trio.to_thread.run_sync, 0

    async def watched(*arguments: Any, **options: Any) -> Any:
        nonlocal working
        working += 1
        clock.rate, clock.autojump_threshold = 1.0, math.inf
        try:
            return await run_sync(*arguments, **options)
        finally:
            working -= 1
            if not working:
                clock.rate, clock.autojump_threshold = 0.0, _IDLE_S

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trio.to_thread, "run_sync", watched)
        yield clock


def run_idle(
    test: Callable[[], Awaitable[object]],
    clock: trio.abc.Clock | None = None,
    instruments: Sequence[trio.abc.Instrument] = (),
) -> object:
    """Runs a test on an idle clock, or on its own clock if it has one."""
    if clock is not None:
        return trio.run(test, clock=clock, instruments=instruments)
    with idle_clock() as idle:
        return trio.run(test, clock=idle, instruments=instruments)
