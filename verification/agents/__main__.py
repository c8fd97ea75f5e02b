"""``make agents``: what is in the log after responses were lost, directly and through kproxy."""

import json
import shutil
import signal
import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import click
from rich.table import Table

from kproxy.testing.kafka import DEFAULT_VERSION
from kproxy.testing.tools import Unavailable
from verification.agents.agent import Agent, AgentFailed
from verification.agents.programs import AGENTS
from verification.agents.results import add, is_whole
from verification.agents.trial import KINDS, Found, Trial, run
from verification.chaos.kproxy_process import KproxyFailed
from verification.history.report import make_console

#: Of the lines of a whole trial, so many are written with ``--short``.
_SHORT: Final = 10
_EXAMPLES: Final = """
\b
Examples:
  make agents
  make agents ARGS="--only rsyslog --kind direct --kind through"
  make agents ARGS="--short --json" > agents.json
  make agents ARGS="--only kcat --record"
"""


@click.command(epilog=_EXAMPLES)
@click.option("--only", type=click.Choice(list(AGENTS)), multiple=True, help="Only this program; may be repeated.")
@click.option("--kind", "kinds", type=click.Choice(KINDS), multiple=True, help="Only this kind; may be repeated.")
@click.option("--lines", type=click.IntRange(1), help="How many lines are written.")
@click.option("--share", type=click.FloatRange(0, 1), help="The share of Produce responses that is lost.")
@click.option("--short", is_flag=True, help="A tenth of the lines.")
@click.option("--record", is_flag=True, help="Record what whole trials find, for docs/clients.md.")
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON for each trial in place of the table.")
def main(
    only: Sequence[str],
    kinds: Sequence[str],
    lines: int | None,
    share: float | None,
    short: bool,
    record: bool,
    as_json: bool,
) -> None:
    """Run released agents, unmodified but for the address, while acknowledgements are lost.

    They are Debian's packages, Go modules and Maven's jars, fetched into a cache when first needed.

    Each writes numbered lines to Kafka 4, directly and through kproxy with its default options. The log is read back
    from the broker. Exit status: 0 through kproxy each line is there once, 1 some are not, 2 a trial could not be run.
    """
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    console, table = make_console(), Table("program", "version", *_COLUMNS)
    is_bad = could_not = False
    for name in only or AGENTS:
        agent = AGENTS[name]
        most = lines or (agent.lines // _SHORT if short else agent.lines)
        for kind in kinds or KINDS:
            trial = Trial(agent, kind, most, agent.share if share is None else share)
            click.echo(f"{name}, {kind}: {most:,} lines, {trial.share:.0%} of the responses lost", err=True)
            try:
                found, error = _run(trial), ""
            except (AgentFailed, KproxyFailed, Unavailable, OSError) as failure:
                found, error = None, str(failure)
                could_not = True
                click.echo(error, err=True)
            is_bad |= kind != "direct" and found is not None and not found.is_good
            if record and found is not None and is_whole(trial):
                add(trial, found, f"{datetime.now(UTC):%Y-%m-%d}", _version(agent), DEFAULT_VERSION)
            if as_json:
                click.echo(json.dumps(_fields(trial, found, error)))
            table.add_row(name, _version(agent), *_cells(trial, found))
    if not as_json:
        console.print(table)
    sys.exit(2 if could_not else int(is_bad))


_COLUMNS: Final = ("kind", "lines", "responses lost", "copies", "missing", "seconds")


def _run(trial: Trial) -> Found:
    directory = Path(tempfile.mkdtemp(prefix="kproxy-agents-"))
    try:
        return run(trial, directory)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _version(agent: type[Agent]) -> str:
    try:
        return agent.unpacked().version
    except Unavailable:
        return "-"


def _cells(trial: Trial, found: Found | None) -> list[str]:
    if found is None:
        return [trial.kind, f"{trial.lines:,}", "-", "-", "-", "-"]
    counts = (found.lines, found.dropped, found.copies, found.missing)
    return [trial.kind, *(f"{count:,}" for count in counts), f"{found.seconds:.0f}"]


def _fields(trial: Trial, found: Found | None, error: str) -> dict[str, Any]:
    plain: dict[str, Any] = {"program": trial.agent.name, "version": _version(trial.agent), "kind": trial.kind}
    plain |= {"lines": trial.lines, "share": trial.share}
    if found is None:
        return {**plain, "error": error}
    counts = {"dropped": found.dropped, "copies": found.copies, "missing": found.missing}
    return {**plain, **counts, "seconds": round(found.seconds, 1)}


if __name__ == "__main__":
    main()
