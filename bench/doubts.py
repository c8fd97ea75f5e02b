"""What producer ids and doubts cost, in CPU, where no retry comes: on the way that every batch takes."""

import contextlib
import select
import statistics
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from bench import load, payloads
from bench.cases import WINDOW
from bench.processes import free_port
from bench.report import Figure
from bench.targets import Target, leader, open_kproxy
from kproxy.testing.cluster_client import ClusterClient
from kproxy.testing.kafka import RealKafka

DOUBTED_PARTITIONS: Final = 32
TURNS: Final = 24
CPU_RATIO: Final = 1.05
_TOPIC: Final = "bench-doubts"
_JVM: Final = ("-Xmx2g", "-XX:+UseG1GC")
_GIGABYTE: Final = 1e9
_PATIENCE_SECONDS: Final = 20.0
_OFF, _ON, _DOUBTED = "off", "on", "doubted"


@dataclass(frozen=True)
class _Way:
    target: Target
    http: str


def doubts(total_bytes: int) -> list[Figure]:
    """CPU for each GB of v2 produce without and with producer ids, and with doubts on partitions of another topic.

    Three kproxies take turns before one real Kafka, so that what else the machine does falls on all alike.
    """
    with RealKafka(jvm_options=_JVM) as kafka, contextlib.ExitStack() as stack:
        with ClusterClient(kafka.bootstrap) as client:
            client.create_topic(_TOPIC, DOUBTED_PARTITIONS)
        leader(("127.0.0.1", kafka.ports[0]))  # makes the topics
        options = {_OFF: ("--idempotence-enable", "false"), _ON: (), _DOUBTED: ("--retry-window-ms", "86400000")}
        ways = {name: stack.enter_context(_way(kafka, name, *more)) for name, more in options.items()}
        pending = _raise_doubts(ways[_DOUBTED])
        costs = _take_turns({name: way.target for name, way in ways.items()}, total_bytes)
    return _figures(costs, pending)


@contextlib.contextmanager
def _way(kafka: RealKafka, name: str, *options: str) -> Iterator[_Way]:
    port = free_port()
    own = ("--instance-id", f"bench-{name}", "--http", f"127.0.0.1:{port}")
    with open_kproxy(kafka.ports[0], *own, *options) as target:
        yield _Way(target, f"http://127.0.0.1:{port}/metrics")


def _raise_doubts(way: _Way) -> int:
    """Hang up on answers that nobody has read, as the producer that the load is; return how many batches are in doubt.

    Raises:
        LoadError: kproxy has no doubts.
    """
    frame = payloads.many_partitions_frame(_TOPIC, DOUBTED_PARTITIONS, int(time.time() * 1000))
    with load.Connection(way.target.address) as connection:
        connection.send(frame)
        select.select([connection.socket], [], [], _PATIENCE_SECONDS)
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while time.monotonic() < deadline:
        if pending := _in_doubt(way):
            return pending
        time.sleep(0.05)
    raise load.LoadError("an answer was not read, and kproxy has no doubt about it")


def _in_doubt(way: _Way) -> int:
    with urllib.request.urlopen(way.http, timeout=5) as page:
        lines = page.read().decode().splitlines()
    return int(float(next(line.split()[1] for line in lines if line.startswith("kproxy_batches_in_doubt "))))


def _take_turns(targets: dict[str, Target], total_bytes: int) -> dict[str, list[float]]:
    """CPU seconds for each GB, turn by turn."""
    call = payloads.produce_call(payloads.LARGE, payloads.MODERN_PRODUCE)
    costs: dict[str, list[float]] = {name: [] for name in targets}
    names = list(targets)
    for turn in range(TURNS):
        # Each is as often the first as the last.
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            program = targets[name].program
            assert program is not None
            before = program.cpu_seconds()
            transfer = load.produce(targets[name].address, [call], total_bytes // TURNS, window=WINDOW, renames=False)
            costs[name].append((program.cpu_seconds() - before) / transfer.payload_bytes * _GIGABYTE)
    return costs


def _figures(costs: dict[str, list[float]], pending: int) -> list[Figure]:
    named = {_ON: "producer ids, no doubts", _DOUBTED: f"{pending} in doubt elsewhere"}
    figures = [Figure("v2 produce, no producer ids: CPU", "s/GB", None, None, statistics.median(costs[_OFF]))]
    for name, text in named.items():
        # Medians of what was measured side by side: one turn that others disturbed does not count.
        ratio = statistics.median(one / other for one, other in zip(costs[name], costs[_OFF], strict=True))
        goal = f"<= {CPU_RATIO} x without: {ratio:.2f}"
        cost = statistics.median(costs[name])
        figures.append(Figure(f"v2 produce, {text}: CPU", "s/GB", None, None, cost, goal, ratio <= CPU_RATIO))
    return figures
