"""Why kproxy is needed: Kafka 4.4.0 itself turns these clients away, mostly by closing the connection."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from kproxy.testing.kafka import RealKafka
from tests.interop import records, session
from tests.interop.catalog import CLIENTS, Client
from tests.support.clients import run_driver

pytestmark = [pytest.mark.kafka, pytest.mark.java]
_TIMEOUT_MS = 4_000
_REFUSED = [client for client in CLIENTS if client.refused]


def _write_and_read(client: Client, bootstrap: str) -> list[dict[str, Any]]:
    topic = f"refused.{client.name}"
    steps = [
        session.produce_step(topic, "none", records.make(client.name, "none", client.can, session.now_ms())),
        session.consume_step(topic, f"group.{topic}", records.PER_CODEC),
    ]
    for step in steps:
        step["timeout_ms"] = _TIMEOUT_MS
    return run_driver(client.install(), session.job(bootstrap, client.options, steps), 12)


@pytest.fixture(scope="module")
def attempts(kafka: RealKafka) -> dict[str, list[dict[str, Any]]]:
    """What each client's steps came to, directly at the broker; side by side, as all of them wait in vain."""
    session.create_topics(kafka.bootstrap, [f"refused.{client.name}" for client in _REFUSED])
    with ThreadPoolExecutor(10) as pool:
        results = pool.map(lambda client: _write_and_read(client, kafka.bootstrap), _REFUSED)
        return dict(zip([client.name for client in _REFUSED], results, strict=True))


@pytest.mark.parametrize("name", [client.name for client in _REFUSED])
def test_kafka_itself_does_not_serve_the_client(name: str, attempts: dict[str, list[dict[str, Any]]]) -> None:
    write, read = attempts[name]
    assert "error" in write or "error" in read or read["timed_out"]
