"""``python -m verification.chaos``: real faults on a real cluster, and what came of it."""

import random
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import click
import trio
from rich.console import Console
from rich.table import Table

from kproxy.testing.tools import Unavailable
from verification.chaos.kproxy_process import KproxyFailed
from verification.chaos.live import LiveView
from verification.chaos.relayed_kafka import RelayedKafka
from verification.chaos.released import ClientFailed
from verification.chaos.run import LOADS, Plan, run_chaos
from verification.chaos.schedule import FAMILIES
from verification.chaos.verdict import Verdict
from verification.history.report import make_console
from verification.history.report import verdict as history_table

_EVERY_S = 0.5


@click.command()
@click.option("--seconds", type=click.FloatRange(10), default=120, show_default=True, help="How long faults last.")
@click.option("--seed", type=int, help="Of the faults; printed. Any one if not given.")
@click.option(
    "--kproxies",
    type=click.IntRange(1, 3),
    help="Each with its own clients. One if not given; two that share the log of transactions; three if balanced.",
)
@click.option(
    "--balanced",
    is_flag=True,
    help="All clients reach all kproxies through one balancer, and retries are recognised at any of them. One is "
    "killed, frozen or cut off from the brokers every 5 s, and 3 % of the responses to Produce requests are lost; "
    "plain load, no other faults.",
)
@click.option(
    "--only",
    type=click.Choice(FAMILIES),
    multiple=True,
    help="Only faults of this family; may be repeated. All if not given.",
)
@click.option(
    "--load",
    type=click.Choice(LOADS),
    multiple=True,
    help="Only this load: plain records, or transactions in all homes. Both if not given.",
)
@click.option("--keep", is_flag=True, help="Keep history and logs also when nothing was found.")
def main(
    seconds: float,
    seed: int | None,
    kproxies: int | None,
    balanced: bool,
    only: tuple[str, ...],
    load: tuple[str, ...],
    keep: bool,
) -> None:
    """Let clients produce through kproxy to three brokers while networks, brokers and kproxy itself fail.

    Exit status: 0 nothing found, 1 anomalies (history and logs are kept), 2 it could not run.
    """
    console = make_console()
    seed = random.SystemRandom().randrange(1 << 31) if seed is None else seed
    if balanced:
        load = ("plain",)
    plan = Plan(seconds, seed, kproxies, families=only or FAMILIES, loads=load or LOADS, balanced=balanced)
    directory = Path(tempfile.mkdtemp(prefix="kproxy-chaos-"))
    console.print(f"seed {seed}, {seconds:.0f} s of faults; history and logs: {directory}", soft_wrap=True)
    verdict = _run(plan, directory, console)
    show(verdict, console)
    if verdict.clean and not keep:
        shutil.rmtree(directory)
    elif not verdict.clean:
        again = " ".join([f"--seconds {seconds:.0f} --seed {seed}", *(f"--only {family}" for family in only)])
        again += "".join(f" --load {name}" for name in load)
        again += f" --kproxies {kproxies}" if kproxies else ""
        again += " --balanced" if balanced else ""
        console.print(f"again: make chaos ARGS='{again}'; look at {directory}", soft_wrap=True)
    sys.exit(0 if verdict.clean else 1)


def _run(plan: Plan, directory: Path, console: Console) -> Verdict:
    try:
        with RelayedKafka(plan.brokers, directory / "kafka", plan.networks) as kafka, LiveView(console) as view:
            return trio.run(run_chaos, plan, kafka, directory, view.watch, _EVERY_S)
    except* (Unavailable, KproxyFailed, ClientFailed, OSError) as group:
        failures = group
    for error in _leaves(failures):
        click.echo(f"cannot run: {error}", err=True)
    sys.exit(2)


def _leaves(group: BaseExceptionGroup[Exception]) -> Iterator[Exception]:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _leaves(error)
        else:
            yield error


def show(verdict: Verdict, console: Console) -> None:
    """Print what was found."""
    console.print(history_table(verdict.history, verdict.anomalies), markup=False)
    table = Table("bar", "found", "")
    for bar in verdict.bars:
        table.add_row(bar.name, bar.found, "good" if bar.good else "bad", style="" if bar.good else "bold red")
    console.print(table, markup=False)


if __name__ == "__main__":
    main()
