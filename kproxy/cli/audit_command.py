"""``kproxy audit``: whether what kproxy promises holds on topics, found out on this machine or by a Spark job."""

import os
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from kproxy.cli.output import print_json
from kproxy.config import ExitCode, StartupError
from kproxy.distribution import install_command
from kproxy.errors import KproxyError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kproxy.spark.audit.engine import Engine
    from kproxy.spark.audit.request import Request
    from kproxy.spark.audit.summary import Summary

_EXAMPLES: Final = """\b
Examples:
  kproxy audit --bootstrap-servers kproxy:9092 --topics orders,bills --out audits
  kproxy audit --bootstrap-servers kproxy:9092 --topics 'orders-.*' --since 2h --out audits
  kproxy audit --bootstrap-servers kproxy:9092 --topics orders --key "string(key)" --window 1h --out audits
  kproxy audit --bootstrap-servers kproxy:9092 --topics orders --out audits --json | jq .verdict"""

_EXIT_CODES: Final = """\b
Exit codes:
  0  what kproxy promises holds
  1  failed while running
  2  wrong command line
  4  a promise is broken; with --fail-on warning, also: something may go wrong"""

#: How a task's error appears in the trace that Spark hands over.
_OWN_ERRORS: Final = ("KafkaError: ", "DataLost: ", "OptionError: ")


@click.command(epilog=f"{_EXAMPLES}\n\n{_EXIT_CODES}")
@click.option(
    "--bootstrap-servers",
    metavar="LIST",
    required=True,
    envvar="KPROXY_BOOTSTRAP_SERVERS",
    help="host:port of a kproxy, which knows what readers see; several with commas.",
)
@click.option("--brokers", metavar="LIST", help="Where the transaction log is read. [default: --bootstrap-servers]")
@click.option(
    "--command-config",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Properties file with security.protocol, ssl.* and sasl.*, as for Kafka's own tools.",
)
@click.option("--topics", metavar="A,B|PATTERN", required=True, help="Names, or a regular expression for whole names.")
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), required=True, help="Directory of the audits.")
@click.option("--since", metavar="WHEN", help="2h, an ISO 8601 time, or offsets as JSON. [default: the oldest record]")
@click.option("--fresh", is_flag=True, help="Begin at --since, not where the last audit in --out ended.")
@click.option("--key", metavar="EXPR", help="Spark SQL over key and value that no two records of a topic may share.")
@click.option("--window", metavar="TIME", default="10m", show_default=True, help="How far apart repeated runs may be.")
@click.option(
    "--run-length", type=click.IntRange(2, 100), default=3, show_default=True, help="Records of a run, at least."
)
@click.option("--open-limit", metavar="TIME", default="15m", show_default=True, help="How long may be undecided.")
@click.option("--prepared-limit", metavar="TIME", default="1h", show_default=True, help="How long may be prepared.")
@click.option(
    "--carry", metavar="TIME", default="7d", show_default=True, help="How long silent producers are remembered."
)
@click.option(
    "--fail-on", type=click.Choice(["broken", "warning"]), default="broken", show_default=True, help="What ends with 4."
)
@click.option(
    "--engine",
    type=click.Choice(["auto", "duckdb", "spark"]),
    default="auto",
    show_default=True,
    help="duckdb: in this process, without Java. auto: duckdb for up to 10,000,000 offsets, else spark.",
)
@click.option("--master", metavar="URL", help="Spark master. [default: local[*], or that of spark-submit]")
@click.option("--conf", metavar="NAME=VALUE", multiple=True, help="A setting of Spark; may be repeated.")
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON.")
def audit(as_json: bool, fail_on: str, **options: Any) -> int:
    """Look for duplicates, gaps, torn and hanging transactions in topics, and write a report.

    Each run continues where the last one in --out ended. Needs the extra audit, or spark for topics of any size.
    """
    try:
        import kproxy.spark.audit.audit_job
        import kproxy.spark.audit.duckdb_engine  # noqa: F401  # DuckDB and what draws the report are there, or this says so at once
    except ImportError as error:
        raise StartupError(f"kproxy audit needs {error.name}: {install_command('audit')}", ExitCode.USAGE) from None
    summary, directory = _run(_request(options), show=not as_json)
    if as_json:
        print_json(summary.as_json())
    else:
        _print(summary, directory)
    failed = summary.broken or (fail_on == "warning" and summary.warnings)
    return ExitCode.PROMISE_BROKEN if failed else ExitCode.OK


def _request(options: dict[str, Any]) -> "Request":
    """The options, checked. UsageError names the one that is wrong."""
    from kproxy.spark.audit.request import Request, Since, duration_ms, parse_since, read_command_config

    times = {"window": "window_ms", "open_limit": "open_ms", "prepared_limit": "prepared_ms", "carry": "carry_ms"}
    values: dict[str, Any] = {}
    for name, field in times.items():
        values[field] = _parsed(name, options[name], duration_ms)
    since, config = options["since"], options["command_config"]
    conf = tuple(_setting(text) for text in options["conf"])
    return Request(
        bootstrap=options["bootstrap_servers"],
        brokers=options["brokers"],
        topics=options["topics"],
        out=options["out"],
        since=Since() if since is None else _parsed("since", since, lambda text: parse_since(text, datetime.now(UTC))),
        since_text=since,
        fresh=options["fresh"],
        key=options["key"],
        run_length=options["run_length"],
        engine=options["engine"],
        master=options["master"],
        conf=conf,
        security={} if config is None else read_command_config(config),
        **values,
    )


def _parsed(name: str, text: str, parse: Any) -> Any:
    try:
        return parse(text)
    except ValueError as error:
        raise click.UsageError(f"--{name.replace('_', '-')} {error}") from None


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name.startswith("spark."):
        raise click.UsageError(f"--conf {text!r} is no setting of Spark; valid: spark.executor.memory=2g")
    return name, value


def _run(request: "Request", *, show: bool) -> tuple["Summary", Path]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from kproxy.spark.audit.audit_job import audit, steps
    from kproxy.spark.audit.audit_size import choose_engine
    from kproxy.spark.audit.request import SPARK
    from kproxy.spark.spark_errors import KafkaError, OptionError

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not (show and console.is_terminal)) as progress:
        task = progress.add_task("offsets", total=steps(request))
        try:
            on_spark = choose_engine(request) == SPARK
            if on_spark:
                progress.update(task, description="Spark starts")
            with (_spark if on_spark else _duckdb)(request) as engine:
                return audit(engine, request, lambda step: progress.update(task, advance=1, description=step))
        except (KafkaError, OptionError) as error:
            raise KproxyError(str(error)) from None
        except OSError as error:
            raise KproxyError(f"cannot write to {request.out}: {error.strerror or error}") from None


@contextmanager
def _duckdb(request: "Request") -> "Iterator[Engine]":
    import duckdb

    from kproxy.spark.audit.duckdb_engine import DuckDbEngine

    request.out.mkdir(parents=True, exist_ok=True)
    try:
        with closing(DuckDbEngine(request.out)) as engine:
            yield engine
    except duckdb.Error as error:
        raise KproxyError(f"DuckDB: {_first_line(error)}; --engine spark may have more room") from None


@contextmanager
def _spark(request: "Request") -> "Iterator[Engine]":
    try:
        from pyspark.errors import AnalysisException, PySparkException
    except ImportError:
        way_out = f"{install_command('spark')}; or --engine duckdb reads all in this process"
        raise StartupError(f"an audit on Spark needs pyspark: {way_out}", ExitCode.USAGE) from None

    from kproxy.spark.audit.spark_engine import SparkEngine
    from kproxy.spark.spark_session import spark_session

    master = request.master or (None if "PYSPARK_GATEWAY_PORT" in os.environ else "local[*]")
    conf = {**({} if master is None else {"spark.master": master}), **dict(request.conf)}
    try:
        with spark_session("kproxy audit", conf) as session, closing(SparkEngine(session)) as engine:
            yield engine
    except AnalysisException as error:
        # only the key is an expression of the user
        raise StartupError(f"--key {request.key!r}: {_first_line(error)}", ExitCode.USAGE) from None
    except PySparkException as error:
        raise KproxyError(f"Spark: {_first_line(error)}") from None


def _first_line(error: Exception) -> str:
    """The reason without a trace: a task's own error about Kafka if there is one, else the first line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    for line in lines:
        for name in _OWN_ERRORS:
            if name in line:
                return line.partition(name)[2]
    return (lines or [type(error).__name__])[0]


def _print(summary: "Summary", directory: Path) -> None:
    click.echo(summary.sentence)
    width = max(len(outcome.title) for outcome in summary.outcomes)
    for outcome in summary.outcomes:
        mark = outcome.severity.value if outcome.count else "none"
        click.echo(f"  {outcome.title:{width}}  {outcome.count:>9,}  {mark}")
    totals = summary.totals
    click.echo(f"{totals['records']:,} records in {totals['partitions']:,} partitions: {directory / 'report.html'}")
