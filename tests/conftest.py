"""Fixtures for the whole session: real Kafka clusters, started when the first test asks for one."""

from collections.abc import Iterator

import pytest

from kproxy.testing.kafka import RealKafka


@pytest.fixture(scope="session")
def kafka() -> Iterator[RealKafka]:
    """One broker, shared by all tests: use topics, groups and ids of your own, and do not kill it."""
    with RealKafka() as cluster:
        yield cluster


@pytest.fixture(scope="session")
def kafka_cluster() -> Iterator[RealKafka]:
    """Three brokers, shared by all tests: who kills one starts it again."""
    with RealKafka(brokers=3, config={"min.insync.replicas": "2"}) as cluster:
        yield cluster
