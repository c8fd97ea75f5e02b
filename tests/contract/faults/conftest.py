"""Clusters that may be harmed: three brokers with replicas, and one broker that cleans up all the time."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kproxy.testing.cluster_client import ClusterClient
from kproxy.testing.fake_broker import ClusterConfig
from kproxy.testing.kafka import RealKafka
from tests.contract.fakes import fake_cluster
from tests.contract.faults.levers import FakeLevers, Levers, RealLevers

_EAGER = {
    "log.retention.check.interval.ms": "200",
    "log.initial.task.delay.ms": "200",
    "log.cleaner.backoff.ms": "200",
    "producer.id.expiration.check.interval.ms": "200",
}
"""Housekeeping within a test's patience, not every five or ten minutes."""


@pytest.fixture(scope="session")
def fake_replicas() -> Iterator[FakeLevers]:
    """Three fake brokers."""
    with fake_cluster(3, ClusterConfig(min_insync_replicas=2)) as fake:
        yield fake


@pytest.fixture(scope="session")
def fake_eager() -> Iterator[FakeLevers]:
    """One fake broker that looks after expired producers all the time."""
    with fake_cluster(1, ClusterConfig(producer_id_expiration_check_interval_ms=200)) as fake:
        yield fake


@pytest.fixture(scope="session")
def eager_kafka() -> Iterator[RealKafka]:
    """One real broker that cleans up all the time."""
    with RealKafka(config=_EAGER) as cluster:
        yield cluster


@pytest.fixture(params=["fake", pytest.param("real", marks=pytest.mark.kafka)])
def replicas(request: pytest.FixtureRequest) -> Levers:
    """Three brokers, ``min.insync.replicas`` 2; a test leaves all of them running."""
    if request.param == "fake":
        fake: FakeLevers = request.getfixturevalue("fake_replicas")
        return fake
    return RealLevers(request.getfixturevalue("kafka_cluster"))


@pytest.fixture(params=["fake", pytest.param("real", marks=pytest.mark.kafka)])
def eager(request: pytest.FixtureRequest) -> Levers:
    """One broker that cleans up all the time."""
    if request.param == "fake":
        fake: FakeLevers = request.getfixturevalue("fake_eager")
        return fake
    return RealLevers(request.getfixturevalue("eager_kafka"))


@pytest.fixture(params=["fake", pytest.param("real", marks=pytest.mark.kafka)])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Levers]:
    """One broker whose disk can be full; a real one has two log directories, or it would end with the first."""
    if request.param == "fake":
        with fake_cluster(1) as fake:
            yield fake
        return
    config = {
        "log.dirs": f"{tmp_path}/one,{tmp_path}/two",
        "metadata.log.dir": f"{tmp_path}/metadata",
        "log.index.size.max.bytes": "65536",
    }
    with RealKafka(config=config) as kafka:
        yield RealLevers(kafka)


@pytest.fixture
def cluster(replicas: Levers) -> Iterator[ClusterClient]:
    """A client of the three brokers."""
    with ClusterClient(replicas.bootstrap) as connected:
        yield connected


@pytest.fixture
def tidy_client(eager: Levers) -> Iterator[ClusterClient]:
    """A client of the broker that cleans up."""
    with ClusterClient(eager.bootstrap) as connected:
        yield connected
