"""``python -m kproxy.testing.simulation``: runs seeds; exit code 1 if one breaks an invariant."""

import os
import sys
from itertools import islice

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from kproxy.testing.simulation.plan import FAULTS, Taste, make_plan
from kproxy.testing.simulation.runner import Failure, Tally, run_seeds, shrink
from kproxy.testing.simulation.world import Outcome, run


def _names(_: click.Context, __: click.Parameter, value: str | None) -> tuple[str, ...]:
    if value is None:
        return FAULTS
    names = tuple(name for name in value.split(",") if name)
    for name in names:
        if name not in FAULTS:
            raise click.BadParameter(f"no such fault: {name}; there are {', '.join(FAULTS)}")
    return names


@click.command()
@click.option("--seeds", default=2000, show_default=True, help="How many to run.")
@click.option("--first-seed", default=0, show_default=True, help="They are numbered from here.")
@click.option("--jobs", default=os.cpu_count() or 1, show_default=True, help="Processes.")
@click.option("--faults", callback=_names, help="Kinds of faults, by name, joined by commas; all if not given.")
@click.option("--keep-going", is_flag=True, help="Run all seeds, also behind a failure.")
@click.option("--trace", is_flag=True, help="Print the trace of the first seed, and run no other.")
def main(seeds: int, first_seed: int, jobs: int, faults: tuple[str, ...], keep_going: bool, trace: bool) -> None:
    """Simulates kproxy among clients, brokers and faults, and checks what it promises."""
    console = Console(highlight=False, soft_wrap=True)
    taste = Taste(faults=faults)
    if trace:
        outcome = run(make_plan(first_seed, taste))
        _show(console, outcome)
        sys.exit(outcome.broken is not None)
    tallies = _run(console, range(first_seed, first_seed + seeds), taste, jobs, keep_going)
    _sum_up(console, tallies)
    failures = [failure for tally in tallies for failure in tally.failures]
    if failures:
        _explain(console, failures, taste)
        sys.exit(1)


def _run(console: Console, seeds: range, taste: Taste, jobs: int, keep_going: bool) -> list[Tally]:
    tallies: list[Tally] = []
    failed = 0
    columns = (
        TextColumn("seeds from {task.fields[first]}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[failed]} failed"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("", total=len(seeds), first=seeds[0], failed=0)
        for tally in run_seeds(seeds, taste, jobs):
            tallies.append(tally)
            failed += len(tally.failures)
            progress.update(task, advance=tally.runs, failed=failed)
            if failed and not keep_going:
                break
    return tallies


def _sum_up(console: Console, tallies: list[Tally]) -> None:
    totals = [sum(getattr(tally, name) for tally in tallies) for name in ("runs", "sends", "faults", "acknowledged")]
    runs, sends, faults, acknowledged = (f"{total:,}" for total in totals)
    console.print(f"{runs} runs: {sends} requests, {faults} faults, {acknowledged} records acknowledged")


def _explain(console: Console, failures: list[Failure], taste: Taste) -> None:
    for failure in islice(failures, 20):
        console.print(f"seed {failure.seed}: [red]{failure.invariant}[/red]: {failure.how}", markup=True)
    console.print(f"seed {failures[0].seed}, cut down:")
    _show(console, shrink(run(make_plan(failures[0].seed, taste))))


def _show(console: Console, outcome: Outcome) -> None:
    for client in outcome.plan.clients:
        console.print(str(client), markup=False)
    for line in outcome.trace:
        console.print(line, markup=False)
    if outcome.broken is not None:
        console.print(f"broken: {outcome.broken[0]}: {outcome.broken[1]}", markup=False)
    console.print(f"trace {outcome.digest}", markup=False)


if __name__ == "__main__":
    main()
