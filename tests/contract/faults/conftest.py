"""Clusters that may be harmed: three brokers with replicas, and one broker that cleans up all the time."""

import queue
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import trio

from kproxy.testing.client import ClusterClient
from kproxy.testing.fake_broker import ClusterConfig, open_fake_cluster
from kproxy.testing.kafka import RealKafka
from tests.contract.faults.levers import FakeLevers, Levers, RealLevers

if TYPE_CHECKING:
    from collections.abc import Callable

_EAGER = {
    "log.retention.check.interval.ms": "200",
    "log.initial.task.delay.ms": "200",
    "log.segment.delete.delay.ms": "0",
    "log.cleaner.backoff.ms": "200",
    "producer.id.expiration.check.interval.ms": "200",
}
"""Housekeeping within a test's patience, not every five or ten minutes."""


def _run_fake(brokers: int, config: ClusterConfig) -> Iterator[FakeLevers]:
    """Serve a fake cluster from another thread."""
    started: queue.Queue[tuple[FakeLevers, Callable[[], None]]] = queue.Queue()

    async def serve() -> None:
        async with open_fake_cluster(brokers, config=config) as server:
            token = trio.lowlevel.current_trio_token()
            stop = server.nursery.cancel_scope.cancel
            started.put((FakeLevers(server, token), lambda: token.run_sync_soon(stop)))
            await trio.sleep_forever()

    thread = threading.Thread(target=trio.run, args=(serve,))
    thread.start()
    levers, stop = started.get(timeout=30)
    yield levers
    stop()
    thread.join(30)


@pytest.fixture(scope="session")
def fake_replicas() -> Iterator[FakeLevers]:
    """Three fake brokers."""
    yield from _run_fake(3, ClusterConfig(min_insync_replicas=2))


@pytest.fixture(scope="session")
def fake_eager() -> Iterator[FakeLevers]:
    """One fake broker that looks after expired producers all the time."""
    yield from _run_fake(1, ClusterConfig(producer_id_expiration_check_interval_ms=200))


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
        yield from _run_fake(1, ClusterConfig())
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
    with ClusterClient(replicas.bootstrap, timeout=20) as connected:
        yield connected


@pytest.fixture
def tidy_client(eager: Levers) -> Iterator[ClusterClient]:
    """A client of the broker that cleans up."""
    with ClusterClient(eager.bootstrap, timeout=20) as connected:
        yield connected
