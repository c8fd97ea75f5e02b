"""Histories as files: one JSON object a line, in any order; fields that are empty are left out.

``{"process": "p1", "kind": "send", "outcome": "ok", "invoke": 5, "complete": 9, "sends": [["topic", 0, 17, "v"]]}``,
``"polls": [["topic", 0, [[17, "v"]]]]``, ``"commits": [["topic", 0, 18]]``, ``"group"``, ``"final"``, ``"error"``,
``"asked"``.
"""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from kproxy.testing.history.operations import Commit, Kind, Operation, Outcome, Poll, Send


class MalformedHistory(ValueError):
    """A line is not an operation; the message says which and why."""


def encode(operation: Operation) -> str:
    """Return an operation as one line of JSON, without the line's end."""
    fields: dict[str, Any] = {
        "process": operation.process,
        "kind": operation.kind.value,
        "outcome": operation.outcome.value,
        "invoke": operation.invoke,
        "complete": operation.complete,
    }
    for name in ("sends", "polls", "commits", "group", "final", "error", "asked"):
        if value := getattr(operation, name):
            fields[name] = value
    return json.dumps(fields, separators=(",", ":"))


def decode(line: str) -> Operation:
    """Return the operation that a line holds.

    :raises MalformedHistory: it holds none.
    """
    try:
        fields = json.loads(line)
        return Operation(
            process=str(fields["process"]),
            kind=Kind(fields["kind"]),
            outcome=Outcome(fields["outcome"]),
            invoke=int(fields["invoke"]),
            complete=None if fields.get("complete") is None else int(fields["complete"]),
            sends=tuple(_send(*entry) for entry in fields.get("sends", ())),
            polls=tuple(_poll(*entry) for entry in fields.get("polls", ())),
            commits=tuple(Commit(str(topic), int(part), int(at)) for topic, part, at in fields.get("commits", ())),
            group=str(fields.get("group", "")),
            final=bool(fields.get("final", False)),
            error=str(fields.get("error", "")),
            asked=None if fields.get("asked") is None else int(fields["asked"]),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise MalformedHistory(f"{type(error).__name__}: {error}") from error


def read_history(path: Path) -> Iterator[Operation]:
    """Yield the operations of a file; empty lines do not count.

    :raises MalformedHistory: a line is none; the message begins with file and line number.
    :raises OSError: the file cannot be read.
    """
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                yield decode(line)
            except MalformedHistory as error:
                raise MalformedHistory(f"{path}:{number}: {error}") from error


def write_history(path: Path, operations: Iterable[Operation]) -> None:
    """Write operations to a new file.

    :raises OSError: it cannot be written.
    """
    with path.open("w", encoding="utf-8") as lines:
        lines.writelines(f"{encode(operation)}\n" for operation in operations)


def _send(topic: Any, partition: Any, offset: Any, value: Any) -> Send:
    known = offset is not None and int(offset) >= 0
    return Send(str(topic), int(partition), int(offset) if known else None, str(value))


def _poll(topic: Any, partition: Any, records: Any) -> Poll:
    return Poll(str(topic), int(partition), tuple((int(offset), str(value)) for offset, value in records))
