"""What the drivers share: pacing, and one line of JSON for each record whose fate is known."""

import json
import select
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

Settle = Callable[[int | None, str], None]
"""Called with offset and error text when the fate of a record is known."""
_print = threading.Lock()


def read_job() -> dict[str, Any]:
    """Return the job: ``name``, ``bootstrap``, ``places`` ([topic, partition]), ``equal``, ``per_second``."""
    job: dict[str, Any] = json.loads(sys.stdin.readline())
    return job


def records(job: dict[str, Any]) -> Iterator[tuple[str, int, str, int]]:
    """Yield (topic, partition, value, timestamp in ms) at the job's pace until standard input ends."""
    number = timestamp = 0
    while not select.select([sys.stdin], [], [], 1 / job["per_second"])[0]:
        topic, partition = job["places"][number % len(job["places"])]
        number += 1
        timestamp = max(timestamp + 1, int(time.time() * 1000))
        yield topic, partition, job["equal"] or f"{job['name']}:{number}", timestamp


def settler(job: dict[str, Any], topic: str, partition: int, value: str) -> Settle:
    """Take the time at which a record is sent; return what is to be called when its fate is known."""
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
        with _print:
            sys.stdout.write(json.dumps(operation) + "\n")
            sys.stdout.flush()

    return settle
