"""Connections that a worker keeps for its next task."""

from collections.abc import Iterator

import pytest

from kproxy.spark import kept_clusters
from kproxy.spark.kept_clusters import kept_cluster
from kproxy.spark.read_options import ReadOptions, read_options
from tests.spark.fake_cluster import Fake, fake_cluster


@pytest.fixture
def options(monkeypatch: pytest.MonkeyPatch) -> Iterator[ReadOptions]:
    monkeypatch.setenv("SPARK_REUSE_WORKER", "1")
    with fake_cluster() as fake:
        yield _options(fake)
    for _, cluster in kept_clusters._kept():
        cluster.close()
    kept_clusters._kept().clear()


def _options(fake: Fake, **more: str) -> ReadOptions:
    return read_options({"kafka.bootstrap.servers": fake.bootstrap, "subscribe": "t", **more})


def test_the_next_task_has_the_same_connections(options: ReadOptions) -> None:
    with kept_cluster(options) as first:
        first.topics()
    with kept_cluster(options) as second:
        assert second is first
        with kept_cluster(options) as third:  # of a task that runs at the same time
            assert third is not first


def test_other_options_have_others(options: ReadOptions) -> None:
    with kept_cluster(options) as first:
        pass
    with kept_cluster(options._replace(client_id="another")) as second:
        assert second is not first


def test_what_fails_is_closed(options: ReadOptions) -> None:
    with pytest.raises(ZeroDivisionError), kept_cluster(options) as first:
        first.topics()
        raise ZeroDivisionError
    with kept_cluster(options) as second:
        assert second is not first


def test_a_process_that_ends_keeps_nothing(options: ReadOptions, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_REUSE_WORKER")
    with kept_cluster(options):
        pass
    assert not kept_clusters._kept()


def test_few_are_kept(options: ReadOptions) -> None:
    for number in range(10):
        with kept_cluster(options._replace(client_id=str(number))):
            pass
    assert len(kept_clusters._kept()) == 4
    with kept_cluster(options._replace(client_id="9")):
        assert len(kept_clusters._kept()) == 3


def test_a_broker_that_has_restarted_is_connected_to_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_REUSE_WORKER", "1")
    with fake_cluster() as fake:
        options = _options(fake)
        with fake.client() as client:
            client.create_topic("t", 1)
        with kept_cluster(options) as cluster:
            assert cluster.partitions(["t"]) == {"t": 1}
        for connection in cluster._connections.values():
            connection._socket.shutdown(2)
        with kept_cluster(options) as again:
            assert again is cluster
            assert again.partitions(["t"]) == {"t": 1}
            again.close()
    kept_clusters._kept().clear()
