"""``python -m verification.network``: released clients on a real network that misbehaves, and what came of it."""

import json
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import click
from rich.console import Console
from rich.table import Column, Table

from kproxy.testing.kafka import DEFAULT_VERSION
from kproxy.testing.maven import kafka_jars
from kproxy.testing.tools import Unavailable
from verification.history.report import make_console
from verification.network import clients
from verification.network.cases.balancers import fleet, restarted_balancer
from verification.network.cases.cut_routes import long_cut, missing_ack, overtaken, short_cut
from verification.network.cases.equal_records import equal_records, orderly_restart
from verification.network.cases.librdkafka import latency, one_name, order
from verification.network.namespace import isolate, why_not
from verification.network.outcome import Outcome
from verification.network.rows import COLUMNS, Row, run_case
from verification.network.site import Site

CASES: Final[Mapping[str, Callable[[Site], Outcome]]] = {
    "equal-records": equal_records,
    "orderly-restart": orderly_restart,
    "missing-ack": missing_ack,
    "one-name": one_name,
    "latency": latency,
    "long-cut": long_cut,
    "short-cut": short_cut,
    "overtaken": overtaken,
    "order": order,
    "restarted-balancer": restarted_balancer,
    "fleet": fleet,
}
_EXAMPLES: Final = """
\b
Examples:
  make network
  make network ARGS="--only latency --only order"
  make network ARGS="--json" > network.json
  make network ARGS="--only latency --source ../older-checkout"   does the case find what was mended since?
"""


@click.command(epilog=_EXAMPLES)
@click.option("--only", type=click.Choice(list(CASES)), multiple=True, help="Only this case; may be repeated.")
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON for each case in place of the table.")
@click.option("--keep", is_flag=True, help="Keep the logs also when no case failed.")
@click.option(
    "--source",
    type=click.Path(exists=True, file_okay=False, resolve_path=True, path_type=Path),
    help="Run the kproxy of another checkout.",
)
def main(only: tuple[str, ...], as_json: bool, keep: bool, source: Path | None) -> None:
    """Run released clients in a network namespace, against kproxy and Kafka in another one, with faults between them.

    Needs root on Linux: elsewhere this says so and ends with status 0. Exit status: 0 all cases are good, 1 some are
    not (logs are kept), 2 they could not run.
    """
    if reason := why_not():
        click.echo(f"network: no case was run: {reason}", err=True)
        return
    # trio ends in good order on SIGINT alone, which a shell makes its background jobs ignore
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    directory = Path(tempfile.mkdtemp(prefix="kproxy-network-"))
    click.echo(f"logs: {directory}", err=True)
    try:
        _prepare()
        with Site(directory, source) as site:
            found = [_run(site, name) for name in only or CASES]
    except (Unavailable, OSError) as error:
        click.echo(f"cannot run: {error}", err=True)
        sys.exit(2)
    for row in found if as_json else ():
        click.echo(json.dumps(row.fields()))
    if not as_json:
        _show(found, make_console())
    failed = any(row.problems for row in found)
    if not failed and not keep:
        shutil.rmtree(directory)
    sys.exit(failed)


def _prepare() -> None:
    """Fetch what the cases need while there is a network; afterwards there is only loopback."""
    kafka_jars(DEFAULT_VERSION)
    clients.install()
    isolate()


def _run(site: Site, name: str) -> Row:
    click.echo(f"{name} ...", err=True)
    row = run_case(name, CASES[name], site)
    click.echo(f"{name}: {row.verdict}, {row.seconds:.1f} s", err=True)
    return row


def _show(rows: list[Row], console: Console) -> None:
    table = Table("case", *(Column(name, justify="right") for name in COLUMNS), "verdict")
    for row in rows:
        table.add_row(row.name, *row.cells(), row.verdict, style="bold red" if row.problems else "")
    console.print(table, markup=False)


if __name__ == "__main__":
    main()
