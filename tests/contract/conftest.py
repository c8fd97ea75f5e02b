"""The two brokers that the contract binds: the fake in a thread of its own, and a real Kafka."""

import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from kproxy.testing.cluster_client import ClusterClient
from tests.contract.fakes import fake_cluster

if TYPE_CHECKING:
    from kproxy.testing.kafka import RealKafka


@pytest.fixture(scope="session")
def fake_kafka() -> Iterator[str]:
    """One fake broker for the session."""
    with fake_cluster(1) as fake:
        yield fake.bootstrap


@pytest.fixture(scope="session")
def fake_kafka_cluster() -> Iterator[str]:
    """Three fake brokers for the session."""
    with fake_cluster(3) as fake:
        yield fake.bootstrap


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
