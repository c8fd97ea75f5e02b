"""The brokers that the contract binds: the fake in a thread of its own, a real Kafka, and other back ends."""

import functools
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from kproxy.testing.cluster_client import ClusterClient
from tests.contract.backends import BOUND, EACH, IN_ALL_RUNS, backend_of, expected, start
from tests.contract.fakes import fake_cluster

if TYPE_CHECKING:
    from kproxy.testing.kafka import RealKafka


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """On other back ends a part of the contract runs, a smaller one in an ordinary run; what differs is expected."""
    files = BOUND if "backends" in config.option.markexpr else IN_ALL_RUNS
    left_out = []
    for item in items:
        backend = backend_of(item)
        if backend is None:
            continue
        if item.path.name not in files or "cluster_bootstrap" in getattr(item, "fixturenames", ()):
            left_out.append(item)
        for mark in expected(item, backend):
            item.add_marker(mark)
    if gone := set(left_out):
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in gone]


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


@pytest.fixture(scope="session")
def backend() -> Iterator[Callable[[str, int], str]]:
    """Give the addresses of another back end by its name and number of brokers, started when first asked for."""
    with ExitStack() as running:
        yield functools.cache(lambda name, brokers: running.enter_context(start(name, brokers)))


@pytest.fixture(params=EACH)
def bootstrap(request: pytest.FixtureRequest) -> str:
    """The address of one broker of each back end."""
    return _address(request, "kafka", 1)


@pytest.fixture(params=EACH)
def cluster_bootstrap(request: pytest.FixtureRequest) -> str:
    """The addresses of three brokers of each back end."""
    return _address(request, "kafka_cluster", 3)


def _address(request: pytest.FixtureRequest, fixture: str, brokers: int) -> str:
    if request.param == "fake":
        return str(request.getfixturevalue(f"fake_{fixture}"))
    if request.param == "real":
        kafka: RealKafka = request.getfixturevalue(fixture)
        return kafka.bootstrap
    started: Callable[[str, int], str] = request.getfixturevalue("backend")
    return started(request.param, brokers)


@pytest.fixture
def client(bootstrap: str) -> Iterator[ClusterClient]:
    """A client of one broker."""
    with ClusterClient(bootstrap) as connected:
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
