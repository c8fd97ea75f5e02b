"""Straight from a real Kafka: its own transactions, which it leaves to its readers to hide."""

from collections import Counter
from typing import cast

import pytest
from confluent_kafka import Producer

from kproxy.spark.read_options import read_options
from kproxy.spark.table_reader import TableReader
from kproxy.testing.cluster_client import ClusterClient
from kproxy.testing.kafka import RealKafka

pytestmark = pytest.mark.kafka

_SECONDS = 60


def _transact(bootstrap: str, name: str, end: str) -> Producer:
    """A transaction of 10 records in 5 batches that is committed, aborted, or left open."""
    settings = {"bootstrap.servers": bootstrap, "transactional.id": name, "transaction.timeout.ms": 600_000}
    producer = Producer(settings)
    producer.init_transactions(_SECONDS)
    producer.begin_transaction()
    for _ in range(5):
        producer.produce("native", name.encode(), partition=0)
        producer.produce("native", name.encode(), partition=0)
        assert producer.flush(_SECONDS) == 0
    if end == "commit":
        producer.commit_transaction(_SECONDS)
    elif end == "abort":
        producer.abort_transaction(_SECONDS)
    return producer


def test_what_was_aborted_is_hidden_and_what_is_open_is_not_reached(kafka: RealKafka) -> None:
    with ClusterClient(kafka.bootstrap) as client:
        client.create_topic("native", 1)
    ends = {"n-0": "abort", "n-1": "commit", "n-2": "abort", "n-3": "commit", "n-4": "open"}
    producers = [_transact(kafka.bootstrap, name, end) for name, end in ends.items()]

    def rows(**options: str) -> list[dict[str, object]]:
        settings = {"kafka.bootstrap.servers": kafka.bootstrap, "subscribe": "native", "minPartitions": "4"}
        reader = TableReader(read_options({**settings, **options}))
        return [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]

    assert Counter(row["value"] for row in rows()) == {b"n-1": 10, b"n-3": 10}
    assert len(rows(**{"isolation.level": "read_uncommitted"})) == 50
    fates: Counter[object] = Counter()
    for row in rows(**{"records.as": "batches"}):
        fates[row["visibility"]] += cast(int, row["records"])
    assert fates == {"aborted": 20, "committed": 20, "undecided": 10, "control": 4}
    producers[-1].abort_transaction(_SECONDS)
    assert len(rows()) == 20
