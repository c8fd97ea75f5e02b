"""``kproxy pipeline``: pipelines on Spark, checked, run, or made ready for a cluster."""

import os
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import click

from kproxy.cli.groups import help_group
from kproxy.cli.output import json_flag, print_json, waiting
from kproxy.config import ConfigError, ExitCode
from kproxy.config.config_faults import Faults
from kproxy.distribution import install_command

if TYPE_CHECKING:
    from kproxy.spark.pipeline import Pipeline

_EXAMPLES = """\b
Examples:
  kproxy pipeline check orders.yaml
  kproxy pipeline run orders.yaml
  kproxy pipeline run orders.yaml --json > batches.jsonl
  eval "$(kproxy pipeline run orders.yaml --submit)"
  ORDERS=orders-2015 kproxy pipeline run orders.yaml"""

_EXIT_CODES = """\b
Exit codes:
  0  everything is written, or it was stopped
  1  failed while running: the next run continues after the last committed batch
  2  wrong command line or file"""


pipeline = help_group(
    "pipeline",
    "Run pipelines on Spark, from a YAML file; exactly once. Needs the extra spark.",
    f"{_EXAMPLES}\n\n{_EXIT_CODES}",
)
_file = click.argument("file", type=click.Path(path_type=Path))


@pipeline.command(epilog=_EXIT_CODES)
@_file
@click.option("--offline", is_flag=True, help="Check the file alone: ask no kproxy for topics, and start no Spark.")
@json_flag
def check(file: Path, offline: bool, as_json: bool) -> int:
    """Check a pipeline: its file, its topics, its SQL and its settings of Spark. Reads and writes no record.

    The functions of Python steps are called, as in a run.
    """
    faults = Faults(str(file))
    try:
        found = _pipelines().read(file, os.environ, faults)
        if not offline:
            from kproxy.spark.pipeline.live_checks import check_live

            with waiting("Checking topics, SQL and Spark's settings"):
                check_live(found, faults)
        faults.check()
    except ConfigError as error:
        if not as_json:
            raise
        print_json({"ok": False, "problems": _problems(error)})
        return ExitCode.USAGE
    if as_json:
        print_json({"ok": True, "problems": [], **_summary(found)})
    else:
        names = {key: ", ".join(value) or "-" for key, value in _summary(found).items() if isinstance(value, list)}
        click.echo(f"{file}: pipeline {found.name!r} is in order")
        for key, text in names.items():
            click.echo(f"  {key}: {text}")
    return ExitCode.OK


@pipeline.command(epilog=f"{_EXAMPLES}\n\n{_EXIT_CODES}")
@_file
@click.option("--submit", is_flag=True, help="Print the spark-submit line that runs it on a cluster, and run nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object for each batch.")
def run(file: Path, submit: bool, as_json: bool) -> int:
    """Run a pipeline until all is written (trigger: availableNow), or until SIGINT or SIGTERM.

    The signal ends it when the running batch is done, a second one at once.
    """
    if submit and as_json:
        raise click.UsageError("--submit prints a line for a shell: it does not go with --json")
    pipelines = _pipelines()
    found = pipelines.load(file, os.environ)
    if submit:
        click.echo(pipelines.submit_line(found, os.environ))
    else:
        pipelines.run(found, pipelines.choose_display(json_lines=as_json))
    return ExitCode.OK


def _pipelines() -> ModuleType:
    """The package of pipelines; a message that says how to install it where it is missing."""
    try:
        from kproxy.spark import pipeline as package
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("pyspark", "pyarrow", "numpy"):
            raise
        raise click.ClickException(f"pipelines need Spark: {install_command('spark')}") from None
    return package


def _problems(error: ConfigError) -> list[dict[str, object]]:
    from kproxy.spark.pipeline import FileError

    if isinstance(error, FileError):
        return [{"line": place.line, "key": place.key, "text": text} for place, text in error.faults]
    return [{"line": None, "key": None, "text": text} for text in error.problems]


def _summary(found: "Pipeline") -> dict[str, object]:
    return {
        "name": found.name,
        "sources": [source.name for source in found.sources],
        "steps": [step.name for step in found.steps],
        "topics": [sink.topic for sink in found.topic_sinks],
        "directories": [sink.path for sink in found.parquet_sinks],
    }
