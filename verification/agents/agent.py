"""What all agents have in common: how they run, and how lines get into them."""

import os
import re
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, TypeAlias

from kproxy.testing.kafka import die_with_parent
from verification.agents.packages import Unpacked

__all__ = ["TOPIC", "Agent", "AgentFailed", "FollowsFile", "Process", "ReadsInput", "line", "number_in"]

TOPIC: Final = "lines"
Process: TypeAlias = subprocess.Popen[bytes]
_NUMBER: Final = re.compile(rb"line-(\d+)")
_STOP_S: Final = 10.0


class AgentFailed(RuntimeError):
    """An agent did not start, or ended by itself; the message has the end of what it printed."""


def line(number: int) -> str:
    """One of the lines that are written, without its end."""
    return f"line-{number}"


def number_in(value: bytes) -> int:
    """Which line a record holds. ValueError: none."""
    found = _NUMBER.search(value)
    if found is None:
        raise ValueError(f"a record holds no line: {value[:80]!r}")
    return int(found[1])


class Agent(ABC):
    """A program that writes lines to Kafka.

    ``directory``: for its configuration, state and log; exists. ``bootstrap``: the address in its configuration.
    """

    name: str
    #: Of its row in docs/clients.md: what it is called before its version; what its own configuration needs, and what
    #: happens without kproxy where no trial can show that.
    title: str
    needs = ""
    directly = ""
    #: How many lines a whole trial has, and the share of Produce responses that is lost in it.
    lines = 50_000
    share = 0.2
    #: How many lines are written together.
    chunk = 100
    #: How long it may take until lines may be handed to it, in seconds.
    start_s = 30.0

    def __init__(self, directory: Path, bootstrap: str) -> None:
        self.directory = directory
        self.bootstrap = bootstrap
        self.log = directory / "agent.log"

    @classmethod
    @abstractmethod
    def unpacked(cls) -> Unpacked:
        """Its program, fetched or built unless that has been done before. Unavailable: it is unavailable."""

    @abstractmethod
    def command(self, unpacked: Unpacked) -> Sequence[str]:
        """Writes its configuration; the command that runs it in the foreground."""

    @abstractmethod
    def write(self, lines: Sequence[str], process: Process) -> None:
        """Hands it lines, each without its end."""

    def ready(self) -> bool:
        """Whether lines may be handed to it."""
        return True

    def finish(self, process: Process) -> None:  # noqa: B027 - most have nothing to do
        """Tells it that it has all lines."""

    @contextmanager
    def running(self) -> Iterator[Process]:
        """Runs it; it is killed at the end. AgentFailed, Unavailable."""
        unpacked = self.unpacked()
        command = self.command(unpacked)
        with self.log.open("ab") as output:
            process = subprocess.Popen(
                command,
                cwd=self.directory,
                env={**os.environ, **unpacked.environment},
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                preexec_fn=die_with_parent(),
            )
        try:
            deadline = time.monotonic() + self.start_s
            while not self.ready():
                self.check(process)
                if time.monotonic() > deadline:
                    raise AgentFailed(f"{self.name} takes no lines after {self.start_s:.0f} s:\n{self.tail()}")
                time.sleep(0.05)
            yield process
        finally:
            process.kill()
            process.wait(_STOP_S)
            assert process.stdin is not None
            with suppress(BrokenPipeError):
                process.stdin.close()

    def check(self, process: Process) -> None:
        """AgentFailed if it has ended."""
        if process.poll() not in (None, 0):
            raise AgentFailed(f"{self.name} ended with {process.returncode}:\n{self.tail()}")

    def tail(self) -> str:
        """The end of what it printed."""
        return self.log.read_text(encoding="utf-8", errors="replace")[-2000:]


class FollowsFile(Agent):
    """Reads the lines of a file that grows."""

    @property
    def input(self) -> Path:
        """The file."""
        return self.directory / "input.log"

    def write(self, lines: Sequence[str], process: Process) -> None:
        with self.input.open("a") as file:
            file.writelines(f"{one}\n" for one in lines)


class ReadsInput(Agent):
    """Reads the lines from its standard input, which is a pipe, until that ends."""

    def write(self, lines: Sequence[str], process: Process) -> None:
        assert process.stdin is not None
        process.stdin.write("".join(f"{one}\n" for one in lines).encode())
        process.stdin.flush()

    def finish(self, process: Process) -> None:
        assert process.stdin is not None
        process.stdin.close()
