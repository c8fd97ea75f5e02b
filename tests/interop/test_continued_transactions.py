"""A released client's transaction survives the kill of its kproxy, on real Kafka: it commits at the next one."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.request import urlopen
from uuid import uuid4

import pytest
from confluent_kafka import Producer

from kproxy.codec.batch import iter_records
from kproxy.testing.cluster_client import ClusterClient
from kproxy.testing.kafka import RealKafka
from tests.interop.proxy import KproxyProcess
from tests.interop.session import QUIET
from tests.support.patience import PATIENCE_S

pytestmark = pytest.mark.kafka

_PARTITIONS = 3


@pytest.fixture
def proxies(kafka: RealKafka, tmp_path: Path) -> Iterator[list[KproxyProcess]]:
    with ExitStack() as stack:
        options = ("--transactions-home", "kproxy")
        made = [KproxyProcess(kafka.bootstrap, tmp_path / f"log-{n}", *options) for n in range(2)]
        yield [stack.enter_context(one) for one in made]


@pytest.mark.parametrize("elsewhere", [False, True], ids=["restarted", "another"])
def test_librdkafka_commits_at_the_next_kproxy(kafka: RealKafka, proxies: list[KproxyProcess], elsewhere: bool) -> None:
    first, second = proxies
    topic = f"continued-{uuid4().hex[:8]}"
    with ClusterClient(kafka.bootstrap) as client:
        client.create_topic(topic, _PARTITIONS)
    settings = {
        "bootstrap.servers": f"{first.bootstrap},{second.bootstrap}" if elsewhere else first.bootstrap,
        "transactional.id": topic,
        "transaction.timeout.ms": 60_000,
    }
    producer = Producer(settings, logger=QUIET)
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    _write(producer, topic, "1", "2")
    by, other = (first, second) if _began(first) else (second, first)
    by.kill()
    if not elsewhere:
        by.__enter__()
    _write(producer, topic, "3")
    producer.commit_transaction(PATIENCE_S)
    producer.begin_transaction()
    _write(producer, topic, "4")
    producer.commit_transaction(PATIENCE_S)
    at = other if elsewhere else by
    assert _metric(at, "kproxy_transactions_resumed_total") == 1
    with ClusterClient(at.bootstrap) as client:
        for partition in range(_PARTITIONS):
            data = client.read_all(topic, partition, isolation_level=1)
            values = [(row.value or b"").decode() for row in iter_records(data, max_decompressed_bytes=1 << 20)]
            assert values == ["1", "2", "3", "4"]
    if elsewhere:
        by.__enter__()


def _write(producer: Producer, topic: str, *values: str) -> None:
    """One record with each value to each partition, acknowledged."""
    failures: list[object] = []
    for value in values:
        for partition in range(_PARTITIONS):
            producer.produce(topic, value, partition=partition, callback=lambda error, _: failures.append(error))
        assert producer.flush(PATIENCE_S) == 0
    assert failures == [None] * len(values) * _PARTITIONS


def _began(kproxy: KproxyProcess) -> bool:
    """Whether the open transaction is this one's."""
    return _metric(kproxy, "kproxy_transactions_open") == 1


def _metric(kproxy: KproxyProcess, name: str) -> float:
    with urlopen(f"{kproxy.http}/metrics", timeout=PATIENCE_S) as answer:
        lines = answer.read().decode().splitlines()
    return float(next(line.split()[-1] for line in lines if line.startswith(f"{name} ")))
