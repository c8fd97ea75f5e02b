"""Runs tests in a fork of a process that has collected them: no mutant outlives its fork, and pytest starts once."""

import contextlib
import gc
import os
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FunctionType
from typing import Final

import pytest

from tools.mutate.mutants import Unit

#: Bytes of address space beyond what the process has: a mutant may be an endless loop that keeps something.
_MEMORY: Final = 2 << 30
_FAILED: Final = 1
#: By which ``bound`` ends a process.
BOUNDS: Final = frozenset({signal.SIGPROF, signal.SIGALRM})


class Failures:
    """A pytest plugin: what failed since it was asked last."""

    def __init__(self) -> None:
        """Nothing has."""
        self.failed: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Called for each phase of a test."""
        if report.failed:
            self.failed.append(f"{report.nodeid}: {report.longreprtext}")


def run(items: Sequence[pytest.Item]) -> Iterator[tuple[pytest.Item, float]]:
    """Runs tests one after the other; each and its seconds when it has run."""
    for item, following in zip(items, [*items[1:], None], strict=True):
        began = time.monotonic()
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        yield item, time.monotonic() - began


def fork(work: Callable[[], int]) -> int:
    """Starts a child whose exit status is what ``work`` returns; its process id."""
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        with contextlib.suppress(OSError):
            os.setpgid(pid, pid)  # here and there: whichever comes first
        return pid
    status = _FAILED
    try:
        os.setpgid(0, 0)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        nowhere = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(nowhere, number)
        status = work()
    finally:  # also after pytest.exit and MemoryError: no test lets these pass
        os._exit(status)


def limited(work: Callable[[], int], scratch: str) -> int:
    """Does it with bounded memory, and its temporary files in a directory of its own."""
    pages = int(Path("/proc/self/statm").read_text().split()[0]) if sys.platform == "linux" else 0
    if pages:
        limit = pages * resource.getpagesize() + _MEMORY
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    os.environ["PYTEST_DEBUG_TEMPROOT"] = os.environ["TMPDIR"] = tempfile.tempdir = scratch
    return work()


def bound(seconds: float) -> None:
    """Ends this process by a signal if it takes so much processor time from now on, or twice that by the clock."""
    signal.setitimer(signal.ITIMER_PROF, seconds)
    signal.setitimer(signal.ITIMER_REAL, 2 * seconds)


def kill(pid: int) -> None:
    """Ends a child and all that it started; it may have ended."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def functions() -> dict[tuple[str, Unit], list[FunctionType]]:
    """All functions that there are, by the file and the place of their code."""
    gc.unfreeze()  # what is frozen, as tests/conftest.py does after collection, is not among the objects
    found: dict[tuple[str, Unit], list[FunctionType]] = {}
    for one in gc.get_objects():
        if type(one) is FunctionType:
            code = one.__code__
            place = (code.co_filename, Unit(code.co_qualname, code.co_firstlineno))
            found.setdefault(place, []).append(one)
    return found
