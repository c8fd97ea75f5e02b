"""The two brokers that the contract binds: the fake in a thread of its own, and a real Kafka."""

import queue
import threading
import uuid
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest
import trio

from kproxy.testing.client import ClusterClient
from kproxy.testing.fake_broker import open_fake_cluster

if TYPE_CHECKING:
    from kproxy.testing.kafka import RealKafka


def _run_fake(brokers: int) -> Iterator[str]:
    """Serve a fake cluster from another thread; yields its bootstrap servers."""
    started: queue.Queue[tuple[str, Callable[[], None]]] = queue.Queue()

    async def serve() -> None:
        async with open_fake_cluster(brokers) as server:
            token = trio.lowlevel.current_trio_token()
            stop = server.nursery.cancel_scope.cancel
            started.put((server.bootstrap, lambda: token.run_sync_soon(stop)))
            await trio.sleep_forever()

    thread = threading.Thread(target=trio.run, args=(serve,))
    thread.start()
    bootstrap, stop = started.get(timeout=30)
    yield bootstrap
    stop()
    thread.join(30)


@pytest.fixture(scope="session")
def fake_kafka() -> Iterator[str]:
    """One fake broker for the session."""
    yield from _run_fake(1)


@pytest.fixture(scope="session")
def fake_kafka_cluster() -> Iterator[str]:
    """Three fake brokers for the session."""
    yield from _run_fake(3)


@pytest.fixture(params=["fake", pytest.param("real", marks=pytest.mark.kafka)])
def bootstrap(request: pytest.FixtureRequest) -> str:
    """The address of one broker, fake or real."""
    if request.param == "fake":
        return str(request.getfixturevalue("fake_kafka"))
    kafka: RealKafka = request.getfixturevalue("kafka")
    return kafka.bootstrap


@pytest.fixture(params=["fake", pytest.param("real", marks=pytest.mark.kafka)])
def cluster_bootstrap(request: pytest.FixtureRequest) -> str:
    """The addresses of three brokers, fake or real."""
    if request.param == "fake":
        return str(request.getfixturevalue("fake_kafka_cluster"))
    kafka: RealKafka = request.getfixturevalue("kafka_cluster")
    return kafka.bootstrap


@pytest.fixture
def client(bootstrap: str) -> Iterator[ClusterClient]:
    """A client of one broker."""
    with ClusterClient(bootstrap, timeout=12) as connected:
        yield connected


@pytest.fixture
def unique() -> str:
    """A name that no other test uses."""
    return f"contract-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def topic(client: ClusterClient, unique: str) -> str:
    """A fresh topic with two partitions."""
    client.create_topic(unique, partitions=2)
    return unique
