"""What Spark's processes take: the CPU of all, and the most memory that one of its Python workers has."""

import contextlib
import os
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

from verification.spark_proof.driver import descendants

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_LOOK_SECONDS = 0.2


class CpuMeter:
    """The CPU seconds of some processes, by their names, since the meter was made."""

    def __init__(self, processes: Mapping[str, int]) -> None:
        """``processes``: their ids."""
        self._processes = processes
        self._before = self._now()

    def spent(self) -> dict[str, float]:
        """The seconds of each so far."""
        return {name: seconds - self._before[name] for name, seconds in self._now().items()}

    def _now(self) -> dict[str, float]:
        return {name: cpu_seconds(pid) for name, pid in self._processes.items()}


def added(first: Mapping[str, float], second: Mapping[str, float]) -> dict[str, float]:
    """The sums of two meters, by process."""
    return {name: seconds + first.get(name, 0.0) for name, seconds in second.items()}


def cpu_seconds(pid: int) -> float:
    """User and system CPU time so far of a process, of all below it, and of those that ended there."""
    return sum(_ticks(each) for each in (pid, *descendants(pid))) / _TICKS_PER_SECOND


def _ticks(pid: int) -> int:
    with contextlib.suppress(OSError):
        # The name, which may have spaces, is followed by the process's own time, and that of children that were waited
        # for.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return sum(int(field) for field in fields[11:15])
    return 0


def _resident_bytes(pid: int) -> int:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
    return 0


class Workers:
    """Looks at the processes below Spark's Java, which are its Python workers, five times a second."""

    def __init__(self, java: int) -> None:
        self._java = java
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        #: Of the one that had most, what it shares with the others included.
        self.peak_bytes = 0

    def _look(self) -> None:
        while not self._stop.wait(_LOOK_SECONDS):
            self.peak_bytes = max(self.peak_bytes, *map(_resident_bytes, [self._java, *descendants(self._java)][1:]), 0)

    @contextlib.contextmanager
    def watched(self) -> Iterator["Workers"]:
        """For the length of the block."""
        self._thread.start()
        try:
            yield self
        finally:
            self._stop.set()
            self._thread.join()
