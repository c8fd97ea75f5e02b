"""A Spark application as its processes: the driver, its executors, their Python workers; each can be killed."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Final

from kproxy.testing.kafka import die_with_parent
from kproxy.testing.spark_home import make_spark_home, spark_environment

DRIVER: Final = "driver"
EXECUTOR: Final = "executor"
WORKER: Final = "worker"

_EXECUTORS_CLASS: Final = "CoarseGrainedExecutorBackend"
_DRIVERS_CLASS: Final = "org.apache.spark.deploy.SparkSubmit"
_WORKERS_MODULE: Final = "pyspark.daemon"
_END_SECONDS: Final = 30.0


class Driver:
    """``verification.spark_proof.job`` as a process that is started again until it ends by itself."""

    def __init__(self, arguments: Mapping[str, str], directory: Path) -> None:
        """``directory`` is for Spark's files and the log, ``driver.log``."""
        self.log = directory / f"driver-{arguments['sink']}.log"
        self.starts = 0
        self._command = [sys.executable, "-m", "verification.spark_proof.job", json.dumps(dict(arguments))]
        self._environment = _environment(directory)
        self._output: IO[bytes] | None = None
        self._process: subprocess.Popen[bytes] | None = None
        #: All that ever belonged to it: who loses its driver may live on for a while.
        self._known: set[int] = set()

    @property
    def exit_code(self) -> int | None:
        """How the present run ended; None while it runs."""
        return None if self._process is None else self._process.poll()

    def start(self) -> None:
        """Starts it, or starts it again."""
        if self._output is None:
            self._output = self.log.open("ab")
        self.starts += 1
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=self._output,
            env=self._environment,
            preexec_fn=die_with_parent(),
        )

    def kill(self, what: str, choose: Callable[[list[int]], int]) -> bool:
        """Ends one of a kind at once (``kill -9``); False if there is none now. A driver is Python and its Java."""
        found = self._of(what)
        if not found:
            return False
        for pid in found if what == DRIVER else [choose(found)]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return True

    def tail(self) -> str:
        """The end of its log."""
        return self.log.read_text(encoding="utf-8", errors="replace")[-4000:]

    def note(self) -> list[int]:
        """Looks which processes belong to it now: who loses its parents can't be found later."""
        below = descendants(self._process.pid) if self._process is not None else []
        self._known.update(below)
        return below

    def close(self) -> None:
        """Ends all of it."""
        self.note()
        for pid in [*self._known, *([self._process.pid] if self._process is not None else [])]:
            # A process id may be another's by now: only what still runs Spark for this run is ended.
            if str(self.log.parent) in _environment_of(pid):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        if self._process is not None:
            self._process.kill()
            self._process.wait(_END_SECONDS)
        if self._output is not None:
            self._output.close()
            self._output = None

    def _of(self, what: str) -> list[int]:
        if self._process is None or self._process.poll() is not None:
            return []
        below = [(pid, _command_of(pid)) for pid in self.note()]
        executors = {pid for pid, command in below if _EXECUTORS_CLASS in command}
        if what == EXECUTOR:
            return sorted(executors)
        if what == DRIVER:
            javas = [pid for pid, command in below if _DRIVERS_CLASS in command]
            return [*javas, self._process.pid] if javas else []
        own = {pid for executor in executors for pid in descendants(executor)}
        # The first of each executor's is the daemon, which forks the workers.
        return [pid for pid, command in below if pid in own and _WORKERS_MODULE in command and _parent(pid) in own]


@contextmanager
def running(driver: Driver) -> Iterator[Driver]:
    """Started, and ended after the block with all that belongs to it."""
    driver.start()
    try:
        yield driver
    finally:
        driver.close()


def _environment(directory: Path) -> dict[str, str]:
    """Spark's files go to the directory: those of its local cluster lie beside its jars, else."""
    return {
        **os.environ,
        **spark_environment(make_spark_home(directory / "spark")),
        "SPARK_LOCAL_DIRS": str(directory),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_SCALA_VERSION": "2.13",
    }


def descendants(pid: int) -> list[int]:
    """All processes below one, parents first."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            children.setdefault(_parent(int(entry.name)), []).append(int(entry.name))
    found, at = [pid], 0
    while at < len(found):
        found += children.get(found[at], [])
        at += 1
    return found[1:]


def _parent(pid: int) -> int:
    """The parent's id; -1 if the process has ended."""
    with suppress(OSError):
        # The name, which may have spaces, is followed by the state and the parent.
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return -1


def _command_of(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    return ""


def _environment_of(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace")
    return ""
