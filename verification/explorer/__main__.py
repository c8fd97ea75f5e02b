"""``python -m verification.explorer [part of a name]``: the exit status is the number of surprises."""

import logging
import sys
from concurrent.futures import ProcessPoolExecutor

import click
import structlog
from rich.console import Console
from rich.table import Table

from verification.explorer.jobs import Job, jobs
from verification.explorer.search import Found


@click.command()
@click.argument("names", nargs=-1)
@click.option("--most-states", default=100_000, show_default=True, help="A search ends after so many.")
@click.option("--processes", default=2, show_default=True, help="How many search side by side.")
@click.option("--only-own", is_flag=True, help="Leave out the searches with a rule less.")
@click.option("--only-broken", is_flag=True, help="Leave out the searches with kproxy's own rules.")
@click.option("--traces", is_flag=True, help="Print how each broken invariant came about.")
def main(
    names: tuple[str, ...], most_states: int, processes: int, only_own: bool, only_broken: bool, traces: bool
) -> None:
    """Explores the small worlds with a part of their name in NAMES, or all.

    Example: python -m verification.explorer "moved on" --traces
    """
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    console = Console(highlight=False, soft_wrap=True)
    wanted = jobs(names, most_states, own=not only_broken, broken=not only_own)
    table = Table("world", "rules", "states", "runs", "CPU s", "outcome", box=None)
    surprises = states = 0
    with ProcessPoolExecutor(processes) as pool:
        for job, found in zip(wanted, pool.map(Job.run, wanted), strict=True):
            surprises += job.is_surprise(found)
            states += found.states
            console.print(f"{job.name}: {found.states:,} states: {_outcome(found)}")
            if traces or job.is_surprise(found):
                _print(console, found)
            _add(table, job, found)
    console.print(table)
    console.print(f"{states:,} states; {surprises} surprises")
    sys.exit(min(surprises, 100))


def _outcome(found: Found) -> str:
    return "; ".join(f"{name}: not so: {how}" for name, (how, _) in found.traces.items()) or "every invariant holds"


def _print(console: Console, found: Found) -> None:
    for name, (how, texts) in found.traces.items():
        console.print(f"  {name}: {how}", markup=False)
        for number, text in enumerate(texts, 1):
            console.print(f"{number:6}  {text}", markup=False)


def _add(table: Table, job: Job, found: Found) -> None:
    rules = "kproxy's" if job.variant is None else job.variant.name
    size = f"{found.states:,}" + ("+" if found.is_cut else "")
    outcome = "; ".join(found.traces) or "every invariant holds"
    style = "bold red" if job.is_surprise(found) else None
    table.add_row(job.scenario.name, rules, size, f"{found.runs:,}", f"{found.seconds:.1f}", outcome, style=style)


if __name__ == "__main__":
    main()
