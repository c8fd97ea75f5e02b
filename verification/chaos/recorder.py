"""Where all processes of a run put their operations: one history file, and counts for the live view."""

import time
from collections import Counter
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from verification.history import Operation, Outcome, decode, encode

_UNEXPECTED: Final = '{"unexpected":'


class Recorder:
    """Writes operations to ``history.jsonl`` as they end, and counts their records.

    :param directory: must not have one yet. ``attempts.log`` goes there, too: what clients did to get there.
    """

    def __init__(self, directory: Path) -> None:
        self.path = directory / "history.jsonl"
        self.records: Counter[Outcome] = Counter()
        """Records sent, by outcome."""
        self.by_process: Counter[str] = Counter()
        """Records acknowledged, by process."""
        self.polled = 0
        self.errors: Counter[str] = Counter()
        """What clients were answered or met, for the reader's information."""
        self.unexpected: Counter[str] = Counter()
        """Errors that no client of that age knows what to do with, and what else must not be."""
        self._file = self.path.open("x", encoding="utf-8")
        self._attempts = (directory / "attempts.log").open("x", encoding="utf-8")

    def add(self, operation: Operation) -> None:
        """Take down one operation that has ended."""
        self._file.write(f"{encode(operation)}\n")
        self.records[operation.outcome] += len(operation.sends)
        self.polled += sum(len(poll.records) for poll in operation.polls)
        if operation.outcome is Outcome.OK:
            self.by_process[operation.process] += len(operation.sends)

    def add_line(self, line: str) -> None:
        """Take down an operation that another process has encoded, or what it found that must not be.

        :raises MalformedHistory: it is neither.
        """
        if line.startswith(_UNEXPECTED):
            self.unexpected[line.removeprefix(_UNEXPECTED).strip('"} ')] += 1
        else:
            self.add(decode(line))

    def note(self, process: str, line: str) -> None:
        """Record what a process is about to do or was answered, with the time, to investigate an anomaly."""
        self._attempts.write(f"[{now()}] {process}: {line}\n")

    def flush(self) -> None:
        """Make everything that was taken down readable."""
        self._file.flush()
        self._attempts.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
        self._attempts.close()


def now() -> int:
    """The clock of histories: nanoseconds, one for all processes of this machine."""
    return time.monotonic_ns()
