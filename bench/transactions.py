"""Transactions over many partitions: through kproxy's own coordinator and natively, the same librdkafka script.

Three brokers, replication 3, min ISR 2. Each transaction writes one record to each partition. A read_committed consumer
reads beside: a transaction is visible once it has all its records.
"""

import contextlib
import statistics
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from confluent_kafka import Consumer, Producer, TopicPartition

from bench.processes import free_port, running
from bench.report import Figure
from kproxy.testing.client import ClusterClient
from kproxy.testing.kafka import RealKafka

PARTITIONS: Final = (1, 10, 50, 200)
_REPLICATED: Final = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
}
_WARM: Final = 5
_TIMED: Final = 40
_WATCHED: Final = 30
_PATIENCE_SECONDS: Final = 30.0
_FROM_HERE: Final = 10


class _Run(NamedTuple):
    """Of one way at one number of partitions: transactions a second, and medians in ms."""

    rate: float
    commit_ms: float
    visible_ms: float


class _Watcher:
    """Counts what a read_committed consumer has of each transaction, in a thread of its own."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        """Reads from the partitions' ends on."""
        options = {
            "bootstrap.servers": bootstrap,
            "group.id": uuid.uuid4().hex,
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "log_level": 0,
        }
        self._consumer = Consumer(options)
        self._consumer.assign([TopicPartition(topic, index, 0) for index in range(partitions)])
        self._partitions = partitions
        self._seen: dict[bytes, int] = {}
        self._whole: dict[bytes, float] = {}
        self._changed = threading.Condition()
        self._stop = False
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        while not self._stop:
            for message in self._consumer.consume(num_messages=500, timeout=0.05):
                if message.error() is None:
                    self._count(message.value() or b"")
        self._consumer.close()

    def _count(self, name: bytes) -> None:
        self._seen[name] = self._seen.get(name, 0) + 1
        if self._seen[name] == self._partitions:
            with self._changed:
                self._whole[name] = time.perf_counter()
                self._changed.notify_all()

    def visible_at(self, name: bytes) -> float:
        """When all records of a transaction had come; TimeoutError if they do not."""
        with self._changed:
            if not self._changed.wait_for(lambda: name in self._whole, _PATIENCE_SECONDS):
                raise TimeoutError(f"{self._seen.get(name, 0)} of {self._partitions} records are visible")
            return self._whole[name]

    def close(self) -> None:
        """Ends the thread."""
        self._stop = True
        self._thread.join()


def transactions(counts: Sequence[int] = PARTITIONS) -> list[Figure]:
    """Both ways take turns at each number of partitions."""
    with RealKafka(brokers=3, config=_REPLICATED) as kafka, _kproxy(kafka.bootstrap) as through:
        return [figure for count in counts for figure in _figures(kafka.bootstrap, through, count)]


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


def _figures(direct: str, through: str, partitions: int) -> list[Figure]:
    topic = f"bench-transactions-{partitions}"
    with ClusterClient(direct) as client:
        client.create_topic(topic, partitions, 3)
    native, own = (_measure(bootstrap, topic, partitions) for bootstrap in (direct, through))
    named = f"{partitions} partition{'s' if partitions > 1 else ''}"
    goal, met = "", None
    if partitions >= _FROM_HERE:
        ahead = partitions > _FROM_HERE
        goal = "less than native" if ahead else "no more than native"
        met = own.visible_ms < native.visible_ms if ahead else own.visible_ms <= native.visible_ms
    return [
        Figure(f"transactions, {named}", "1/s", native.rate, None, own.rate),
        Figure(f"begin to commit, {named}, p50", "ms", native.commit_ms, None, own.commit_ms),
        Figure(f"begin to visible, {named}, p50", "ms", native.visible_ms, None, own.visible_ms, goal, met),
    ]


def _measure(bootstrap: str, topic: str, partitions: int) -> _Run:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": uuid.uuid4().hex, "linger.ms": 0})
    producer.init_transactions(_PATIENCE_SECONDS)
    for _ in range(_WARM):
        _transact(producer, topic, partitions)
    began = time.perf_counter()
    commits = [_transact(producer, topic, partitions)[1] for _ in range(_TIMED)]
    rate = _TIMED / (time.perf_counter() - began)
    watcher = _Watcher(bootstrap, topic, partitions)
    try:
        name, _, _ = _named(producer, topic, partitions)
        watcher.visible_at(name)
        visible = []
        for _ in range(_WATCHED):
            name, start, _ = _named(producer, topic, partitions)
            visible.append(watcher.visible_at(name) - start)
    finally:
        watcher.close()
    return _Run(rate, 1000 * statistics.median(commits), 1000 * statistics.median(visible))


def _transact(producer: Producer, topic: str, partitions: int) -> tuple[float, float]:
    """When it began, and the seconds until it was committed."""
    _, start, took = _named(producer, topic, partitions)
    return start, took


def _named(producer: Producer, topic: str, partitions: int) -> tuple[bytes, float, float]:
    name = uuid.uuid4().bytes
    start = time.perf_counter()
    producer.begin_transaction()
    for partition in range(partitions):
        producer.produce(topic, name, partition=partition)
    producer.commit_transaction(_PATIENCE_SECONDS)
    return name, start, time.perf_counter() - start
