"""What a process and those below it take."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest

from bench.spark_watch import Workers, cpu_seconds

_HOLDS = "held = b'x' * 100_000_000; print(len(held), flush=True); input()"
_CHILD = f"""
import subprocess, sys
grandchild = subprocess.Popen([sys.executable, "-c", {_HOLDS!r}])
while sum(range(1_000_000)) and grandchild.poll() is None:
    pass
"""


@pytest.fixture
def busy() -> Iterator[subprocess.Popen[str]]:
    """A process that is at work, with one below it that holds 100 MB and says so."""
    with subprocess.Popen(
        [sys.executable, "-c", _CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "100000000\n"
            yield process
        finally:
            assert process.stdin is not None
            process.stdin.close()  # ends the grandchild, and so both


def test_cpu_of_all_below_a_process(busy: subprocess.Popen[str]) -> None:
    before, used = cpu_seconds(os.getpid()), cpu_seconds(busy.pid)
    _until(lambda: cpu_seconds(busy.pid) >= used + 0.05)
    assert cpu_seconds(os.getpid()) > before


def test_the_worker_with_most_memory(busy: subprocess.Popen[str]) -> None:
    workers = Workers(busy.pid)
    with workers.watched():
        _until(lambda: workers.peak_bytes > 0)
    assert 100_000_000 < workers.peak_bytes < 200_000_000


def test_a_process_that_has_ended_takes_nothing() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as gone:
        gone.wait()
    assert cpu_seconds(gone.pid) == 0


def _until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline
