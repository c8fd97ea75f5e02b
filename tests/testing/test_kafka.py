"""The launcher of real brokers: one broker comes up, dies, comes back, and leaves nothing behind."""

import os
import time
from pathlib import Path

import pytest

from kproxy.codec.batch import Record, build_batch
from kproxy.testing.cluster_client import EARLIEST, ClusterClient
from kproxy.testing.kafka import RealKafka, new_cluster_id
from kproxy.testing.probe import broker_count
from kproxy.testing.tools import Unavailable


@pytest.mark.kafka
def test_broker_serves_dies_and_returns_on_its_port() -> None:
    cluster = RealKafka(config={"num.partitions": "3"})
    with cluster:
        port = cluster.ports[0]
        assert cluster.bootstrap == f"127.0.0.1:{port}"
        assert broker_count("127.0.0.1", port) == 1
        cluster.kill(0)
        assert cluster.pid(0) is None
        assert broker_count("127.0.0.1", port) == 0
        cluster.restart(0)
        assert broker_count("127.0.0.1", port) == 1
        pid = cluster.pid(0)
    assert pid is not None
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert not cluster.directory.exists()


@pytest.mark.kafka
def test_records_of_any_time_stay() -> None:
    often = {"log.initial.task.delay.ms": "100", "log.retention.check.interval.ms": "100"}
    old = build_batch([Record(0, 1_000, None, b"v")])
    with RealKafka(config=often) as cluster, ClusterClient(cluster.bootstrap) as client:
        client.create_topic("kept")
        client.create_topic("a-week", config={"retention.ms": "604800000"})
        assert client.produce("kept", 0, old).error_code == 0
        for start in (1, 2):  # the second time the broker has looked at all topics in between
            assert client.produce("a-week", 0, old).error_code == 0
            deadline = time.monotonic() + 60
            while client.offset("a-week", 0, EARLIEST) < start and time.monotonic() < deadline:
                time.sleep(0.02)
        assert client.offset("a-week", 0, EARLIEST) == 2
        assert client.offset("kept", 0, EARLIEST) == 0


@pytest.mark.kafka
def test_a_broker_that_cannot_start_shows_its_log() -> None:
    with (
        pytest.raises(Unavailable, match=r"num\.network\.threads"),
        RealKafka(config={"num.network.threads": "no"}),
    ):
        pass


def test_missing_java_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(Unavailable, match="install Java 17"), RealKafka():
        pass


def test_no_cluster_id_looks_like_an_option() -> None:
    ids = {new_cluster_id() for _ in range(2_000)}
    assert len(ids) == 2_000
    assert all(len(made) == 22 and not made.startswith("-") for made in ids)
