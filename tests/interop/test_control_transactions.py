"""Transactions by hand for a released client that knows nothing of them, over the control API, on real Kafka."""

import base64
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from kproxy.client import ControlClient, ControlError
from kproxy.codec.batch import iter_records
from kproxy.testing.cluster_client import ClusterClient
from kproxy.testing.kafka import RealKafka
from tests.interop.catalog import CLIENTS
from tests.interop.proxy import KproxyProcess
from tests.support.clients import run_driver

pytestmark = [pytest.mark.kafka, pytest.mark.java]
PARTITIONS = 3
OLD = next(client for client in CLIENTS if client.name == "kafka-python-1.4.7-pinned-0.9")


@dataclass
class Stage:
    """kproxy in front of a broker, with two topics of three partitions."""

    kafka: RealKafka
    directory: Path
    kproxy: KproxyProcess
    control: ControlClient
    client_id: str
    topics: tuple[str, str]

    def write(self, value: str, *, at: KproxyProcess | None = None, client_id: str | None = None) -> None:
        """One record to each partition of both topics, by a producer of its own."""
        coded = base64.b64encode(value.encode()).decode()
        records: list[dict[str, Any]] = [
            {"p": at, "k": None, "v": coded, "ts": None, "h": []} for at in range(PARTITIONS)
        ]
        more = {"op": "produce", "codec": "gzip", "chunk": 10, "records": records, "timeout_ms": 20_000}
        steps = [{**more, "topic": topic} for topic in self.topics]
        options = {**OLD.options, "producer": {"client_id": client_id or self.client_id, "acks": "all"}}
        job = {"bootstrap": (at or self.kproxy).bootstrap, "options": options, "steps": steps}
        for result in run_driver(OLD.install(), job):
            assert "error" not in result, result["error"]

    def read(self) -> dict[tuple[str, int], list[str]]:
        """What a consumer sees through kproxy that reads committed data."""
        with ClusterClient(self.kproxy.bootstrap) as client:
            return {
                (topic, partition): [
                    (row.value or b"").decode()
                    for row in iter_records(
                        client.read_all(topic, partition, isolation_level=1), max_decompressed_bytes=1 << 20
                    )
                ]
                for topic in self.topics
                for partition in range(PARTITIONS)
            }

    def everywhere(self, *values: str) -> dict[tuple[str, int], list[str]]:
        """These values in each partition."""
        return {(topic, partition): list(values) for topic in self.topics for partition in range(PARTITIONS)}


@contextmanager
def _kproxy(kafka: RealKafka, directory: Path, name: str) -> Iterator[KproxyProcess]:
    directory.mkdir(exist_ok=True)
    options = ("--control-socket", str(directory / "control.sock"), "--instance-id", name)
    with KproxyProcess(kafka.bootstrap, directory / "log", *options) as kproxy:
        yield kproxy


@pytest.fixture
def stage(kafka: RealKafka, tmp_path: Path) -> Iterator[Stage]:
    name = f"by-hand-{uuid4().hex[:8]}"
    topics = (f"{name}-1", f"{name}-2")
    with ClusterClient(kafka.bootstrap) as client:
        for topic in topics:
            client.create_topic(topic, PARTITIONS)
    with _kproxy(kafka, tmp_path, name) as kproxy:
        yield Stage(kafka, tmp_path, kproxy, ControlClient(tmp_path / "control.sock"), name, topics)


def test_all_shows_at_once_or_nothing_ever(stage: Stage) -> None:
    with stage.control.transaction(client_id=stage.client_id):
        stage.write("1")
        assert stage.read() == stage.everywhere()
    assert stage.read() == stage.everywhere("1")
    with pytest.raises(ZeroDivisionError), stage.control.transaction(client_id=stage.client_id):
        stage.write("2")
        raise ZeroDivisionError
    assert stage.read() == stage.everywhere("1")
    stage.write("plain")
    assert stage.read() == stage.everywhere("1", "plain")
    stage.kproxy.check()


def test_kill_9_of_kproxy_aborts_what_is_open_and_leaves_what_is_prepared(stage: Stage, tmp_path: Path) -> None:
    prepared = stage.control.begin(client_id=stage.client_id, transactional_id=f"{stage.client_id}-2pc")
    stage.write("1")
    stage.control.prepare(prepared.transactional_id, owner=prepared.owner)
    open_one = stage.control.begin(client_id=stage.client_id)
    stage.write("2")
    stage.kproxy.kill()
    with _kproxy(stage.kafka, tmp_path, stage.client_id) as stage.kproxy:
        with pytest.raises(ControlError, match="TRANSACTION_ABORTABLE"):
            stage.control.commit(open_one.transactional_id, owner=open_one.owner)
        assert stage.read() == stage.everywhere()
        stage.control.commit(prepared.transactional_id, owner=prepared.owner)
        assert stage.read() == stage.everywhere("1")
        with stage.control.transaction(client_id=stage.client_id):
            stage.write("3")
        assert stage.read() == stage.everywhere("1", "3")
        stage.kproxy.check()


def test_two_producers_at_two_kproxies_are_one_transaction_though_one_is_killed(stage: Stage, tmp_path: Path) -> None:
    name = stage.client_id
    with _kproxy(stage.kafka, tmp_path / "other", f"{name}-other") as other:
        far = ControlClient(tmp_path / "other" / "control.sock")
        owner = stage.control.initialize(name).owner
        for control, kproxy, member in ((stage.control, stage.kproxy, "near"), (far, other, "far"), (far, other, "no")):
            control.begin_member(name, member, client_id=f"{name}-{member}", owner=owner)
            stage.write(member, at=kproxy, client_id=f"{name}-{member}")
        stage.control.prepare_member(name, "near")
        far.prepare_member(name, "far")
        assert stage.read() == stage.everywhere()
        stage.kproxy.kill()
        for _ in range(2):
            done = far.commit(name, batch_id="1", members=["near", "far"], owner=owner, abort_others=True)
            assert done.parts == ()
        other.check()
        with _kproxy(stage.kafka, tmp_path, name) as stage.kproxy:
            assert stage.read() == stage.everywhere("near", "far")
            assert stage.control.commit(name, batch_id="1", owner=owner).last == done.last
            newer = stage.control.initialize(name).owner
            with pytest.raises(ControlError, match="PRODUCER_FENCED"):
                far.begin_member(name, "late", client_id="late", owner=owner)
            assert newer != owner
            stage.kproxy.check()
