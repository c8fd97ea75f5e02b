"""What old consumers meet in a log that newer Kafka made: markers, large batches, the broker's timestamps."""

from typing import Any

import pytest
from confluent_kafka import Producer

from tests.interop import records, session
from tests.interop.catalog import CLIENTS, NEWEST, Client
from tests.interop.conftest import Target
from tests.support.clients import run_driver

pytestmark = [pytest.mark.kafka, pytest.mark.java]
_BY_NAME = {client.name: client for client in CLIENTS}
_OLD = (
    "java-0.8.2.2-java-offsets-v1",
    "java-0.9.0.1",
    "java-0.10.2.2",
    "kafka-python-1.4.7-pinned-0.8.2",
    "librdkafka-2.16.1-fallback-0.9.0.1",
    "sarama-1.19.0-0.8.2.2",
)


def _read(client: Client, target: Target, topic: str, count: int, consumer: dict[str, Any]) -> list[records.Record]:
    options = {**client.options, "consumer": {**client.options.get("consumer", {}), **consumer}}
    step = session.consume_step(topic, f"group.{topic}.{client.name}", count, session.EXTRA_MS)
    [result] = run_driver(client.install(), session.job(target.bootstrap, options, [step]))
    assert "error" not in result, result["error"]
    found: list[records.Record] = result["records"]
    return found


@pytest.fixture(scope="module")
def transactions(target: Target) -> list[records.Record]:
    """Ten committed transactions, each with its marker in every partition, written straight to the broker."""
    topic = "transactions"
    session.create_topics(target.kafka.bootstrap, [topic])
    sent = records.make(topic, "none", NEWEST.can, session.now_ms() - 60_000)
    producer = Producer({"bootstrap.servers": target.kafka.bootstrap, "transactional.id": "interop-markers"})
    producer.init_transactions(20)
    for first in range(0, len(sent), 4):
        producer.begin_transaction()
        steps = session.raw(sent[first : first + 4])
        for each in steps:
            producer.produce(topic, **each)
        producer.commit_transaction(20)
    return sent


@pytest.mark.parametrize("name", _OLD)
def test_markers_of_transactions_neither_show_nor_stall(
    name: str, target: Target, transactions: list[records.Record]
) -> None:
    client = _BY_NAME[name]
    found = _read(client, target, "transactions", len(transactions), {})
    problems = records.differences(transactions, found, client.can, (0, 0))
    assert not problems, problems


@pytest.fixture(scope="module", params=["none", "gzip"])
def large(request: pytest.FixtureRequest, target: Target) -> tuple[str, list[records.Record]]:
    """Records of 30 KB, a dozen in a batch."""
    topic = f"large-batches.{request.param}"
    session.create_topics(target.kafka.bootstrap, [topic])
    sent = records.make(topic, request.param, NEWEST.can, session.now_ms() - 60_000, value_bytes=30_000)
    step = session.produce_step(topic, request.param, sent)
    [wrote] = run_driver(NEWEST.install(), session.job(target.bootstrap, NEWEST.options, [step]))
    assert "error" not in wrote, wrote["error"]
    return topic, sent


@pytest.mark.parametrize(
    ("name", "limit"),
    [
        ("java-0.9.0.1", {"max.partition.fetch.bytes": "40000"}),
        ("java-0.10.2.2", {"max.partition.fetch.bytes": "2000"}),
        ("kafka-python-1.4.7-pinned-0.8.2", {"max_partition_fetch_bytes": 40_000}),
        ("librdkafka-2.16.1-fallback-0.9.0.1", {"fetch.message.max.bytes": 2000}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_batches_larger_than_the_fetch_size_are_read(
    name: str, limit: dict[str, Any], target: Target, large: tuple[str, list[records.Record]]
) -> None:
    client = _BY_NAME[name]
    topic, sent = large
    problems = records.differences(sent, _read(client, target, topic, len(sent), limit), client.can, (0, 0))
    assert not problems, problems


@pytest.mark.parametrize("name", ["java-0.10.2.2", "kafka-python-1.4.7-pinned-0.10", "kafka-python-1.4.7-pinned-0.8.2"])
@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_the_brokers_timestamps_are_delivered(name: str, codec: str, target: Target) -> None:
    client = _BY_NAME[name]
    topic = f"append-time.{codec}.{name}"
    session.create_topics(target.kafka.bootstrap, [topic], config={"message.timestamp.type": "LogAppendTime"})
    began = session.now_ms()
    sent = records.make(topic, codec, client.can, began - 3_600_000)
    steps = [session.produce_step(topic, codec, sent)]
    [wrote] = run_driver(client.install(), session.job(target.bootstrap, client.options, steps))
    assert "error" not in wrote, wrote["error"]
    window = began, session.now_ms()
    untimed = [{**record, "ts": None} for record in sent]
    for reader in (client, NEWEST):
        problems = records.differences(untimed, _read(reader, target, topic, len(sent), {}), reader.can, window)
        assert not problems, f"{reader.name}: {problems}"
