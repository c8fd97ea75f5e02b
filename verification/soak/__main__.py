"""``python -m verification.soak``: exit code 1 if kproxy has grown, 2 if the run was too short to tell."""

import sys
from pathlib import Path

import click
from rich.console import Console

from verification.soak import report
from verification.soak.run import Job, Outcome, run
from verification.soak.verdict import TooShort, judge

_WARM_UP: float = 1 / 3


@click.command()
@click.option("--minutes", default=30.0, show_default=True, help="How long clients come and go.")
@click.option("--warm-up", type=float, help="Minutes before the first that count; by default a third of all.")
@click.option("--every", default=20.0, show_default=True, help="Seconds between two samples, for which clients rest.")
@click.option("--per-second", default=5.0, show_default=True, help="New clients each second.")
@click.option("--threads", default=8, show_default=True, help="So many clients at a time.")
@click.option("--seed", default=1, show_default=True, help="Of what clients do.")
@click.option("--broker", type=click.Choice(["fake", "kafka"]), default="fake", show_default=True)
@click.option("--kproxy", "options", multiple=True, metavar="OPTION=VALUE", help="An option of kproxy run.")
@click.option("--json", "json_path", type=click.Path(path_type=Path, dir_okay=False), help="Write all samples here.")
@click.option("--plot", "plot_path", type=click.Path(path_type=Path, dir_okay=False), help="Draw them (matplotlib).")
def main(
    minutes: float,
    warm_up: float | None,
    every: float,
    per_second: float,
    threads: int,
    seed: int,
    broker: str,
    options: tuple[str, ...],
    json_path: Path | None,
    plot_path: Path | None,
) -> None:
    """Clients of several kinds connect to a kproxy, do their part and leave; then judges whether kproxy has grown."""
    console = Console(highlight=False)
    more = {name: value for name, _, value in (option.partition("=") for option in options)}
    job = Job(minutes * 60, every, per_second, threads, seed, broker == "kafka", more)
    outcome = run(job, lambda sample: console.print(report.line(sample), soft_wrap=True))
    _plot(outcome, plot_path, console)
    try:
        bars = judge(outcome.samples, (minutes * _WARM_UP if warm_up is None else warm_up) * 60)
    except TooShort as error:
        console.print(f"[red]{error}[/red]")
        sys.exit(2)
    console.print(report.table(bars))
    served = ", ".join(f"{count:,} {what}" for what, count in sorted(outcome.served.items()))
    console.print(f"clients: {served}; {outcome.failed:,} failed")
    for fault in outcome.faults:
        console.print(f"[red]{fault}[/red]", soft_wrap=True, markup=True)
    if json_path:
        report.save(outcome, bars, json_path)
    sys.exit(bool(outcome.faults) or not all(bar.met for bar in bars))


def _plot(outcome: Outcome, path: Path | None, console: Console) -> None:
    if path is None:
        return
    try:
        report.plot(outcome.samples, path)
    except ImportError:
        console.print("no picture: matplotlib is not installed")


if __name__ == "__main__":
    main()
