"""What is printed about a history: a table of anomalies, with the first examples of each kind."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from verification.history.anomaly import Anomaly, AnomalyKind
from verification.history.files import encode
from verification.history.operations import Operation, Outcome

EXAMPLES = 3
_WIDTH = 160
_LONGEST_LINE = 300


def summary(history: Sequence[Operation]) -> dict[str, int]:
    """Count what a history holds: operations, records sent by outcome, records polled."""
    sent: Counter[Outcome] = Counter()
    polled = 0
    for operation in history:
        sent[operation.outcome] += len(operation.sends)
        polled += sum(len(poll.records) for poll in operation.polls)
    return {
        "operations": len(history),
        "acknowledged": sent[Outcome.OK],
        "refused": sent[Outcome.FAIL],
        "unknown": sent[Outcome.INFO],
        "polled": polled,
    }


def as_json(history: Sequence[Operation], anomalies: Sequence[Anomaly]) -> dict[str, Any]:
    """Return the summary and all anomalies as plain values."""
    return {**summary(history), "anomalies": [_plain(anomaly) for anomaly in anomalies]}


def verdict(history: Sequence[Operation], anomalies: Sequence[Anomaly]) -> RenderableType:
    """Return the summary, a table with a row for each kind of anomaly, and the first examples."""
    counts = summary(history)
    line = ", ".join(f"{count:,} {name}" for name, count in counts.items())
    by_kind: dict[AnomalyKind, list[Anomaly]] = defaultdict(list)
    for anomaly in anomalies:
        by_kind[anomaly.kind].append(anomaly)
    table = Table("#", "anomaly", "found", "meaning", title=line, title_style="")
    for kind in AnomalyKind:
        found = len(by_kind[kind])
        style = "bold red" if found else "dim"
        table.add_row(str(kind.number), kind.title, f"{found:,}", kind.meaning, style=style)
    examples = [_example(anomaly) for found in by_kind.values() for anomaly in found[:EXAMPLES]]
    return Group(table, *examples)


def make_console() -> Console:
    """Return a console that does not fold a table which goes to a file."""
    console = Console()
    return console if console.is_terminal else Console(width=_WIDTH)


def _example(anomaly: Anomaly) -> Text:
    where = f" {anomaly.topic}-{anomaly.partition}" if anomaly.partition >= 0 else ""
    text = Text.assemble((anomaly.kind.title, "bold red"), f"{where}: {anomaly.detail}")
    for operation in anomaly.operations:
        text.append(f"\n    {encode(operation)[:_LONGEST_LINE]}", "dim")
    return text


def _plain(anomaly: Anomaly) -> dict[str, Any]:
    return {
        "number": anomaly.kind.number,
        "kind": anomaly.kind.title,
        "topic": anomaly.topic,
        "partition": anomaly.partition,
        "detail": anomaly.detail,
        "value": anomaly.value,
        "offsets": list(anomaly.offsets),
        "operations": [encode(operation) for operation in anomaly.operations],
    }
