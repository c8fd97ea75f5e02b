"""Histories as files: one JSON object a line, in any order; fields that are empty are left out.

``{"process": "p1", "kind": "send", "outcome": "ok", "invoke": 5, "complete": 9, "sends": [["topic", 0, 17, "v"]]}``,
``"polls": [["topic", 0, [[17, "v"]]]]``, ``"commits": [["topic", 0, 18]]``, ``"group"``, ``"final"``, ``"error"``,
``"asked"``, ``"transactional_id"``, ``"producer": [4000, 7]``, ``"delivered"``, ``"sources": [["topic", 0, 17]]``,
``"uncommitted"``.
"""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from verification.history.operations import Commit, Kind, Operation, Outcome, Poll, Producer, Send, Source

_OPTIONAL: Final = (
    "sends",
    "polls",
    "commits",
    "group",
    "final",
    "error",
    "asked",
    "transactional_id",
    "producer",
    "delivered",
    "sources",
    "uncommitted",
)


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
    for name in _OPTIONAL:
        if (value := getattr(operation, name)) or (value == 0 and value is not False):
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
            complete=_number(fields.get("complete")),
            sends=tuple(_send(*entry) for entry in fields.get("sends", ())),
            polls=tuple(_poll(*entry) for entry in fields.get("polls", ())),
            commits=tuple(Commit(str(topic), int(part), int(at)) for topic, part, at in fields.get("commits", ())),
            group=str(fields.get("group", "")),
            final=bool(fields.get("final", False)),
            error=str(fields.get("error", "")),
            asked=_number(fields.get("asked")),
            transactional_id=str(fields.get("transactional_id", "")),
            producer=_producer(fields.get("producer")),
            delivered=_number(fields.get("delivered")),
            sources=tuple(Source(str(topic), int(part), int(at)) for topic, part, at in fields.get("sources", ())),
            uncommitted=bool(fields.get("uncommitted", False)),
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


def _number(value: Any) -> int | None:
    return None if value is None else int(value)


def _producer(value: Any) -> Producer | None:
    if value is None:
        return None
    producer_id, epoch = value
    return Producer(int(producer_id), int(epoch))


def _send(topic: Any, partition: Any, offset: Any, value: Any) -> Send:
    known = offset is not None and int(offset) >= 0
    return Send(str(topic), int(partition), int(offset) if known else None, str(value))


def _poll(topic: Any, partition: Any, records: Any) -> Poll:
    return Poll(str(topic), int(partition), tuple((int(offset), str(value)) for offset, value in records))
