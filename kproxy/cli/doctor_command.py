"""``kproxy doctor``: whether brokers, topics and options fit each other, and what to do where they do not."""

from typing import Any, Final

import click

from kproxy.cli.flags import ConfigCommand, given_flags
from kproxy.cli.json_output import show
from kproxy.config import ExitCode, load

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
    from kproxy.cli.doctor_report import as_object, print_findings
    from kproxy.doctor.checks import worst
    from kproxy.doctor.examination import examine
    from kproxy.doctor.findings import Level

    results = examine(config)
    show(as_object(results), as_json, lambda _: print_findings(results))
    return {Level.FAIL: ExitCode.UNWELL, Level.WARN: ExitCode.WARNINGS}.get(worst(results), ExitCode.OK)
