"""A test that takes longer than ``timeout`` in pyproject.toml fails, and shows what each of its tasks waited for.

pytest-timeout alone would raise its failure in trio's own loop, which then cannot end: no later test could start trio.
"""

import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, Final, cast

import pytest
import trio

#: Tasks that have not ended so many seconds after they were cancelled are left, and the failure is raised at once.
CLOSE_SECONDS: Final = 30.0
_CORE: Final = "/trio/_core/"


@pytest.hookimpl(wrapper=True, optionalhook=True)
def pytest_timeout_set_timer() -> Iterator[None]:
    """Let pytest-timeout set its timer, then take its signal while trio runs."""
    result = yield
    fail = signal.getsignal(signal.SIGALRM)
    if callable(fail):
        signal.signal(signal.SIGALRM, _handler(cast("Callable[[int, FrameType | None], Any]", fail)))
    return result


def _handler(fail: Callable[[int, FrameType | None], Any]) -> Callable[[int, FrameType | None], None]:
    def expired(number: int, frame: FrameType | None) -> None:
        if not trio.lowlevel.in_trio_run():
            fail(number, frame)
        for line in _lines(trio.lowlevel.current_root_task(), ""):
            print(line, file=sys.stderr)
        signal.signal(number, fail)
        signal.setitimer(signal.ITIMER_REAL, CLOSE_SECONDS)
        trio.lowlevel.current_trio_token().run_sync_soon(fail, number, None)

    return expired


def _lines(task: trio.lowlevel.Task | None, indent: str) -> Iterator[str]:
    """A task's stack and those of the tasks that it started."""
    if task is None:
        return
    yield f"{indent}task {task.name}"
    frames = ((frame, line) for frame, line in task.iter_await_frames() if _CORE not in frame.f_code.co_filename)
    stack = traceback.StackSummary.extract(frames)
    yield from (f"{indent}  {line}" for text in stack.format() for line in text.splitlines())
    for nursery in task.child_nurseries:
        for child in nursery.child_tasks:
            yield from _lines(child, f"{indent}    ")
