"""Programs under measurement: start, wait until they listen, read CPU and memory from /proc, stop."""

import contextlib
import os
import resource
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_START_SECONDS = 30.0
_STOP_SECONDS = 10.0


class ProgramDied(RuntimeError):
    """A program under measurement ended, or did not begin to listen in time."""


@dataclass
class Program:
    """A running program and the port on which it listens."""

    name: str
    port: int
    process: subprocess.Popen[bytes] = field(repr=False)

    @property
    def pid(self) -> int:
        return self.process.pid

    def cpu_seconds(self) -> float:
        """User and system CPU time of the process so far, in seconds (10 ms steps on most machines)."""
        # The command name, in brackets, may hold spaces: count fields from behind it.
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS_PER_SECOND

    def running_seconds(self) -> float:
        """CPU time of the process's living threads so far, in seconds, without the steps of `cpu_seconds`.

        From the scheduler's statistics; to be used for differences that are short.
        """
        threads = Path(f"/proc/{self.pid}/task").iterdir()
        return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads) / 1e9

    def resident_bytes(self) -> int:
        """Resident memory now (VmRSS), in bytes."""
        return self._status_bytes("VmRSS:")

    def peak_bytes(self) -> int:
        """The most resident memory that the process ever had (VmHWM), in bytes."""
        return self._status_bytes("VmHWM:")

    def _status_bytes(self, field_name: str) -> int:
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith(field_name):
                return int(line.split()[1]) * 1024
        raise ProgramDied(f"{self.name} has ended")


def free_port() -> int:
    """A loopback port that nobody listened on a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def raise_file_limit() -> None:
    """Let this process and its children open as many files as the machine allows: 1,000 connections need 2,000."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


@contextlib.contextmanager
def running(name: str, port: int, *command: str) -> Iterator[Program]:
    """Run `command` (arguments for this Python) while the block lasts; enter it when `port` accepts connections.

    Raises:
        ProgramDied: it ended, or did not listen within 30 s; the message holds what it printed.
    """
    # A file, not a pipe: nobody reads while the program runs, and a full pipe would stop it.
    with (
        tempfile.TemporaryFile() as output,
        subprocess.Popen(
            [sys.executable, *command], stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
        ) as process,
    ):
        try:
            program = Program(name, port, process)
            _await_listening(program, output)
            yield program
        finally:
            _stop(process)


def _await_listening(program: Program, output: IO[bytes]) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline:
        if program.process.poll() is not None:
            output.seek(0)
            said = output.read().decode(errors="replace")[-2000:]
            raise ProgramDied(f"{program.name} ended with status {program.process.returncode}: {said}")
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", program.port), timeout=1):
            return
        time.sleep(0.05)
    raise ProgramDied(f"{program.name} did not listen on port {program.port} within {_START_SECONDS:.0f} s")


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
