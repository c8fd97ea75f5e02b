"""Transactions of a 0.9-protocol producer, and a broker that compacts the topic: Kafka 4.4.0, its cleaner made to work.

Compaction keeps the last record of each key. The broker's cleaner leaves out what its own coordinator aborted; of what
kproxy aborted it knows nothing.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from kproxy.client import ControlClient
from kproxy.testing.cluster_client import ClusterClient
from kproxy.testing.kafka import RealKafka
from tests.interop.proxy import KproxyProcess
from tests.support.patience import PATIENCE_S, eventually

pytestmark = [pytest.mark.kafka, pytest.mark.java]
_KEY: Final = "account"
#: Each append begins a segment, and all but the last one are cleaned as soon as the cleaner looks.
_COMPACTED: Final = {"cleanup.policy": "compact", "segment.ms": "1", "min.cleanable.dirty.ratio": "0.0001"}
_OLD: Final = {"api.version.request": False, "broker.version.fallback": "0.9.0.1", "acks": "all", "retries": 0}


def _configure(bootstrap: str, resource: ConfigResource) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(30)


def _settings(kind: ResourceType, name: str, settings: dict[str, str | None]) -> ConfigResource:
    delete, put = AlterConfigOpType.DELETE, AlterConfigOpType.SET
    entries = [
        ConfigEntry(key, value or "", incremental_operation=put if value is not None else delete)
        for key, value in settings.items()
    ]
    return ConfigResource(kind, name, incremental_configs=entries)


@pytest.fixture(scope="module")
def eager(kafka: RealKafka) -> Iterator[RealKafka]:
    """The broker, whose cleaner looks for work all the time."""
    _configure(kafka.bootstrap, _settings(ResourceType.BROKER, "1", {"log.cleaner.backoff.ms": "50"}))
    yield kafka
    _configure(kafka.bootstrap, _settings(ResourceType.BROKER, "1", {"log.cleaner.backoff.ms": None}))


class Account:
    """A topic in which one key's value is written again and again, by transactions through kproxy."""

    def __init__(self, kafka: RealKafka, kproxy: KproxyProcess, control: ControlClient, topic: str) -> None:
        self._kafka, self._kproxy, self._control, self.topic = kafka, kproxy, control, topic

    def write(self, value: str, key: str = _KEY) -> list[str]:
        """One record, by a producer of its own; the errors that it received."""
        errors: list[str] = []
        producer = Producer({"bootstrap.servers": self._kproxy.bootstrap, "client.id": self.topic, **_OLD})
        tell: Callable[..., None] = lambda error, _: errors.append(error.name()) if error is not None else None  # noqa: E731
        producer.produce(self.topic, value, key, 0, on_delivery=tell)
        assert producer.flush(30) == 0
        return errors

    def commit(self, value: str) -> None:
        """Write in a transaction of its own."""
        with self._control.transaction(client_id=self.topic):
            assert self.write(value) == []

    def abort(self, value: str) -> list[str]:
        """As `commit`, and aborted; the errors that the producer received."""
        begun = self._control.begin(client_id=self.topic)
        errors = self.write(value)
        self._control.abort(begun.transactional_id, owner=begun.owner)
        return errors

    def clean(self) -> None:
        """Wait until all that was written is cleaned: a record of another key follows it, in the last segment."""
        with ClusterClient(self._kafka.bootstrap) as client:
            end = client.offset(self.topic, 0)
            assert self.write("", "the last segment") == []
            eventually(lambda: self._cleaned_to() >= end, otherwise=lambda: f"not cleaned up to {end}")

    def _cleaned_to(self) -> int:
        checkpoint = Path(self._kafka.directory / "data-1" / "cleaner-offset-checkpoint")
        lines = checkpoint.read_text(encoding="utf-8").splitlines() if checkpoint.exists() else []
        return next((int(line.split()[2]) for line in lines if line.startswith(f"{self.topic} 0 ")), 0)

    def kept(self) -> list[str]:
        """All values of the key that are still in the log, decided or not."""
        return self._values(self._kafka.bootstrap, "read_uncommitted")

    def read(self) -> list[list[str]]:
        """What a read_committed consumer has: at the broker, and through kproxy."""
        return [self._values(place, "read_committed") for place in (self._kafka.bootstrap, self._kproxy.bootstrap)]

    def _values(self, bootstrap: str, isolation: str) -> list[str]:
        options = {"bootstrap.servers": bootstrap, "group.id": uuid4().hex, "isolation.level": isolation}
        consumer = Consumer({**options, "enable.partition.eof": True})
        consumer.assign([TopicPartition(self.topic, 0, 0)])
        values: list[str] = []
        try:
            while True:
                message = consumer.poll(PATIENCE_S)
                assert message is not None
                error = message.error()
                if error is None and message.key() == _KEY.encode():
                    values.append((message.value() or b"").decode())
                elif error is not None:
                    assert error.code() == KafkaError._PARTITION_EOF, error
                    return values
        finally:
            consumer.close()


@contextmanager
def _account(kafka: RealKafka, directory: Path, home: str, config: dict[str, str]) -> Iterator[Account]:
    topic, socket = f"compacted-{uuid4().hex[:8]}", directory / "control.sock"
    with ClusterClient(kafka.bootstrap) as client:
        client.create_topic(topic, 1, config=config)
    options = ("--control-socket", str(socket), "--instance-id", topic, "--transactions-home", home)
    with KproxyProcess(kafka.bootstrap, directory / "log", *options) as kproxy:
        yield Account(kafka, kproxy, ControlClient(socket), topic)
        kproxy.check()


def test_with_the_broker_as_coordinator_the_last_committed_value_survives_an_aborted_one(
    eager: RealKafka, tmp_path: Path
) -> None:
    with _account(eager, tmp_path, "broker", _COMPACTED) as account:
        account.commit("old")
        account.commit("new")
        assert account.abort("no") == []
        account.clean()
        assert account.kept() == ["new"]
        assert account.read() == [["new"], ["new"]]


def test_with_kproxy_as_coordinator_compacted_topics_are_refused(eager: RealKafka, tmp_path: Path) -> None:
    with _account(eager, tmp_path, "kproxy", _COMPACTED) as account:
        assert account.write("plain") == []
        assert account.abort("no") == ["POLICY_VIOLATION"]
        account.clean()
        assert account.kept() == ["plain"]


def test_what_kproxy_aborted_takes_the_committed_value_away_if_its_topic_is_compacted_later(
    eager: RealKafka, tmp_path: Path
) -> None:
    with _account(eager, tmp_path, "kproxy", {"segment.ms": "1"}) as account:
        account.commit("new")
        assert account.abort("no") == []
        assert account.read() == [["new", "no"], ["new"]]
        _configure(eager.bootstrap, _settings(ResourceType.TOPIC, account.topic, dict(_COMPACTED)))
        account.clean()
        assert account.kept() == ["no"]
        assert account.read() == [["no"], []]
