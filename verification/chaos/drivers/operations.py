"""What the drivers share: pacing, and one line of JSON for each record whose outcome is known."""

import json
import select
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

Settle = Callable[[int | None, str], None]
"""Called with offset and error text when the outcome of a record is known."""
_print = threading.Lock()


def read_job() -> dict[str, Any]:
    """Return the job: ``name``, ``bootstrap``, ``places`` ([topic, partition]), ``equal``, ``per_second``."""
    job: dict[str, Any] = json.loads(sys.stdin.readline())
    return job


def records(job: dict[str, Any]) -> Iterator[tuple[str, int, str, int]]:
    """Yield (topic, partition, value, timestamp in ms) at the job's pace until standard input ends."""
    number = timestamp = 0
    while not ended(1 / job["per_second"]):
        topic, partition = job["places"][number % len(job["places"])]
        number += 1
        timestamp = max(timestamp + 1, int(time.time() * 1000))
        yield topic, partition, job["equal"] or f"{job['name']}:{number}", timestamp


def ended(seconds: float) -> bool:
    """Whether standard input ends within so many seconds."""
    return bool(select.select([sys.stdin], [], [], seconds)[0])


def tell(name: str, line: str) -> None:
    """Write a line into the process's own log."""
    sys.stderr.write(f"[{time.monotonic_ns()}] {name}: {line}\n")


def write(fields: dict[str, Any]) -> None:
    """Write an operation, in the form of histories."""
    with _print:
        sys.stdout.write(json.dumps(fields) + "\n")
        sys.stdout.flush()


def unexpected(what: str) -> None:
    """Report something that must not happen."""
    write({"unexpected": what})


class Transaction:
    """One transaction from now on; ``asked`` is when its commit was asked for."""

    def __init__(self, process: str) -> None:
        self._process = process
        self._invoke = time.monotonic_ns()
        self._sends: list[list[Any]] = []
        self.asked: int | None = None

    def add(self, topic: str, partition: int, value: str) -> list[Any]:
        """Take down a record; the third entry of what is returned is for its offset."""
        sent: list[Any] = [topic, partition, None, value]
        self._sends.append(sent)
        return sent

    def settle(self, outcome: str, error: str) -> None:
        """Take down what became of it."""
        fields = {"process": self._process, "kind": "txn", "outcome": outcome, "invoke": self._invoke}
        times = {"complete": time.monotonic_ns(), "asked": self.asked}
        write({**fields, **times, "sends": self._sends, "error": error})


def settler(job: dict[str, Any], topic: str, partition: int, value: str) -> Settle:
    """Take the time at which a record is sent; return what is to be called when its outcome is known."""
    invoke = time.monotonic_ns()

    def settle(offset: int | None, error: str) -> None:
        operation = {
            "process": job["name"],
            "kind": "send",
            "outcome": "info" if error else "ok",
            "invoke": invoke,
            "complete": time.monotonic_ns(),
            "sends": [[topic, partition, None if offset is None or offset < 0 else offset, value]],
            "error": error,
        }
        write(operation)

    return settle
