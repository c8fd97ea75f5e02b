"""``python -m verification.spark_proof``: exit code 1 if kproxy's sink did not keep its promise."""

import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from kproxy.proxy.coordinator_rules import Home
from kproxy.testing.tools import Unavailable
from verification.copiers.processes import ToolFailed
from verification.spark_proof.job import KAFKA, KPROXY
from verification.spark_proof.run import VICTIMS, Job, stage
from verification.spark_proof.verdict import Outcome


@click.command()
@click.option("--records", default=1_000_000, show_default=True, help="Numbers to copy into each of three topics.")
@click.option("--batch", default=25_000, show_default=True, help="Records of a micro-batch.")
@click.option("--kills", default=40, show_default=True, help="In each job, at most.")
@click.option(
    "--kill",
    "victims",
    multiple=True,
    callback=lambda context, parameter, given: _planned(given),
    metavar="WHAT=TIMES",
    help="Kill these in place of --kills at random, each in the middle of a batch of its own; may be repeated. "
    f"WHAT is one of {', '.join(VICTIMS)}.",
)
@click.option("--pause", default=8.0, show_default=True, help="Seconds between two kills, on average.")
@click.option("--seconds", default=3600.0, show_default=True, help="Give a job up after this time.")
@click.option("--seed", default=1, show_default=True, help="Of what is killed, and when.")
@click.option("--brokers", default=3, show_default=True, type=click.IntRange(1), help="Of the Kafka cluster.")
@click.option("--master", default="local-cluster[2,1,1024]", show_default=True, help="Of Spark.")
@click.option("--sink", "sinks", multiple=True, type=click.Choice([KPROXY, KAFKA]), help="Only this one; else both.")
@click.option(
    "--home",
    default=Home.KPROXY.value,
    show_default=True,
    type=click.Choice([Home.KPROXY.value, Home.BROKER.value]),
    help="Who keeps what is undecided from readers; in the broker's home all is read at the brokers.",
)
@click.option("--json", "result", type=click.Path(path_type=Path, dir_okay=False), help="Write the result here.")
@click.option("--keep", type=click.Path(path_type=Path, file_okay=False), help="Leave the logs in this directory.")
def main(
    records: int,
    batch: int,
    kills: int,
    victims: tuple[str, ...],
    pause: float,
    seconds: float,
    seed: int,
    brokers: int,
    master: str,
    sinks: tuple[str, ...],
    home: str,
    result: Path | None,
    keep: Path | None,
) -> None:
    """Copies a topic into three by one Spark query, kills all that takes part, and counts what is there.

    With kproxy's sink each number must be once in each topic, and the topics must agree at every moment. The same
    with Spark's own Kafka sink is for comparison; it is not expected to hold.
    """
    console = Console(highlight=False)
    job = Job(records, batch, len(victims) or kills, pause, seconds, seed, brokers, master, Home(home), victims)
    if len(victims) > job.batches:
        raise click.UsageError(f"{len(victims)} kills need as many batches, and there are {job.batches}")
    with tempfile.TemporaryDirectory(prefix="kproxy-spark-") as temporary:
        directory = (keep or Path(temporary)).resolve()
        directory.mkdir(parents=True, exist_ok=True)
        try:
            outcomes = _watched(job, directory, sinks or (KPROXY, KAFKA), console)
        except (ToolFailed, Unavailable) as failed:
            console.print(f"[red]{failed}[/red]")
            sys.exit(1)
    _show(outcomes, console)
    if result is not None:
        result.write_text(json.dumps([outcome.as_json() for outcome in outcomes], indent=2), encoding="utf-8")
    sys.exit(not all(outcome.holds for outcome in outcomes if outcome.sink == KPROXY))


def _planned(given: Sequence[str]) -> tuple[str, ...]:
    found: list[str] = []
    for each in given:
        what, _, times = each.partition("=")
        if what not in VICTIMS or not times.isdecimal():
            raise click.BadParameter(f"{each!r} must be one of {', '.join(VICTIMS)}, then = and a number")
        found += [what] * int(times)
    return tuple(found)


def _watched(job: Job, directory: Path, sinks: Sequence[str], console: Console) -> list[Outcome]:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    outcomes = []
    with Progress(*columns, console=console) as progress, stage(job, directory) as made:
        for sink in sinks:
            tasks = {
                "copied": progress.add_task(f"{sink}: copied", total=job.records),
                "kills": progress.add_task(f"{sink}: kills", total=job.kills),
            }
            outcomes.append(made.run(sink, partial(_tell, progress, tasks)))
    return outcomes


def _tell(progress: Progress, tasks: Mapping[str, TaskID], what: str, count: int) -> None:
    progress.update(tasks[what], completed=count)


def _show(outcomes: Sequence[Outcome], console: Console) -> None:
    table = Table(
        "sink", "in", "out, of three topics", "hidden", "missing", "duplicates", "torn", "batches", "drivers", "seconds"
    )
    for outcome in outcomes:
        found = outcome.topics.values()
        table.add_row(
            outcome.sink,
            f"{outcome.records:,}",
            f"{outcome.shown:,}",
            f"{outcome.hidden:,}",
            f"{sum(row.missing for row in found):,}",
            f"{outcome.duplicates:,}",
            "not looked for" if outcome.torn is None else f"{len(outcome.torn):,} of {outcome.looks:,} looks",
            str(outcome.batches),
            str(outcome.drivers),
            f"{outcome.seconds:.0f}",
        )
    console.print(table)
    for outcome in outcomes:
        killed = ", ".join(f"{count} of a {what}" for what, count in sorted(outcome.kills.items())) or "none"
        console.print(f"{outcome.sink}: kills: {killed}")
        for line in [*(outcome.torn or ())[:10], *outcome.bugs[:10]]:
            console.print(f"[red]{line}[/red]", soft_wrap=True)
        verdict = "[green]exactly once[/green]" if outcome.holds else "[red]not exactly once[/red]"
        console.print(f"{outcome.sink}: {verdict}")


if __name__ == "__main__":
    main()
