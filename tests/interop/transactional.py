"""Released clients with transactions, and those that only read: how each is set up, and what it calls a fencing."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from tests.interop.catalog import CLIENTS
from tests.support.clients import Command, go_driver, java_driver, node_driver, python_driver

_CLASSIC: Final = {"session.timeout.ms": "10000", "heartbeat.interval.ms": "2000"}
_EXTRAS: Final = ("lz4==4.4.5", "python-snappy==0.7.3", "zstandard==0.25.0", "six==1.17.0")


@dataclass(frozen=True)
class Transactional:
    """A client whose producer has transactions.

    `fenced` is a pattern that finds each error by which it tells that another producer has taken its transactional id.
    `committed` and `uncommitted` are the settings of a consumer that reads committed records only, or all.
    """

    name: str
    title: str
    """In docs/clients.md."""
    install: Callable[[], Command]
    fenced: str
    committed: dict[str, Any]
    uncommitted: dict[str, Any]
    options: dict[str, Any] = field(default_factory=dict)
    reads_native: bool = True
    """Whether Kafka 4.4.0 serves all that its consumer sends."""
    soon_forgotten: bool = True
    """Whether its group gives a killed member's partitions to others soon: those of KIP-848 wait for 45 s."""


def _java(version: str, name: str = "", settings: str = "", **more: Any) -> Transactional:
    return Transactional(
        f"java-{version}{name}",
        f"Java {version}{settings}",
        lambda: java_driver(f"org.apache.kafka:kafka-clients:{version}", "java", "java011"),
        r"ProducerFencedException|InvalidProducerEpochException",
        {"isolation.level": "read_committed", **(more.pop("group", _CLASSIC))},
        {},
        {"client": "Transactional"},
        **more,
    )


def _confluent(release: str) -> Transactional:
    return Transactional(
        f"librdkafka-{release}",
        f"librdkafka {release}",
        lambda: python_driver("confluent.py", f"confluent-kafka=={release}"),
        r"_FENCED|INVALID_PRODUCER_EPOCH|PRODUCER_FENCED",
        {"isolation.level": "read_committed", "session.timeout.ms": 10_000},
        {"isolation.level": "read_uncommitted"},
    )


def _sarama(release: str, modfile: str, *tags: str, reads_native: bool = True) -> Transactional:
    return Transactional(
        f"sarama-{release}",
        f"sarama {release}, `Version` 2.8.1",
        lambda: go_driver(modfile, *tags),
        # Error 90 has no name in it.
        "epoch|Error code = 90|fenced",
        {"isolation": "read_committed"},
        {},
        {"client": "sarama", "version": "2.8.1"},
        reads_native,
    )


TRANSACTIONAL: Final = (
    *map(_java, ("0.11.0.3", "1.1.1", "2.0.1", "2.8.2", "3.9.1", "4.3.0", "4.4.0")),
    _java(
        "4.4.0",
        "-consumer-protocol",
        ", `group.protocol=consumer`",
        group={"group.protocol": "consumer"},
        soon_forgotten=False,
    ),
    _confluent("2.16.1"),
    _confluent("2.0.2"),
    Transactional(
        "kafka-python-3.0.12",
        "kafka-python 3.0.12",
        lambda: python_driver("kafka_python.py", "kafka-python==3.0.12", *_EXTRAS),
        "Fenced|Epoch",
        {"isolation_level": "read_committed", "session_timeout_ms": 10_000, "heartbeat_interval_ms": 2000},
        {},
    ),
    Transactional(
        "aiokafka-0.14.0",
        "aiokafka 0.14.0",
        lambda: python_driver("aiokafka_driver.py", "aiokafka==0.14.0", "cramjam==2.11.0"),
        "Fenced|Epoch",
        {"isolation_level": "read_committed", "session_timeout_ms": 10_000, "heartbeat_interval_ms": 2000},
        {},
    ),
    _sarama("1.61.1", "go.mod"),
    # Its consumers commit by OffsetCommit v1.
    _sarama("1.37.2", "middle.mod", "middle", reads_native=False),
    Transactional(
        "franz-go-1.22.2",
        "franz-go 1.22.2",
        lambda: go_driver("go.mod"),
        "FENCED|EPOCH",
        {"isolation": "read_committed"},
        {},
        {"client": "franz-go"},
    ),
    Transactional(
        "kafkajs-2.2.4",
        "kafkajs 2.2.4",
        node_driver,
        "FENCED|EPOCH",
        {"readUncommitted": False},
        {"readUncommitted": True},
        # It looks for its group's offsets before it fences what it left open, which then ends by its time-out.
        {"client": "kafkajs", "producer": {"transactionTimeout": 15_000}},
    ),
)


@dataclass(frozen=True)
class Reader:
    """A consumer that asks for committed records, or that cannot ask and gets nothing else from kproxy."""

    name: str
    install: Callable[[], Command]
    options: dict[str, Any]
    native: bool
    """Whether it hides what was aborted by itself, so that it needs no kproxy."""


def _able(client: Transactional) -> Reader:
    consumer = {**client.options.get("consumer", {}), **client.committed}
    return Reader(client.name, client.install, {**client.options, "consumer": consumer}, client.reads_native)


def _unable(name: str, consumer: dict[str, Any] | None = None) -> Reader:
    client = next(client for client in CLIENTS if client.name == name)
    options = {**client.options, "consumer": {**client.options.get("consumer", {}), **(consumer or {})}}
    return Reader(name, client.install, options, native=False)


READERS: Final = (
    *map(_able, TRANSACTIONAL),
    _unable("kafka-go-0.4.51", {"isolation": "read_committed"}),
    _unable("java-0.9.0.1"),
    _unable("java-0.10.2.2"),
    _unable("kafka-python-1.4.7-pinned-0.9"),
    _unable("kafka-python-1.4.7-pinned-0.10"),
    _unable("kafka-python-1.4.7"),
    _unable("kafka-python-2.0.2-pinned-0.10.1"),
    _unable("kafka-python-2.0.2"),
    _unable("librdkafka-2.16.1-fallback-0.9.0.1"),
    _unable("sarama-1.19.0-0.10.2.1"),
    _unable("kafka-node-5.0.0"),
    _unable("no-kafka-3.4.3"),
)
"""Of those without transactions: some that fetch by versions below 4, which know no isolation level; kafka-python 1 and
2, which never ask for one; and kafka-go, which asks for committed records and then shows all that it gets."""
