"""Clients that know nothing of transactions, in transactions that the broker itself decides, on real Kafka.

All is read at the broker, by librdkafka with read_committed, which knows nothing of kproxy.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka import KafkaException, Producer

from kproxy.client import ControlClient, ControlError
from kproxy.testing.cluster_client import ClusterClient
from kproxy.testing.kafka import RealKafka
from tests.interop.plain_reader import read_committed
from tests.interop.proxy import KproxyProcess

pytestmark = [pytest.mark.kafka, pytest.mark.java]
PARTITIONS = 3
#: librdkafka without ApiVersions and idempotence, as it was for 0.9.
OLD = {"api.version.request": False, "broker.version.fallback": "0.9.0.1", "acks": "all", "linger.ms": 5}


@dataclass
class Stage:
    """kproxy with the broker as the coordinator of transactions, and a topic."""

    kafka: RealKafka
    directory: Path
    kproxy: KproxyProcess
    control: ControlClient
    name: str

    def write(self, value: str, *, client_id: str | None = None) -> list[str]:
        """One record with a key to each partition, by a producer of its own; the errors that it received."""
        errors: list[str] = []
        options = {"bootstrap.servers": self.kproxy.bootstrap, "client.id": client_id or self.name, **OLD}
        producer = Producer({**options, "retries": 0, "message.timeout.ms": 20_000, "log_level": 0})
        for partition in range(PARTITIONS):
            producer.produce(
                self.name,
                value,
                "key",
                partition,
                on_delivery=lambda error, _: errors.append(str(error)) if error is not None else None,
            )
        assert producer.flush(30) == 0
        return errors

    def read(self) -> list[list[str]]:
        """What a read_committed consumer finds in each partition of the broker now, up to where all is decided."""
        return read_committed(self.kafka.bootstrap, self.name, PARTITIONS)


@pytest.fixture
def stage(kafka: RealKafka, tmp_path: Path) -> Iterator[Stage]:
    name = f"native-{uuid4().hex[:8]}"
    with ClusterClient(kafka.bootstrap) as client:
        client.create_topic(name, PARTITIONS)
    socket = tmp_path / "control.sock"
    options = ("--control-socket", str(socket), "--instance-id", name, "--transactions-home", "broker")
    with KproxyProcess(kafka.bootstrap, tmp_path / "log", *options, "--per-request", f"{name}-each") as kproxy:
        yield Stage(kafka, tmp_path, kproxy, ControlClient(socket), name)
        kproxy.check()


def test_by_hand_all_shows_at_once_or_nothing_ever(stage: Stage) -> None:
    for committed in ("1", "2"):  # the second has another epoch
        with stage.control.transaction(client_id=stage.name) as transaction:
            assert stage.write(committed) == []
            assert stage.read() == [[]] * PARTITIONS if committed == "1" else [["1"]] * PARTITIONS
            assert transaction.describe().state == "Ongoing"
            assert stage.name in [row.client_id for row in stage.control.list(states=["Ongoing"])]
    with pytest.raises(ZeroDivisionError), stage.control.transaction(client_id=stage.name):
        assert stage.write("no") == []
        raise ZeroDivisionError
    assert stage.write("plain") == []
    assert stage.read() == [["1", "2", "plain"]] * PARTITIONS
    assert stage.name not in [row.client_id for row in stage.control.list()]


def test_what_a_killed_kproxy_left_open_is_aborted_when_its_id_is_begun_again(stage: Stage) -> None:
    stage.control.begin(client_id=stage.name)
    assert stage.write("no") == []
    stage.kproxy.kill()
    stage.kproxy.__enter__()
    with pytest.raises(ControlError, match="TRANSACTIONAL_ID_NOT_FOUND"):
        stage.control.commit(f"kproxy-{stage.name}", batch_id="1")
    with stage.control.transaction(client_id=stage.name):
        assert stage.write("1") == []
    assert stage.read() == [["1"]] * PARTITIONS


def test_a_repeated_commit_is_one_and_what_is_open_is_decided_alone(stage: Stage) -> None:
    owner = stage.control.begin(client_id=stage.name, transactional_id=stage.name).owner
    for ask in (
        lambda: stage.control.prepare(stage.name, owner=owner),
        lambda: stage.control.commit(stage.name, batch_id="1", members=["a"]),
        lambda: stage.control.abort(stage.name, owner=owner, abort_others=True),
    ):
        with pytest.raises(ControlError, match=r"INVALID_REQUEST.*begin a member"):
            ask()
    assert stage.write("1") == []
    first = stage.control.commit(stage.name, batch_id="1")
    assert stage.control.commit(stage.name, batch_id="1") == first
    with pytest.raises(ControlError, match="TRANSACTIONAL_ID_NOT_FOUND"):
        stage.control.commit(stage.name, batch_id="2")
    assert stage.read() == [["1"]] * PARTITIONS


def test_each_request_is_whole_or_not_there(stage: Stage) -> None:
    each = f"{stage.name}-each"
    assert stage.write("1", client_id=each) == []
    assert stage.write("2", client_id=each) == []
    assert stage.read() == [["1", "2"]] * PARTITIONS


def test_errors_are_the_fields(stage: Stage) -> None:
    producer = Producer({"bootstrap.servers": stage.kproxy.bootstrap, "transactional.id": stage.name, "log_level": 0})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(stage.name, "theirs", partition=0)
    producer.flush(30)
    owner = stage.control.begin(client_id=stage.name, transactional_id=stage.name).owner  # taken by hand
    with pytest.raises(KafkaException, match=r"(?i)fenced"):
        producer.commit_transaction(30)
    stage.control.abort(stage.name, owner=owner)
    assert stage.read() == [[]] * PARTITIONS
