"""What ``kproxy doctor`` prints."""

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from rich.text import Text

from kproxy.cli.tables import new_console, new_table
from kproxy.doctor.checks import CheckResult, worst
from kproxy.doctor.findings import Level

_STYLES: Final = {Level.OK: "green", Level.SKIPPED: "dim", Level.WARN: "yellow", Level.FAIL: "bold red"}


def as_object(results: Sequence[CheckResult]) -> dict[str, Any]:
    """For programs: ``worst`` and ``findings``, each with check, level, found and advice."""
    findings = [{"check": row.check, **row.finding._asdict()} for row in results]
    return {"worst": worst(list(results)), "findings": findings}


def print_findings(results: Sequence[CheckResult]) -> None:
    """A table, one line for each finding, and the sum."""
    console = new_console()
    table = new_table("check", "", "found", "what to do")
    for row in results:
        level, found, advice = row.finding
        style = _STYLES[level]
        table.add_row(Text(row.check), Text(level, style=style), Text(found), Text(advice))
    console.print(table)
    counts = Counter(row.finding.level for row in results)
    console.print(", ".join(f"{counts[level]} {level}" for level in Level if counts[level]), markup=False)
