"""Job and results of a driver: what README.md of the drivers describes, for the Python clients."""

import base64
import json
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any


def unpack(data: str | None) -> bytes | None:
    return None if data is None else base64.b64decode(data)


def pack(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(bytes(data)).decode()


def record(
    partition: int, offset: int, key: bytes | None, value: bytes | None, timestamp: int | None, headers: Any
) -> dict[str, Any]:
    """One consumed record as JSON; `timestamp` in ms, or None where there is none."""
    named = [[name.decode() if isinstance(name, bytes) else name, pack(data)] for name, data in headers or ()]
    return {"p": partition, "o": offset, "k": pack(key), "v": pack(value), "ts": timestamp, "h": named}


class Deadline:
    """Monotonic end of a step, `ms` from now."""

    def __init__(self, ms: float) -> None:
        self._end = time.monotonic() + ms / 1000

    def left(self) -> float:
        """Seconds until the end, never negative."""
        return max(0.0, self._end - time.monotonic())


def paced(records: list[dict[str, Any]], pace: list[int] | None) -> Iterator[dict[str, Any]]:
    """The records of a step, with a pause after each so many."""
    for index, fields in enumerate(records):
        if pace and index and index % pace[0] == 0:
            time.sleep(pace[1] / 1000)
        yield fields


class Outcomes:
    """The outcome of each record of a step; one that fails does not end it."""

    def __init__(self, count: int) -> None:
        self.acked: list[list[int] | None] = [None] * count
        self.errors: Counter[str] = Counter()

    def failed(self, error: object) -> None:
        self.errors[f"{type(error).__name__}: {error}"[:200]] += 1

    def result(self) -> dict[str, Any]:
        return {"acked": self.acked, "errors": self.errors}


def run(steps: Callable[[dict[str, Any]], dict[str, Callable[[dict[str, Any]], dict[str, Any]]]]) -> None:
    """Runs the job on standard input: `steps(job)` gives the function for each kind of step."""
    job = json.load(sys.stdin)
    functions = steps(job)
    for step in job["steps"]:
        try:
            result = functions[step["op"]](step)
        except Exception as error:
            traceback.print_exc()
            result = {"error": repr(error)}
        print("RESULT " + json.dumps({"op": step["op"], **result}), flush=True)
