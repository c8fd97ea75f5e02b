"""``python -m kproxy.testing.simulation.transactions``: runs seeds; exit code 1 if one breaks an invariant."""

import os
import sys

import click
from rich.console import Console

from kproxy.testing.simulation.runner import Failure
from kproxy.testing.simulation.transactions.plan import Taste, make_plan
from kproxy.testing.simulation.transactions.runner import run_seeds, shrink
from kproxy.testing.simulation.transactions.world import run
from kproxy.testing.simulation.world import Outcome


@click.command()
@click.option("--seeds", default=300, show_default=True, help="How many to run.")
@click.option("--first-seed", default=0, show_default=True, help="They are numbered from here.")
@click.option("--jobs", default=os.cpu_count() or 1, show_default=True, help="Processes.")
@click.option("--keep-going", is_flag=True, help="Run all seeds, also behind a failure.")
@click.option("--trace", is_flag=True, help="Print the trace of the first seed, and run no other.")
def main(seeds: int, first_seed: int, jobs: int, keep_going: bool, trace: bool) -> None:
    """Simulates transactions that kproxy decides among brokers, readers and faults, and checks what it promises."""
    console = Console(highlight=False, soft_wrap=True)
    if trace:
        outcome = run(make_plan(first_seed, Taste()))
        _show(console, outcome)
        sys.exit(outcome.broken is not None)
    failures: list[Failure] = []
    runs = transactions = faults = acknowledged = 0
    for tally in run_seeds(range(first_seed, first_seed + seeds), Taste(), jobs):
        failures += tally.failures
        runs, transactions = runs + tally.runs, transactions + tally.sends
        faults, acknowledged = faults + tally.faults, acknowledged + tally.acknowledged
        if failures and not keep_going:
            break
    console.print(
        f"{runs:,} runs: {transactions:,} transactions, {faults:,} faults, {acknowledged:,} records acknowledged"
    )
    if failures:
        _explain(console, failures)
        sys.exit(1)


def _explain(console: Console, failures: list[Failure]) -> None:
    for failure in failures[:20]:
        console.print(f"seed {failure.seed}: {failure.invariant}: {failure.how}", markup=False)
    plan = make_plan(failures[0].seed, Taste())
    console.print(f"seed {plan.seed}, cut down:")
    _show(console, shrink(plan, run(plan)))


def _show(console: Console, outcome: Outcome) -> None:
    for line in outcome.trace:
        console.print(line, markup=False)
    if outcome.broken is not None:
        console.print(f"broken: {outcome.broken[0]}: {outcome.broken[1]}", markup=False)
    console.print(f"trace {outcome.digest}", markup=False)


if __name__ == "__main__":
    main()
