"""What ``kproxy doctor`` prints."""

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from rich.text import Text

from kproxy.cli.tables import new_console, new_table
from kproxy.doctor.checks import Told, worst
from kproxy.doctor.findings import Level

_STYLES: Final = {Level.OK: "green", Level.SKIPPED: "dim", Level.WARN: "yellow", Level.FAIL: "bold red"}


def as_object(told: Sequence[Told]) -> dict[str, Any]:
    """For programs: ``worst`` and ``findings``, each with check, level, found and advice."""
    findings = [{"check": row.check, **row.finding._asdict()} for row in told]
    return {"worst": worst(list(told)), "findings": findings}


def print_findings(told: Sequence[Told]) -> None:
    """A table, one line for each finding, and the sum."""
    console = new_console()
    table = new_table("check", "", "found", "what to do")
    for row in told:
        level, found, advice = row.finding
        style = _STYLES[level]
        table.add_row(Text(row.check), Text(level, style=style), Text(found), Text(advice))
    console.print(table)
    counts = Counter(row.finding.level for row in told)
    console.print(", ".join(f"{counts[level]} {level}" for level in Level if counts[level]), markup=False)
