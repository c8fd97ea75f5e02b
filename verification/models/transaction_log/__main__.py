"""``python -m verification.models.transaction_log [part of a name]``: the exit status is the number of surprises."""

import sys

import click
from rich.console import Console
from rich.table import Table

from verification.models.transaction_log.explore import Result, explore
from verification.models.transaction_log.scenarios import SCENARIOS


@click.command()
@click.argument("names", nargs=-1)
@click.option("--most-states", default=400_000, show_default=True, help="A run ends after so many.")
@click.option("--only-broken", is_flag=True, help="Run the rules that are replaced, not kproxy's own.")
@click.option("--traces", is_flag=True, help="Print how each broken invariant came about.")
def main(names: tuple[str, ...], most_states: int, only_broken: bool, traces: bool) -> None:
    """Explores the scenarios with a part of their name in NAMES, or all."""
    console = Console(highlight=False, soft_wrap=True)
    chosen = [one for one in SCENARIOS if not names or any(part in one.name for part in names)]
    results: list[Result] = []
    for scenario in chosen:
        for result in explore(scenario, most_states, only_broken=only_broken):
            console.print(_line(result), style="bold red" if result.is_surprise else None)
            if result.trace is not None and (traces or result.is_surprise):
                for number, step in enumerate(result.trace[1], 1):
                    console.print(f"{number:6}  {step}", markup=False)
            results.append(result)
    console.print(_table(results))
    sys.exit(min(sum(result.is_surprise for result in results), 100))


def _line(result: Result) -> str:
    cut = " (cut off)" if result.found.is_cut else ""
    rules = result.changes or "kproxy's rules"
    return f"{result.scenario.name}: {rules}: {result.found.states} states{cut}: {_outcome(result)}"


def _outcome(result: Result) -> str:
    return "every invariant holds" if result.trace is None else result.trace[0]


def _table(results: list[Result]) -> Table:
    table = Table(box=None)
    for heading in ("scenario", "rules", "states", "steps", "CPU s", "outcome"):
        table.add_column(heading, justify="right" if heading in ("states", "steps", "CPU s") else "left")
    for result in results:
        states = f"{result.found.states:,}" + ("+" if result.found.is_cut else "")
        steps = str(len(result.trace[1])) if result.trace is not None else ""
        style = "bold red" if result.is_surprise else None
        row = (result.scenario.name, result.changes or "kproxy's", states, steps, f"{result.seconds:.1f}")
        table.add_row(*row, _outcome(result), style=style)
    return table


if __name__ == "__main__":
    main()
