"""The common parts of the simulations' commands: options, progress, the sum, the shortest failing trace."""

import os
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from verification.simulation.plan import Plan
from verification.simulation.runner import Failure, RunSeed, Tally, run_seeds
from verification.simulation.world import Outcome

#: So many of the seeds that failed are named.
_MOST_NAMED: Final = 20
#: Of the simulation with equal records: what nobody can judge, of how many.
_SHARES: Final = (
    ("values of which a second copy would be excused", "values", "excused_copies"),
    ("groups of equal records of which a merge would be excused", "groups", "excused_merges"),
)


@dataclass(frozen=True, slots=True)
class Simulation:
    """One kind of runs."""

    run_seed: RunSeed
    #: A failing outcome, cut down.
    shrink: Callable[[Outcome], Outcome]
    #: The participants of a plan, a line for each.
    cast: Callable[[Plan], Iterable[object]]
    #: The unit of a plan's ``sends``.
    unit: str
    #: Seeds that a process runs at a time.
    chunk: int
    #: The options of the command that run a seed again.
    again: Callable[[int], str]
    #: The entries of ``Outcome.seen`` that are summed up.
    counts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Wanted:
    """The seeds to run, and how to run them."""

    seeds: range
    jobs: int
    keep_going: bool
    trace: bool


def options(
    seeds: int, faults: tuple[str, ...], others: tuple[str, ...] = ()
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Adds the options to a command, which then takes ``wanted`` and ``faults``, and what it has itself.

    ``seeds`` is how many are run by default; ``faults`` are the kinds that strike by default, ``others`` must be named.
    """

    def names(_: click.Context, __: click.Parameter, value: str | None) -> tuple[str, ...]:
        if value is None:
            return faults
        found = tuple(name for name in value.split(",") if name)
        for name in found:
            if name not in faults + others:
                known = ", ".join(dict.fromkeys(faults + others))
                raise click.BadParameter(f"no such fault: {name}; there are {known}")
        return found

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        def take(
            seeds: int, first_seed: int, jobs: int, faults: tuple[str, ...], keep_going: bool, trace: bool, **own: Any
        ) -> None:
            wanted = Wanted(range(first_seed, first_seed + seeds), jobs, keep_going, trace)
            command(wanted=wanted, faults=faults, **own)

        take.__doc__ = command.__doc__
        made: Any = take
        for option in reversed(
            (
                click.option("--seeds", default=seeds, show_default=True, help="How many to run."),
                click.option("--first-seed", default=0, show_default=True, help="They are numbered from here."),
                click.option("--jobs", default=os.cpu_count() or 1, show_default=True, help="Processes."),
                click.option("--faults", callback=names, help="Kinds of faults, joined by commas; all if not given."),
                click.option("--keep-going", is_flag=True, help="Continue with the next seed after a failure."),
                click.option("--trace", is_flag=True, help="Print the trace of the first seed, and run no other."),
            )
        ):
            made = option(made)
        result: Callable[..., None] = made
        return result

    return decorate


def simulate(simulation: Simulation, wanted: Wanted) -> int:
    """Runs what is wanted and tells what came of it; the exit status, 1 if an invariant broke."""
    console = Console(highlight=False, soft_wrap=True)
    if wanted.trace:
        outcome = simulation.run_seed(wanted.seeds.start)
        _show(console, simulation, outcome)
        return int(outcome.broken is not None)
    tallies = _run(console, simulation, wanted)
    _sum_up(console, tallies, simulation)
    failures = [failure for tally in tallies for failure in tally.failures]
    if failures:
        _explain(console, simulation, failures)
    return int(bool(failures))


def _run(console: Console, simulation: Simulation, wanted: Wanted) -> list[Tally]:
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
        task = progress.add_task("", total=len(wanted.seeds), first=wanted.seeds.start, failed=0)
        for tally in run_seeds(wanted.seeds, simulation.run_seed, wanted.jobs, simulation.chunk):
            tallies.append(tally)
            failed += len(tally.failures)
            progress.update(task, advance=tally.runs, failed=failed)
            if failed and not wanted.keep_going:
                break
    return tallies


def _sum_up(console: Console, tallies: list[Tally], simulation: Simulation) -> None:
    totals = [sum(getattr(tally, name) for tally in tallies) for name in ("runs", "sends", "faults", "acknowledged")]
    runs, sends, faults, acknowledged = (f"{total:,}" for total in totals)
    console.print(f"{runs} runs: {sends} {simulation.unit}, {faults} faults, {acknowledged} records acknowledged")
    seen = sum((tally.seen for tally in tallies), Counter[str]())
    for what in simulation.counts:
        console.print(f"{what}: {seen[what]:,}")
    for what, of, excused in _SHARES:
        if seen[of]:
            console.print(f"{what}: {seen[excused]:,} of {seen[of]:,} ({seen[excused] / seen[of]:.1%})")


def _explain(console: Console, simulation: Simulation, failures: list[Failure]) -> None:
    for failure in islice(failures, _MOST_NAMED):
        console.print(f"seed {failure.seed}: {failure.invariant}: {failure.how}", markup=False, style="red")
        console.print(f"again: {simulation.again(failure.seed)}", markup=False)
    console.print(f"seed {failures[0].seed}, cut down:")
    _show(console, simulation, simulation.shrink(simulation.run_seed(failures[0].seed)))


def _show(console: Console, simulation: Simulation, outcome: Outcome) -> None:
    for one in simulation.cast(outcome.plan):
        console.print(str(one), markup=False)
    for line in outcome.trace:
        console.print(line, markup=False)
    if outcome.broken is not None:
        console.print(f"broken: {outcome.broken[0]}: {outcome.broken[1]}", markup=False)
    console.print(f"trace {outcome.digest}", markup=False)
