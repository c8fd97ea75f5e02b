"""Transactions that brokers decide: the same work directly, relayed by kproxy, and asked for by kproxy.

Three brokers, replication 3, min ISR 2. A read_committed consumer reads at the brokers, whatever way the records went.
The ways take turns, a few transactions each, so that what else the machine does falls on all alike; a ratio is the
median of what the turns show. CPU time is of kproxy.
"""

import contextlib
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from uuid import uuid4

from bench.homes_ways import SECONDS, ByHand, PerRequest, Plain, Transactional, Way, many, one_each
from bench.load import quantile
from bench.processes import Program, free_port, running
from bench.report import Figure
from bench.watcher import Watcher
from kproxy.testing.cluster_client import ClusterClient
from kproxy.testing.kafka import REPLICATED, RealKafka

PARTITIONS: Final = (1, 10, 50)
ROUNDS: Final = 8
BLOCK: Final = 8
RECORDS: Final = 50_000
"""Of a large transaction."""
_RECORD: Final = bytes(100)
#: So that batches are full.
_LINGER_MS: Final = 50
_VISIBLE_RATIO: Final = 1.3
_COST_RATIO: Final = 1.05
_DIRECT: Final = "direct"
_RELAYED: Final = "relayed"
_FENCED: Final = "fenced"
_BY_HAND: Final = "by hand"
_PER_REQUEST: Final = "per request"
_PLAIN, _PLAIN_OLD = "plain", "plain of 0.10"
_BASES: Final = {_RELAYED: _PLAIN, _FENCED: _PLAIN, _BY_HAND: _PLAIN_OLD}
"""What a record costs without transactions, by way."""
_PORTS: Final = 10


@dataclass
class Turn:
    """What one way came to in one turn: seconds of each commit, until each was visible, and CPU of a transaction."""

    commits: list[float] = field(default_factory=list)
    visible: list[float] = field(default_factory=list)
    cpu_seconds: float = 0.0


@dataclass(frozen=True)
class _Stage:
    """A cluster and a kproxy before it, and the topic of this part of the case."""

    direct: str
    program: Program
    control: Path
    partitions: int
    topic: str

    @property
    def through(self) -> str:
        """The bootstrap servers of kproxy."""
        return f"127.0.0.1:{self.program.port}"


def homes(counts: Sequence[int] = PARTITIONS, rounds: int = ROUNDS, records: int = RECORDS) -> Iterator[Figure]:
    """All ways at each number of partitions; figures as they come."""
    with tempfile.TemporaryDirectory(prefix="kproxy-bench-") as directory:
        control = Path(directory, "control.sock")
        with RealKafka(brokers=3, config=REPLICATED) as kafka, _kproxy(kafka.bootstrap, control) as program:
            for count in counts:
                stage = _Stage(kafka.bootstrap, program, control, count, f"bench-homes-{count}")
                with ClusterClient(kafka.bootstrap) as client:
                    client.create_topic(stage.topic, count, 3)
                    client.create_topic(f"{stage.topic}-large", count, 3)
                yield from _waits(stage, rounds)
                yield from _costs(stage, rounds // 2 + 1, records)


@contextlib.contextmanager
def _kproxy(bootstrap: str, control: Path) -> Iterator[Program]:
    port = free_port()
    command = ["-m", "kproxy", "run", "--bootstrap-servers", bootstrap, "--listen", f"127.0.0.1:{port}"]
    first = free_port()
    command += ["--broker-ports", f"{first}-{min(first + _PORTS, 65_535)}", "--http", "off", "--log-level", "error"]
    command += ["--transactions-home", "fenced-*=broker-fenced,relayed-*=auto,*=broker"]
    command += ["--control-socket", str(control), "--per-request", "each-*", "--instance-id", "bench"]
    with running("kproxy", port, *command) as program:
        yield program


# -- how long a transaction takes


def _waits(stage: _Stage, rounds: int) -> list[Figure]:
    watcher = Watcher(stage.direct, stage.topic, stage.partitions)
    try:
        with _small_ways(stage) as ways:
            for way in ways.values():
                _turn(way, stage, watcher)  # connections, leaders, code that has not run yet
            turns: dict[str, list[Turn]] = {name: [] for name in ways}
            for number in range(rounds):
                for name in _rotated(list(ways), number):
                    turns[name].append(_turn(ways[name], stage, watcher))
    finally:
        watcher.close()
    named = _named(stage.partitions)
    return [figure for name in ways if name != _DIRECT for figure in _of_way(name, named, turns)]


@contextlib.contextmanager
def _small_ways(stage: _Stage) -> Iterator[Mapping[str, Way]]:
    client, topic = uuid4().hex, stage.topic
    address = ("127.0.0.1", stage.program.port)
    with PerRequest.open(address, topic, f"each-{client}") as per_request:
        yield {
            _DIRECT: Transactional(stage.direct, topic, f"direct-{client}"),
            _RELAYED: Transactional(stage.through, topic, f"relayed-{client}"),
            _FENCED: Transactional(stage.through, topic, f"fenced-{client}"),
            _BY_HAND: ByHand(stage.through, topic, f"hand-{client}", stage.control),
            _PER_REQUEST: per_request,
        }


def _turn(way: Way, stage: _Stage, watcher: Watcher) -> Turn:
    """One transaction after another, first until each is committed, then until each is visible."""
    turn = Turn()
    before = stage.program.cpu_seconds()
    for _ in range(BLOCK):
        name, began = _transact(way, stage.partitions)
        turn.commits.append(time.perf_counter() - began)
    watcher.visible_at(name, SECONDS)
    for _ in range(BLOCK):
        name, began = _transact(way, stage.partitions)
        turn.visible.append(watcher.visible_at(name, SECONDS) - began)
    turn.cpu_seconds = (stage.program.cpu_seconds() - before) / (2 * BLOCK)
    return turn


def _transact(way: Way, partitions: int) -> tuple[bytes, float]:
    name, write = one_each(partitions)
    began = time.perf_counter()
    way.transact(write)
    return name, began


def _of_way(name: str, named: str, turns: Mapping[str, Sequence[Turn]]) -> list[Figure]:
    ours, theirs = ([turn.visible for turn in turns[way]] for way in (name, _DIRECT))
    ratio = statistics.median(
        statistics.median(own) / statistics.median(native) for own, native in zip(ours, theirs, strict=True)
    )
    goal, what = f"<= {_VISIBLE_RATIO} x direct: {ratio:.2f}", f"begin to visible, {named}, {name}"
    rates = [_rate(turns[way]) for way in (_DIRECT, name)]
    cpu = statistics.median(turn.cpu_seconds for turn in turns[name]) * 1e3
    return [
        Figure(f"{what}: p50", "ms", _ms(theirs, 0.5), None, _ms(ours, 0.5), goal, ratio <= _VISIBLE_RATIO),
        Figure(f"{what}: p99", "ms", _ms(theirs, 0.99), None, _ms(ours, 0.99)),
        Figure(f"transactions, {named}, {name}", "1/s", rates[0], None, rates[1]),
        Figure(f"CPU of a transaction, {named}, {name}", "ms", None, None, cpu),
    ]


def _rate(turns: Sequence[Turn]) -> float:
    """Transactions a second: the median turn's."""
    return statistics.median(len(turn.commits) / sum(turn.commits) for turn in turns)


def _ms(turns: Sequence[Sequence[float]], fraction: float) -> float:
    return quantile(sorted(value for turn in turns for value in turn), fraction) * 1e3


# -- what a record costs


def _costs(stage: _Stage, rounds: int, records: int) -> list[Figure]:
    ways = _large_ways(stage)
    costs: dict[str, list[float]] = {name: [] for name in ways}
    write = many(records, stage.partitions, _RECORD)
    for way in ways.values():
        way.transact(write)  # as above
    for number in range(rounds):
        for name in _rotated(list(ways), number):
            before = stage.program.cpu_seconds()
            ways[name].transact(write)
            costs[name].append((stage.program.cpu_seconds() - before) / records * 1e6)
    figures = []
    for name, values in costs.items():
        goal, met = "", None
        if name in _BASES:
            base = _BASES[name]
            ratio = statistics.median(own / plain for own, plain in zip(values, costs[base], strict=True))
            goal, met = f"<= {_COST_RATIO} x {base}: {ratio:.2f}", ratio <= _COST_RATIO
        what = f"CPU of a record in {records:,}, {_named(stage.partitions)}, {name}"
        figures.append(Figure(what, "µs", None, None, statistics.median(values), goal, met))
    return figures


def _large_ways(stage: _Stage) -> Mapping[str, Way]:
    client, topic, linger = uuid4().hex, f"{stage.topic}-large", _LINGER_MS
    return {
        _PLAIN: Plain(stage.through, topic, f"plain-{client}", old=False, linger_ms=linger),
        _PLAIN_OLD: Plain(stage.through, topic, f"old-{client}", old=True, linger_ms=linger),
        _RELAYED: Transactional(stage.through, topic, f"relayed-{client}", linger_ms=linger),
        _FENCED: Transactional(stage.through, topic, f"fenced-{client}", linger_ms=linger),
        _BY_HAND: ByHand(stage.through, topic, f"hand-{client}", stage.control, linger_ms=linger),
    }


def _rotated(names: Sequence[str], number: int) -> list[str]:
    """In another order each time: none always comes after the same one."""
    at = number % len(names)
    return [*names[at:], *names[:at]]


def _named(partitions: int) -> str:
    return f"{partitions} partition{'s' if partitions > 1 else ''}"
