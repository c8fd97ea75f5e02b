"""The launcher of real brokers: one broker comes up, dies, comes back, and leaves nothing behind."""

import os
from pathlib import Path

import pytest

from kproxy.testing.kafka import KafkaUnavailable, RealKafka, new_cluster_id
from kproxy.testing.probe import broker_count


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
def test_a_broker_that_cannot_start_shows_its_log() -> None:
    with (
        pytest.raises(KafkaUnavailable, match=r"num\.network\.threads"),
        RealKafka(config={"num.network.threads": "no"}),
    ):
        pass


def test_missing_java_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(KafkaUnavailable, match="install Java 17"), RealKafka():
        pass


def test_no_cluster_id_looks_like_an_option() -> None:
    ids = {new_cluster_id() for _ in range(2_000)}
    assert len(ids) == 2_000
    assert all(len(made) == 22 and not made.startswith("-") for made in ids)
