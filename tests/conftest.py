"""Fixtures for the whole session: real Kafka clusters, started when the first test asks for one."""

import logging
from collections.abc import Iterator

import pytest
import structlog

from kproxy.testing.kafka import RealKafka


@pytest.fixture(autouse=True)
def _logging_restored() -> Iterator[None]:
    """What a test sets up of the process's logging ends with it, as the stream does to which it writes."""
    handlers = logging.getLogger().handlers[:]
    yield
    if structlog.is_configured():
        logging.getLogger().handlers[:] = handlers
        structlog.reset_defaults()


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
