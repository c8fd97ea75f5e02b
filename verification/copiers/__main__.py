"""``python -m verification.copiers``: exit code 1 if a number is missing, doubled or out of order."""

import sys
import tempfile
from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from verification.copiers.processes import ToolFailed
from verification.copiers.run import Job, Outcome, run


@click.command()
@click.option("--records", default=20_000, show_default=True, help="Numbers to write and copy.")
@click.option("--kills", default=20, show_default=True, help="Of kproxies, brokers and copiers, at most.")
@click.option("--pause", default=5.0, show_default=True, help="Seconds between two kills, on average.")
@click.option("--seconds", default=900.0, show_default=True, help="Give up after this time.")
@click.option("--seed", default=1, show_default=True, help="Of what is killed, and when.")
@click.option("--keep", type=click.Path(path_type=Path, file_okay=False), help="Leave the logs in this directory.")
def main(records: int, kills: int, pause: float, seconds: float, seed: int, keep: Path | None) -> None:
    """Runs Kafka's own producer and transactional copiers through two kproxies on three brokers, and kills them."""
    console = Console(highlight=False)
    job = Job(records, kills, pause, seconds, seed)
    with tempfile.TemporaryDirectory(prefix="kproxy-copiers-") as temporary:
        directory = keep or Path(temporary)
        directory.mkdir(parents=True, exist_ok=True)
        try:
            outcome = _watched(job, directory, console)
        except ToolFailed as failed:
            console.print(f"[red]{failed}[/red]")
            sys.exit(1)
    _show(outcome, console)
    sys.exit(not outcome.holds)


def _watched(job: Job, directory: Path, console: Console) -> Outcome:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        totals = {"written": job.records, "copied": job.records, "kills": job.kills}
        tasks = {what: progress.add_task(what, total=total) for what, total in totals.items()}
        return run(job, directory, lambda what, count: progress.update(tasks[what], completed=count))


def _show(outcome: Outcome, console: Console) -> None:
    killed = ", ".join(f"{count} of a {what}" for what, count in sorted(outcome.kills.items())) or "none"
    console.print(f"{outcome.records:,} in, {outcome.committed:,} out, {outcome.unique:,} of them unique")
    console.print(f"{outcome.disordered:,} out of order; {outcome.written:,} written, aborted ones included")
    console.print(f"kills: {killed}; {outcome.seconds:.0f} s")
    for bug in outcome.bugs[:10]:
        console.print(f"[red]{bug}[/red]", soft_wrap=True)
    console.print("[green]exactly once[/green]" if outcome.holds else "[red]broken[/red]")


if __name__ == "__main__":
    main()
