"""Transactions over many partitions: through kproxy's own coordinator and natively, the same librdkafka script.

Three brokers, replication 3, min ISR 2. Each transaction writes one record to each partition. A read_committed consumer
reads beside: a transaction is visible once it has all its records. One way at one number of partitions is a cell, which
ends when its time has passed: then its figures are of what was done until then, and say so.
"""

import contextlib
import statistics
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from confluent_kafka import KafkaException, Producer

from bench.processes import free_port, running
from bench.report import Figure
from bench.watcher import Watcher
from kproxy.testing.cluster_client import ClusterClient
from kproxy.testing.kafka import REPLICATED, RealKafka

PARTITIONS: Final = (1, 10, 50, 200)
CELL_SECONDS: Final = 60.0
"""The most that a cell takes by default."""
_WARM: Final = 5
_TIMED: Final = 40
_WATCHED: Final = 30
_HALF: Final = 0.5
_FROM_HERE: Final = 10


class _Clock:
    """Ends a cell."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._began = time.monotonic()

    def left(self, share: float = 1.0) -> float:
        """Seconds for the next step, where it must end within a share of the whole; TimeoutError if there are none."""
        left = self._began + share * self._seconds - time.monotonic()
        if left <= 0:
            raise TimeoutError
        return left


@dataclass
class Run:
    """What one way came to at one number of partitions: seconds of each commit, and until each was visible."""

    commits: list[float] = field(default_factory=list)
    visible: list[float] = field(default_factory=list)

    @property
    def rate(self) -> float | None:
        """Transactions a second: they run one after another."""
        return len(self.commits) / sum(self.commits) if self.commits else None

    @property
    def commit_ms(self) -> float | None:
        """The median in ms."""
        return 1000 * statistics.median(self.commits) if self.commits else None

    @property
    def visible_ms(self) -> float | None:
        """The median in ms."""
        return 1000 * statistics.median(self.visible) if self.visible else None

    def lacks(self, name: str) -> str:
        """What is missing; nothing if it came to its end."""
        if (len(self.commits), len(self.visible)) == (_TIMED, _WATCHED):
            return ""
        return f"{name}: {len(self.commits)} of {_TIMED} committed, {len(self.visible)} of {_WATCHED} seen in time"


def transactions(counts: Sequence[int] = PARTITIONS, cell_seconds: float = CELL_SECONDS) -> Iterator[Figure]:
    """Both ways take turns at each number of partitions, for ``cell_seconds`` each at most; figures as they come."""
    with RealKafka(brokers=3, config=REPLICATED) as kafka, _kproxy(kafka.bootstrap) as through:
        for count in counts:
            yield from _figures(kafka.bootstrap, through, count, cell_seconds)


@contextlib.contextmanager
def _kproxy(bootstrap: str) -> Iterator[str]:
    port = free_port()
    command = ["-m", "kproxy", "run", "--bootstrap-servers", bootstrap, "--listen", f"127.0.0.1:{port}"]
    options = ["--transactions-home", "kproxy", "--http", "off", "--log-level", "error", "--broker-ports", _ports()]
    with running("kproxy", port, *command, *options):
        yield f"127.0.0.1:{port}"


def _ports() -> str:
    first = free_port()
    return f"{first}-{min(first + _FROM_HERE, 65_535)}"


def _figures(direct: str, through: str, partitions: int, seconds: float) -> list[Figure]:
    topic = f"bench-transactions-{partitions}"
    with ClusterClient(direct) as client:
        client.create_topic(topic, partitions, 3)
    native, own = (measure(bootstrap, topic, partitions, seconds) for bootstrap in (direct, through))
    named = f"{partitions} partition{'s' if partitions > 1 else ''}"
    goal, met = _goal(native, own, partitions)
    note = "; ".join(filter(None, (native.lacks("direct"), own.lacks("kproxy"))))
    return [
        Figure(f"transactions, {named}", "1/s", native.rate, None, own.rate, note=note),
        Figure(f"begin to commit, {named}, p50", "ms", native.commit_ms, None, own.commit_ms, note=note),
        Figure(f"begin to visible, {named}, p50", "ms", native.visible_ms, None, own.visible_ms, goal, met, note),
    ]


def _goal(native: Run, own: Run, partitions: int) -> tuple[str, bool | None]:
    """What is to be reached in begin-to-visible, and whether it is; None where the native way says nothing."""
    if partitions < _FROM_HERE:
        return "", None
    ahead = partitions > _FROM_HERE
    goal = "less than native" if ahead else "no more than native"
    if native.visible_ms is None:
        return goal, None
    if own.visible_ms is None:
        return goal, False
    return goal, own.visible_ms < native.visible_ms if ahead else own.visible_ms <= native.visible_ms


def measure(bootstrap: str, topic: str, partitions: int, seconds: float) -> Run:
    """A cell: one way at one number of partitions. What is not done within ``seconds`` is left out."""
    run, clock = Run(), _Clock(seconds)
    options = {"bootstrap.servers": bootstrap, "transactional.id": uuid.uuid4().hex, "linger.ms": 0, "log_level": 0}
    producer = Producer(options)
    with contextlib.suppress(TimeoutError, KafkaException):
        producer.init_transactions(clock.left())
        _commits(run, clock, producer, topic, partitions)
        _visible(run, clock, Watcher(bootstrap, topic, partitions), producer, topic, partitions)
    producer.purge()
    return run


def _commits(run: Run, clock: _Clock, producer: Producer, topic: str, partitions: int) -> None:
    """Times commits for half of the cell's time at most, so that a slow way comes to be watched, too."""
    with contextlib.suppress(TimeoutError):
        for _ in range(_WARM):
            clock.left(_HALF)
            _transact(producer, topic, partitions, clock)
        for _ in range(_TIMED):
            clock.left(_HALF)
            _, began = _transact(producer, topic, partitions, clock)
            run.commits.append(time.perf_counter() - began)


def _visible(run: Run, clock: _Clock, watcher: Watcher, producer: Producer, topic: str, partitions: int) -> None:
    try:
        name, _ = _transact(producer, topic, partitions, clock)
        watcher.visible_at(name, clock.left())
        for _ in range(_WATCHED):
            name, began = _transact(producer, topic, partitions, clock)
            run.visible.append(watcher.visible_at(name, clock.left()) - began)
    finally:
        watcher.close()


def _transact(producer: Producer, topic: str, partitions: int, clock: _Clock) -> tuple[bytes, float]:
    """One record to each partition: the transaction's name and when it began. KafkaException if the time has passed."""
    name = uuid.uuid4().bytes
    began = time.perf_counter()
    producer.begin_transaction()
    for partition in range(partitions):
        producer.produce(topic, name, partition=partition)
    producer.commit_transaction(clock.left())
    return name, began
