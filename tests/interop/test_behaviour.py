"""What a matrix of clients does not show: acks, several members in a group, topics made on first use."""

import base64
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, NewTopic, OffsetSpec

from kproxy.codec.batch import iter_records
from kproxy.testing.cluster_client import ClusterClient
from tests.interop import log_files, records, session
from tests.interop.catalog import CLIENTS, NEWEST, Client
from tests.interop.conftest import Target
from tests.support.clients import run_driver
from tests.support.patience import PATIENCE_S, eventually

pytestmark = [pytest.mark.kafka, pytest.mark.java]
_LEGACY: dict[str, Any] = {"api.version.request": False, "broker.version.fallback": "0.9.0.1"}
_BY_NAME = {client.name: client for client in CLIENTS}


@pytest.mark.parametrize("acks", [0, 1, -1])
@pytest.mark.parametrize("name", ["librdkafka-2.16.1-fallback-0.9.0.1", "librdkafka-2.16.1"])
def test_whatever_acks_ask_for_every_record_is_written_once_and_stamped(name: str, acks: int, target: Target) -> None:
    client: Client = _BY_NAME[name]
    topic = f"acks.{acks}.{name}"
    session.create_topics(target.kafka.bootstrap, [topic])
    began = session.now_ms()
    sent = records.make(topic, "gzip", client.can, began - 60_000)
    producer = {**client.options.get("producer", {}), "acks": acks}
    steps = [session.produce_step(topic, "gzip", sent)]
    [wrote] = run_driver(client.install(), session.job(target.bootstrap, {"producer": producer}, steps))
    assert "error" not in wrote, wrote["error"]
    _check_topic(target, topic, sent, (began, session.now_ms() + 5_000))


@pytest.mark.parametrize("name", ["librdkafka-2.16.1-fallback-0.9.0.1", "pykafka-2.8.0-0.9", "no-kafka-3.4.3"])
def test_a_topic_is_made_by_the_first_old_client_that_asks_for_it(name: str, target: Target) -> None:
    """pykafka and no-kafka give up at UNKNOWN_TOPIC_OR_PARTITION, which Kafka answers since 2.8."""
    client = _BY_NAME[name]
    topic = f"made-on-first-use.{name}"
    began = session.now_ms()
    # The broker's default is one partition.
    sent = [{**record, "p": 0} for record in records.make(topic, "none", client.can, began)]
    options = dict(client.options)
    if name.startswith("librdkafka"):
        options["producer"] = {**options["producer"], "topic.metadata.refresh.fast.interval.ms": 50}
    steps = [session.produce_step(topic, "none", sent)]
    [wrote] = run_driver(client.install(), session.job(target.bootstrap, options, steps))
    assert "error" not in wrote, wrote["error"]
    _check_topic(target, topic, sent, (began, session.now_ms()))


@pytest.mark.parametrize("name", ["kafka-python-1.4.7", "kafka-python-2.0.2-pinned-0.10.1"])
def test_topics_are_made_and_deleted_by_an_old_administrator(name: str, target: Target) -> None:
    client = _BY_NAME[name]
    job = session.job(
        target.bootstrap,
        client.options,
        [{"op": "admin", "topic": f"admin.{name}", "timeout_ms": session.STEP_TIMEOUT_MS}],
    )
    [result] = run_driver(client.install(), job)
    assert "error" not in result, result["error"]
    assert result["partitions"] == [0, 1]
    assert not result["left"]


@pytest.mark.parametrize("settings", [_LEGACY, {}], ids=["old", "new"])
def test_a_record_that_is_too_large_is_refused_and_those_around_it_are_written(
    settings: dict[str, Any], target: Target, request: pytest.FixtureRequest
) -> None:
    topic = f"large.{request.node.callspec.id}"
    session.create_topics(target.kafka.bootstrap, [topic])
    producer = Producer(
        {"bootstrap.servers": target.bootstrap, "message.max.bytes": 4_000_000, "linger.ms": 0, **settings}
    )
    refused: list[tuple[bytes, int]] = []

    def delivered(error: Any, message: Any) -> None:
        if error is not None:
            refused.append((message.key(), error.code()))

    for index in range(300):
        # A broker's default limit is 1 MiB.
        value = bytes(1_200_000) if index % 100 == 50 else b"small"
        producer.produce(topic, key=b"%d" % index, value=value, partition=0, on_delivery=delivered)
        producer.poll(0)
    assert producer.flush(PATIENCE_S) == 0
    assert sorted(refused) == [(key, KafkaError.MSG_SIZE_TOO_LARGE) for key in (b"150", b"250", b"50")]
    step = session.consume_step(topic, f"newest.{topic}", 297, session.EXTRA_MS)
    [read] = run_driver(NEWEST.install(), session.job(target.bootstrap, NEWEST.options, [step]))
    keys = [int(base64.b64decode(record["k"])) for record in read["records"]]
    assert keys == [index for index in range(300) if index % 100 != 50]
    found = list(log_files.batches(target.kafka.directory / "data-1", topic, 0))
    problems = "" if target.kproxy is None else log_files.unstamped(found, own=True)
    assert not problems, problems


@pytest.mark.parametrize("settings", [_LEGACY, {}], ids=["old", "new"])
def test_all_topics_are_listed(settings: dict[str, Any], target: Target, request: pytest.FixtureRequest) -> None:
    """Today's librdkafka asks for all topics with three bytes too many, which a broker does not mind."""
    topic = f"listed.{request.node.callspec.id}"
    session.create_topics(target.kafka.bootstrap, [topic])
    cluster = AdminClient({"bootstrap.servers": target.bootstrap, **settings}).list_topics(timeout=PATIENCE_S)
    assert set(cluster.topics[topic].partitions) == {0, 1, 2}
    brokers = {f"{broker.host}:{broker.port}" for broker in cluster.brokers.values()}
    if target.kproxy is not None:
        assert not brokers & set(target.kafka.bootstrap.split(","))


@pytest.mark.parametrize("settings", [_LEGACY, {}], ids=["old", "new"])
def test_a_pattern_subscribes(settings: dict[str, Any], target: Target, request: pytest.FixtureRequest) -> None:
    prefix = f"pattern-{request.node.callspec.id}"
    session.create_topics(target.kafka.bootstrap, [f"{prefix}-1", f"{prefix}-2"])
    with _member(target.bootstrap, f"^{prefix}-.*", settings) as consumer:
        _poll_until([consumer], lambda: len(consumer.assignment()) == 6)


def test_an_administrator_of_today_is_served(target: Target) -> None:
    topic, group = "administered", "administered"
    admin = AdminClient({"bootstrap.servers": target.bootstrap})

    def ask(answers: Any) -> list[Any]:
        """Wait for one response, or for one for each key."""
        futures = answers.values() if isinstance(answers, dict) else [answers]
        return [future.result(PATIENCE_S) for future in futures]

    ask(admin.create_topics([NewTopic(topic, 2, 1)]))
    ask(admin.create_partitions([NewPartitions(topic, 3)]))
    producer = Producer({"bootstrap.servers": target.bootstrap})
    for index in range(30):
        producer.produce(topic, b"%d" % index, partition=index % 3)
    assert producer.flush(PATIENCE_S) == 0
    where = TopicPartition(topic, 0)
    [latest] = ask(admin.list_offsets({where: OffsetSpec.latest()}))
    # More than ten if kproxy had to fence a batch whose fate was open: a marker takes an offset, too.
    with ClusterClient(target.kafka.bootstrap) as broker:
        assert latest.offset == broker.offset(topic, 0) >= 10
        rows = iter_records(broker.read_all(topic), max_decompressed_bytes=1 << 20)
        assert [row.value for row in rows] == [b"%d" % index for index in range(0, 30, 3)]
    [deleted] = ask(admin.delete_records([TopicPartition(topic, 0, 4)]))
    assert deleted.low_watermark == 4
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    [config] = ask(admin.describe_configs([resource]))
    assert "retention.ms" in config
    position = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, 7)])
    _retry_while_loading(lambda: ask(admin.alter_consumer_group_offsets([position]))[0])
    [offsets] = ask(admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]))
    assert [position.offset for position in offsets.topic_partitions] == [7]
    [described] = ask(admin.describe_consumer_groups([group]))
    assert described.group_id == group
    [cluster] = ask(admin.describe_cluster())
    if target.kproxy is not None:
        assert not {f"{node.host}:{node.port}" for node in cluster.nodes} & set(target.kafka.bootstrap.split(","))
    ask(admin.delete_consumer_groups([group]))
    ask(admin.delete_topics([topic]))


def _retry_while_loading(alter: Callable[[], ConsumerGroupTopicPartitions]) -> None:
    """A broker's first group may find its coordinator loading, and the client leaves that to its caller."""

    def altered() -> bool:
        [error] = [position.error for position in alter().topic_partitions]
        assert error is None or error.code() == KafkaError.COORDINATOR_LOAD_IN_PROGRESS, error.str()
        return error is None

    eventually(altered)


def _check_topic(target: Target, topic: str, sent: list[records.Record], arrival_ms: tuple[int, int]) -> None:
    step = session.consume_step(topic, f"newest.{topic}", len(sent), session.EXTRA_MS)
    [read] = run_driver(NEWEST.install(), session.job(target.bootstrap, NEWEST.options, [step]))
    assert "error" not in read, read["error"]
    problems = records.differences(sent, read["records"], NEWEST.can, arrival_ms)
    assert not problems, problems
    for partition in {record["p"] for record in sent}:
        found = list(log_files.batches(target.kafka.directory / "data-1", topic, partition))
        problems = "" if target.kproxy is None else log_files.unstamped(found, own=True)
        assert not problems, problems


@pytest.mark.parametrize(
    ("first", "second"), [(_LEGACY, _LEGACY), (_LEGACY, {}), ({}, {})], ids=["old-old", "old-new", "new-new"]
)
def test_partitions_move_between_the_members_of_a_group(
    first: dict[str, Any], second: dict[str, Any], target: Target, request: pytest.FixtureRequest
) -> None:
    topic = f"group.{request.node.callspec.id}"
    session.create_topics(target.kafka.bootstrap, [topic])
    with ExitStack() as members:
        one = members.enter_context(_member(target.bootstrap, topic, first))
        _poll_until([one], lambda: _owned(one) == {0, 1, 2})
        with _member(target.bootstrap, topic, second) as two:
            _poll_until([one, two], lambda: bool(_owned(one)) and bool(_owned(two)))
            assert _owned(one) | _owned(two) == {0, 1, 2}
            assert not _owned(one) & _owned(two)
        _poll_until([one], lambda: _owned(one) == {0, 1, 2})


@contextmanager
def _member(bootstrap: str, topic: str, options: dict[str, Any]) -> Iterator[Consumer]:
    settings = {"session.timeout.ms": 10_000, "heartbeat.interval.ms": 500, "auto.offset.reset": "earliest", **options}
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": f"members.{topic}", **settings})
    consumer.subscribe([topic])
    try:
        yield consumer
    finally:
        consumer.close()


def _owned(consumer: Consumer) -> set[int]:
    return {assigned.partition for assigned in consumer.assignment()}


def _poll_until(consumers: list[Consumer], done: Any) -> None:
    def poll() -> None:
        for consumer in consumers:
            consumer.poll(0.05)

    eventually(done, poll, lambda: [sorted(_owned(consumer)) for consumer in consumers])
