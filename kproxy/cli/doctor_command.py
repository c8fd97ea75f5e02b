"""``kproxy doctor``: whether brokers, topics and options fit each other, and what to do where they do not."""

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import click

from kproxy.cli.flags import ConfigCommand, given_flags
from kproxy.cli.output import new_console, new_table, show, waiting
from kproxy.config import ExitCode, load

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kproxy.doctor.examination import CheckResult

_EXAMPLES: Final = """\b
Examples:
  kproxy doctor --bootstrap-servers kafka-1:9092,kafka-2:9092
  kproxy doctor --config /etc/kproxy/kproxy.yaml --json | jq '.findings[] | select(.level != "ok")'"""
_EXIT_CODES: Final = """\b
Exit codes:
  0  all well
  2  wrong command line or configuration
  5  warnings: it works, and something may go wrong
  6  failures: kproxy will not work, or not keep what it promises"""


@click.command(
    cls=ConfigCommand,
    params=[click.Option(["--json", "as_json"], is_flag=True, help="Print JSON.")],
    epilog=f"{_EXAMPLES}\n\n{_EXIT_CODES}",
)
def doctor(as_json: bool, **params: Any) -> int:
    """Look at brokers, topics, rights and options, and say what to do.

    Takes the options of run, so that it looks at what run would use. It needs no running kproxy, and changes nothing
    but that it uses up one producer id.
    """
    import os

    config = load(given_flags(params), dict(os.environ))
    from kproxy.doctor.examination import examine, look, worst

    with waiting("Asking the brokers"):
        results = look(examine(config))
    findings = as_rows(results)
    show({"worst": worst(results), "findings": findings}, as_json, lambda _: print_results(results, results))
    return exit_code(results)


def as_rows(results: "Sequence[CheckResult]") -> list[dict[str, str]]:
    """Rows for JSON: each finding with the name of its check."""
    return [{"check": row.check, **row.finding._asdict()} for row in results]


def exit_code(results: "list[CheckResult]") -> int:
    """The exit code that says how bad the worst finding is."""
    from kproxy.doctor.examination import worst
    from kproxy.doctor.findings import Level

    return {Level.FAIL: ExitCode.UNWELL, Level.WARN: ExitCode.WARNINGS}.get(worst(results), ExitCode.OK)


def print_results(shown: "Sequence[CheckResult]", results: "Sequence[CheckResult]") -> None:
    """A table with one line for each finding that is shown, and the sum of all results."""
    from rich.text import Text

    from kproxy.doctor.findings import Level

    styles = {Level.OK: "green", Level.SKIPPED: "dim", Level.WARN: "yellow", Level.FAIL: "bold red"}
    console = new_console()
    table = new_table("check", "", "found", "what to do")
    for row in shown:
        level, found, advice = row.finding
        table.add_row(Text(row.check), Text(level, style=styles[level]), Text(found), Text(advice))
    if shown:
        console.print(table)
    counts = Counter(row.finding.level for row in results)
    console.print(", ".join(f"{counts[level]} {level}" for level in Level if counts[level]), markup=False)
