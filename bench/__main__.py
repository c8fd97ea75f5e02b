"""`python -m bench`: run the cases and print the table."""

import contextlib
import platform
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import click
from rich.console import Console

from bench import cases, load, payloads
from bench.doubts import doubts
from bench.lost_answers import lost_answers
from bench.processes import raise_file_limit
from bench.recovery import recovery
from bench.report import Figure, save, show
from bench.targets import Target, leader, open_sink, open_targets
from bench.transactions import transactions
from kproxy.testing.kafka import RealKafka

MEGABYTE = 1_000_000
FULL_MEGABYTES, QUICK_MEGABYTES = 512, 128
PREFILL_BYTES = 4 << 20
_FILE_COLUMNS = 120

SHARED: dict[str, Callable[[Sequence[Target], int], list[Figure]]] = {
    "v2-produce": cases.v2_produce,
    "v2-fetch": cases.v2_fetch,
    "old-produce": cases.old_produce,
    "old-fetch": cases.old_fetch,
    "latency": cases.latency,
}
SIZED: dict[str, Callable[[int], list[Figure]]] = {"doubts": doubts, "lost-answers": lost_answers}
"""With a real Kafka of their own."""
ALONE: dict[str, Callable[[], list[Figure]]] = {
    "memory": cases.memory,
    "stall": cases.stalled_broker,
    "recovery": recovery,
    "transactions": transactions,
}
OLD = ("old-produce", "old-fetch")


@click.command()
@click.option("--quick", is_flag=True, help=f"{QUICK_MEGABYTES} MB for each case instead of {FULL_MEGABYTES}.")
@click.option("--megabytes", type=click.IntRange(1), help="Payload of each v2 case; the old formats take a quarter.")
@click.option(
    "--broker",
    type=click.Choice(["sink", "kafka"]),
    default="sink",
    show_default=True,
    help="A broker that only answers, so that the proxy is the bottleneck; or a real Kafka 4.3.0.",
)
@click.option(
    "--only", type=click.Choice([*SHARED, *SIZED, *ALONE]), multiple=True, help="Only these cases; may be repeated."
)
@click.option("--json", "json_path", type=click.Path(path_type=Path), help="Write the figures to this file too.")
def main(quick: bool, megabytes: int | None, broker: str, only: tuple[str, ...], json_path: Path | None) -> None:
    """Measure direct, a bare trio relay and kproxy side by side, CPU seconds of the process in between from /proc.

    GB and MB are powers of ten, of payload. The exit status does not depend on the figures.
    """
    raise_file_limit()
    console = Console(width=None if sys.stdout.isatty() else _FILE_COLUMNS)
    chosen = only or (*SHARED, *SIZED, *ALONE)
    total_bytes = (megabytes or (QUICK_MEGABYTES if quick else FULL_MEGABYTES)) * MEGABYTE
    figures = []
    if any(name in SHARED for name in chosen):
        figures += _side_by_side(broker, [name for name in chosen if name in SHARED], total_bytes, console)
    alone: dict[str, Callable[[], list[Figure]]] = {name: partial(case, total_bytes) for name, case in SIZED.items()}
    for name, case in (alone | ALONE).items():
        if name in chosen:
            with console.status(f"{name} ..."):
                figures += case()
    title = f"{total_bytes // MEGABYTE} MB a case, broker: {broker}, Python {platform.python_version()}"
    show(figures, title, console)
    if json_path:
        save(figures, json_path)


def _side_by_side(broker: str, names: Sequence[str], total_bytes: int, console: Console) -> list[Figure]:
    figures: list[Figure] = []
    with _open_broker(broker) as port, open_targets(port) as targets:
        for name in names:
            # A real Kafka closes the connection on the old versions: only kproxy can be measured.
            able = targets[-1:] if broker == "kafka" and name in OLD else targets
            with console.status(f"{name} ..."):
                figures += SHARED[name](able, total_bytes)
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
            load.produce(address, call, PREFILL_BYTES, window=cases.WINDOW)
        yield kafka.ports[0]


if __name__ == "__main__":
    main()
