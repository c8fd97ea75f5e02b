"""Programs under measurement: start, wait until they listen, read their CPU time and memory, stop."""

import contextlib
import os
import resource
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from kproxy.testing.ports import free_ports

#: Of the clocks of a process (Linux: CPUCLOCK_SCHED) the one that does not count in steps of 10 ms.
_SCHEDULED = 2
_START_SECONDS = 120.0
_STOP_SECONDS = 30.0


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
        """User and system CPU time of all threads of the process so far, in seconds."""
        return time.clock_gettime(~self.pid << 3 | _SCHEDULED)

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
    """A free loopback port."""
    return free_ports(1)[0]


def raise_file_limit() -> None:
    """Let this process and its children open as many files as the machine allows: 1,000 connections need 2,000."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


@contextlib.contextmanager
def running(name: str, port: int, *command: str, more: Mapping[str, str] | None = None) -> Iterator[Program]:
    """Run `command` (arguments for this Python) while the block lasts; enter it when `port` accepts connections.

    `more` is environment beside that of this process.

    Raises:
        ProgramDied: it ended, or did not listen within 30 s; the message holds what it printed.
    """
    # A file, not a pipe: nobody reads while the program runs, and a full pipe would stop it.
    with (
        tempfile.TemporaryFile() as output,
        subprocess.Popen(
            [sys.executable, *command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=os.environ | dict(more or {}),
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
