"""`python -m bench`: run the cases and print the table."""

import contextlib
import platform
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from bench import cases, curves, load, payloads
from bench.doubts import doubts
from bench.homes import PARTITIONS as HOMES_PARTITIONS
from bench.homes import homes
from bench.java_producer import java_producer, kept_producer
from bench.lost_answers import lost_answers
from bench.processes import raise_file_limit
from bench.recovery import recovery
from bench.report import Figure, charts, line, save, show
from bench.restarts import restarts
from bench.start import start
from bench.steady import steady
from bench.targets import Target, leader, open_sink, open_targets
from bench.tls import connections, tls
from bench.transactions import CELL_SECONDS, PARTITIONS, transactions
from kproxy.testing.kafka import RealKafka

MEGABYTE = 1_000_000
FULL_MEGABYTES, QUICK_MEGABYTES = 512, 128
PREFILL_BYTES = 4 << 20
_FILE_COLUMNS = 120
_ALL, _FEW = (", ".join(map(str, counts)) for counts in (PARTITIONS, HOMES_PARTITIONS))

SHARED: dict[str, Callable[[Sequence[Target], int], list[Figure]]] = {
    "v2-produce": cases.v2_produce,
    "java-produce": cases.java_produce,
    "v2-fetch": cases.v2_fetch,
    "old-produce": cases.old_produce,
    "old-fetch": cases.old_fetch,
    "latency": cases.latency,
    "batch-sizes": curves.batch_sizes,
    "producers": curves.producers,
    "one-client": curves.connections,
}
SIZED: dict[str, Callable[[int], list[Figure]]] = {
    "committed-fetch": cases.committed_fetch,
    "doubts": doubts,
    "lost-answers": lost_answers,
    "restarts": restarts,
    "tls": tls,
}
"""With a broker of their own."""
ALONE: dict[str, Callable[[], list[Figure]]] = {
    "start": start,
    "memory": cases.memory,
    "tls-connections": connections,
    "stall": cases.stalled_broker,
    "recovery": recovery,
    "java-producer": java_producer,
    "kept-producer": kept_producer,
    "steady": steady,
}
TRANSACTIONS = "transactions"
HOMES = "homes"
SPARK, SPARK_SOURCES, SPARK_BATCHES = "spark", "spark-sources", "spark-batches"
"""Only when they are asked for: they take long, and Maven."""
SPARK_RECORDS = {SPARK: (1_000_000, 10_000_000), SPARK_SOURCES: (2_000_000, 10_000_000)}
OLD = ("old-produce", "old-fetch")


@click.command()
@click.option("--quick", is_flag=True, help=f"{QUICK_MEGABYTES} MB for each case instead of {FULL_MEGABYTES}.")
@click.option("--megabytes", type=click.IntRange(1), help="Payload of each v2 case; the old formats take a quarter.")
@click.option(
    "--broker",
    type=click.Choice(["sink", "kafka"]),
    default="sink",
    show_default=True,
    help="A broker that only answers, so that the proxy is the bottleneck; or a real Kafka 4.4.0.",
)
@click.option(
    "--only",
    type=click.Choice([*SHARED, *SIZED, *ALONE, TRANSACTIONS, HOMES, *SPARK_RECORDS, SPARK_BATCHES]),
    multiple=True,
    help=f"Only these cases; may be repeated. {SPARK}, {SPARK_SOURCES} and {SPARK_BATCHES} run only so.",
)
@click.option(
    "--partitions",
    type=click.IntRange(1, 1000),
    multiple=True,
    help=f"How many partitions a transaction writes to; may be repeated. By default {_ALL}, of {HOMES} {_FEW}.",
)
@click.option(
    "--cell-seconds",
    type=click.FloatRange(1),
    default=CELL_SECONDS,
    show_default=True,
    help="The most that one way may take for the transactions of one number of partitions.",
)
@click.option(
    "--records",
    type=click.IntRange(1_000),
    multiple=True,
    help="How many records Spark writes, reads and audits; may be repeated, the smallest first. By default 1 million "
    f"({SPARK_SOURCES}: 2 million) and 10 million.",
)
@click.option(
    "--value-bytes",
    type=click.IntRange(1, 1_000_000),
    default=100,
    show_default=True,
    help="Of each record that Spark writes and reads.",
)
@click.option("--json", "json_path", type=click.Path(path_type=Path), help="Write the figures to this file too.")
def main(
    quick: bool,
    megabytes: int | None,
    broker: str,
    only: tuple[str, ...],
    partitions: tuple[int, ...],
    cell_seconds: float,
    records: tuple[int, ...],
    value_bytes: int,
    json_path: Path | None,
) -> None:
    """Measure direct, a bare trio relay and kproxy side by side, with the CPU seconds of the process in between.

    GB and MB are powers of ten, of payload. Each figure is printed when it is measured, and all are printed at the end.
    The exit status does not depend on them.
    """
    raise_file_limit()
    console = Console(width=None if sys.stdout.isatty() else _FILE_COLUMNS)
    total_bytes = (megabytes or (QUICK_MEGABYTES if quick else FULL_MEGABYTES)) * MEGABYTE
    alone: dict[str, Callable[[], Iterable[Figure]]] = {
        name: partial(case, total_bytes) for name, case in SIZED.items()
    }
    alone |= ALONE
    counts = tuple(dict.fromkeys(partitions))
    alone[TRANSACTIONS] = partial(transactions, counts or PARTITIONS, cell_seconds)
    alone[HOMES] = partial(homes, counts or HOMES_PARTITIONS)
    chosen = only or (*SHARED, *alone)
    figures = []
    shared = [name for name in SHARED if name in chosen]
    if shared:
        figures += _side_by_side(broker, shared, total_bytes, console)
    for name, case in alone.items():
        if name in chosen:
            figures += _told(name, case(), console)
    for name, sizes in SPARK_RECORDS.items():
        if name in chosen:
            figures += _spark(name, records or sizes, value_bytes, console)
    if SPARK_BATCHES in chosen:
        from bench.spark_batches import spark_batches  # the others need no Spark

        figures += _told(SPARK_BATCHES, spark_batches(), console)
    title = f"{total_bytes // MEGABYTE} MB a case, broker: {broker}, Python {platform.python_version()}"
    show(figures, title, console)
    console.print(charts(figures), highlight=False, markup=False, soft_wrap=True)
    if json_path:
        save(figures, json_path)


def _told(name: str, figures: Iterable[Figure], console: Console) -> list[Figure]:
    """The figures of a case, each told when it is there."""
    found = []
    with console.status(f"{name} ..."):
        for figure in figures:
            console.print(line(figure), highlight=False, markup=False, soft_wrap=True)
            found.append(figure)
    return found


def _spark(name: str, sizes: Sequence[int], value_bytes: int, console: Console) -> list[Figure]:
    from bench.spark import source_steps, spark, spark_sources, steps  # the others need no Spark

    case, count = (spark, steps) if name == SPARK else (spark_sources, source_steps)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    found = []
    with Progress(*columns, console=console) as progress:
        bar = progress.add_task(name, total=count(sizes), completed=-1)
        for figure in case(sizes, value_bytes, lambda step: progress.update(bar, advance=1, description=step)):
            progress.print(line(figure), highlight=False, markup=False, soft_wrap=True)
            found.append(figure)
        progress.update(bar, advance=1, description=name)
    return found


def _side_by_side(broker: str, names: Sequence[str], total_bytes: int, console: Console) -> list[Figure]:
    figures: list[Figure] = []
    with _open_broker(broker) as port, open_targets(port) as targets:
        for name in names:
            # A real Kafka closes the connection on the old versions: only kproxy can be measured.
            able = targets[-1:] if broker == "kafka" and name in OLD else targets
            figures += _told(name, SHARED[name](able, total_bytes), console)
    return figures


@contextlib.contextmanager
def _open_broker(kind: str) -> Iterator[int]:
    if kind == "sink":
        with open_sink() as port:
            yield port
        return
    with RealKafka(jvm_options=("-Xmx2g", "-XX:+UseG1GC")) as kafka:
        address = ("127.0.0.1", kafka.ports[0])
        leader(address)  # makes the topics
        for topic in payloads.RECORD_BYTES:  # something to fetch
            call = payloads.produce_call(topic, payloads.MODERN_PRODUCE)
            load.produce(address, [call], PREFILL_BYTES, window=cases.WINDOW)
        yield kafka.ports[0]


if __name__ == "__main__":
    main()
