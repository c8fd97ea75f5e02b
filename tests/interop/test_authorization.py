"""Refusals by Kafka's own authorizer and by kproxy's rules have the same errors."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer

from kproxy.codec._generated import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    alter_configs,
    create_acls,
    create_partitions,
    create_topics,
    delete_groups,
    delete_records,
    describe_configs,
    describe_groups,
    describe_producers,
    describe_transactions,
    end_txn,
    fetch,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leave_group,
    list_offsets,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    sync_group,
    txn_offset_commit,
)
from kproxy.codec.batch import Record, build_batch
from kproxy.codec.messages import APIS, Message
from kproxy.codec.protocol_struct import ProtocolStruct
from kproxy.testing.cluster_client import ClusterClient, RawConnection
from kproxy.testing.kafka import RealKafka
from tests.interop import records, session
from tests.interop.catalog import CLIENTS
from tests.interop.proxy import KproxyProcess
from tests.support.clients import run_driver
from tests.support.patience import PATIENCE_S, eventually, repeat_while

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.java, pytest.mark.kafka]

CLOSED = "closed"
RULES = f"""rules:
  - permission: allow
    principals: ["*"]
    operations: [All]
    topics: ["*"]
    groups: ["*"]
    transactional.ids: ["*"]
    cluster: true
  - permission: deny
    principals: ["*"]
    operations: [All]
    topics: [{CLOSED}]
    groups: [{CLOSED}]
    transactional.ids: [{CLOSED}]
"""
QUOTAS = """quotas:
  - client.id: heavy
    producer_byte_rate: 100000
"""
#: Kafka's numbers: topic, group, transactional id; literal; all operations; denied.
_TYPES, _LITERAL, _ALL, _DENY = (2, 3, 5), 3, 2, 2
#: Fields that describe the cluster, or give the reason in free text.
_OTHERWISE = {"throttle_time_ms", "brokers", "cluster_id", "controller_id", "error_message", "topic_id"}


def about(version: int, message: Message) -> Any:
    return pytest.param(message, version, id=f"{APIS[message.API_KEY][0]}-v{version}")


def _produce(transactional_id: str | None = None) -> Message:
    record = Record(0, 1_700_000_000_000, None, b"x", ())
    named = {} if transactional_id is None else {"producer_id": 1, "producer_epoch": 0, "base_sequence": 0}
    batch = build_batch([record], is_transactional=transactional_id is not None, **named)
    parts = [produce.ProduceRequestPartitionProduceData(0, bytes(batch))]
    topic = produce.ProduceRequestTopicProduceData(CLOSED, partition_data=parts)
    return produce.ProduceRequest(transactional_id, -1, 5000, [topic])


def _fetch() -> Message:
    parts = [fetch.FetchRequestFetchPartition(0, partition_max_bytes=1000)]
    return fetch.FetchRequest(max_wait_ms=0, topics=[fetch.FetchRequestFetchTopic(CLOSED, partitions=parts)])


def _list_offsets() -> Message:
    parts = [list_offsets.ListOffsetsRequestListOffsetsPartition(0, timestamp=-1)]
    return list_offsets.ListOffsetsRequest(-1, 0, [list_offsets.ListOffsetsRequestListOffsetsTopic(CLOSED, parts)])


def _offset_commit(group: str) -> Message:
    topic = offset_commit.OffsetCommitRequestTopic(
        CLOSED, partitions=[offset_commit.OffsetCommitRequestPartition(0, 5)]
    )
    return offset_commit.OffsetCommitRequest(group, topics=[topic])


def _offset_fetch(group: str) -> Message:
    return offset_fetch.OffsetFetchRequest(group, [offset_fetch.OffsetFetchRequestTopic(CLOSED, [0])])


def _offset_fetch_groups(group: str) -> Message:
    topics = [offset_fetch.OffsetFetchRequestTopics(CLOSED, partition_indexes=[0])]
    return offset_fetch.OffsetFetchRequest(groups=[offset_fetch.OffsetFetchRequestGroup(group, topics=topics)])


def _txn_offset_commit(name: str, group: str) -> Message:
    topic = txn_offset_commit.TxnOffsetCommitRequestTopic(
        CLOSED, partitions=[txn_offset_commit.TxnOffsetCommitRequestPartition(0, 5)]
    )
    return txn_offset_commit.TxnOffsetCommitRequest(name, group, 1, 0, topics=[topic])


def _add_partitions(name: str) -> Message:
    topic = add_partitions_to_txn.AddPartitionsToTxnRequestAddPartitionsToTxnTopic
    return add_partitions_to_txn.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=name,
        v3_and_below_producer_id=1,
        v3_and_below_topics=[topic(CLOSED, [0]), topic("open", [0])],
    )


def _join_group() -> Message:
    protocol = join_group.JoinGroupRequestProtocol("range", b"")
    return join_group.JoinGroupRequest(CLOSED, 10_000, 10_000, protocol_type="consumer", protocols=[protocol])


def _end_offset() -> Message:
    row = offset_for_leader_epoch.OffsetForLeaderEpochRequestOffsetForLeaderPartition(0)
    topic = offset_for_leader_epoch.OffsetForLeaderEpochRequestOffsetForLeaderTopic(CLOSED, [row])
    return offset_for_leader_epoch.OffsetForLeaderEpochRequest(-1, [topic])


def _delete_records() -> Message:
    rows = [delete_records.DeleteRecordsRequestDeleteRecordsPartition(0, 0)]
    return delete_records.DeleteRecordsRequest(
        [delete_records.DeleteRecordsRequestDeleteRecordsTopic(CLOSED, rows)], 5000
    )


def _offset_delete(group: str) -> Message:
    rows = [offset_delete.OffsetDeleteRequestPartition(0)]
    return offset_delete.OffsetDeleteRequest(group, [offset_delete.OffsetDeleteRequestTopic(CLOSED, rows)])


REQUESTS = [
    *(about(version, _produce()) for version in (3, 8, 9, 12)),
    about(9, _produce(CLOSED)),
    *(about(version, _fetch()) for version in (4, 11, 12)),
    *(about(version, _list_offsets()) for version in (1, 7)),
    *(
        about(version, metadata.MetadataRequest([metadata.MetadataRequestTopic(name=CLOSED)]))
        for version in (0, 1, 8, 12)
    ),
    *(about(version, _offset_commit(group)) for version in (2, 8, 9) for group in (CLOSED, "g")),
    *(about(version, _offset_fetch(group)) for version in (1, 5, 7) for group in (CLOSED, "g")),
    *(about(version, _offset_fetch_groups(group)) for version in (8, 9) for group in (CLOSED, "g")),
    *(about(version, find_coordinator.FindCoordinatorRequest(CLOSED, kind)) for version in (1, 3) for kind in (0, 1)),
    *(about(4, find_coordinator.FindCoordinatorRequest("", kind, [CLOSED])) for kind in (0, 1)),
    *(about(version, _join_group()) for version in (0, 5, 9)),
    about(3, sync_group.SyncGroupRequest(CLOSED, 1, "m")),
    about(3, heartbeat.HeartbeatRequest(CLOSED, 1, "m")),
    about(1, leave_group.LeaveGroupRequest(CLOSED, "m")),
    about(4, leave_group.LeaveGroupRequest(CLOSED, members=[leave_group.LeaveGroupRequestMemberIdentity("m")])),
    *(about(version, describe_groups.DescribeGroupsRequest([CLOSED])) for version in (0, 5)),
    about(2, delete_groups.DeleteGroupsRequest([CLOSED])),
    *(about(0, _offset_delete(group)) for group in (CLOSED,)),
    *(
        about(
            version, create_topics.CreateTopicsRequest([create_topics.CreateTopicsRequestCreatableTopic(CLOSED, 1, 1)])
        )
        for version in (2, 7)
    ),
    about(2, _delete_records()),
    about(
        3,
        create_partitions.CreatePartitionsRequest(
            [create_partitions.CreatePartitionsRequestCreatePartitionsTopic(CLOSED, 5, None)], 5000
        ),
    ),
    about(
        4,
        describe_configs.DescribeConfigsRequest(
            [describe_configs.DescribeConfigsRequestDescribeConfigsResource(2, CLOSED)]
        ),
    ),
    about(2, alter_configs.AlterConfigsRequest([alter_configs.AlterConfigsRequestAlterConfigsResource(2, CLOSED)])),
    about(
        1,
        incremental_alter_configs.IncrementalAlterConfigsRequest(
            [incremental_alter_configs.IncrementalAlterConfigsRequestAlterConfigsResource(2, CLOSED)]
        ),
    ),
    *(about(version, init_producer_id.InitProducerIdRequest(CLOSED, 10_000)) for version in (0, 4)),
    *(about(version, _add_partitions(name)) for version in (0, 3) for name in (CLOSED, "x")),
    *(about(3, add_offsets_to_txn.AddOffsetsToTxnRequest(name, 1, 0, CLOSED)) for name in (CLOSED, "x")),
    about(3, end_txn.EndTxnRequest(CLOSED, 1, 0, True)),
    *(about(version, _txn_offset_commit(*who)) for version in (0, 3) for who in ((CLOSED, "g"), ("x", CLOSED))),
    about(4, _end_offset()),
    about(
        0,
        describe_producers.DescribeProducersRequest(
            [describe_producers.DescribeProducersRequestTopicRequest(CLOSED, [0])]
        ),
    ),
    about(0, describe_transactions.DescribeTransactionsRequest([CLOSED])),
]


@pytest.fixture(scope="module")
def kafkas_own() -> Iterator[RealKafka]:
    """A broker that refuses by itself what is called ``closed``."""
    settings = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
    }
    with RealKafka(config=settings) as kafka:
        prepare(kafka.bootstrap)
        acls = [
            create_acls.CreateAclsRequestAclCreation(kind, CLOSED, _LITERAL, "User:*", "*", _ALL, _DENY)
            for kind in _TYPES
        ]
        with to(kafka.bootstrap) as connection:
            made: Any = connection.call(create_acls.CreateAclsRequest(acls), 3)
            assert [row.error_code for row in made.results] == [0, 0, 0]
            asked = metadata.MetadataRequest([metadata.MetadataRequestTopic(name=CLOSED)])
            for _ in range(100):  # a broker hears of them from the controller
                found: Any = connection.call(asked, 1)
                if found.topics[0].error_code == 29:
                    break
        yield kafka


@pytest.fixture(scope="module")
def kproxys(kafka: RealKafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KproxyProcess]:
    """kproxy with rules that say the same, in front of a broker that refuses nothing."""
    directory: Path = tmp_path_factory.mktemp("authorization")
    (directory / "acl.yaml").write_text(RULES)
    (directory / "quotas.yaml").write_text(QUOTAS)
    prepare(kafka.bootstrap)
    options = ["--acl-file", str(directory / "acl.yaml"), "--quotas-file", str(directory / "quotas.yaml")]
    options += ["--transactions-home", "broker"]
    with KproxyProcess(kafka.bootstrap, directory / "log", *options) as kproxy:
        yield kproxy
        kproxy.check()


def prepare(bootstrap: str) -> None:
    """Two topics, and a coordinator that is there for groups and for transactional ids."""
    with ClusterClient(bootstrap) as client:
        for name in (CLOSED, "open"):
            client.create_topic(name)
    with to(bootstrap) as connection:
        for question, version in (
            (find_coordinator.FindCoordinatorRequest("g", 0), 1),
            (offset_fetch.OffsetFetchRequest("g", [offset_fetch.OffsetFetchRequestTopic("open", [0])]), 5),
            (find_coordinator.FindCoordinatorRequest("ready", 1), 1),
            (init_producer_id.InitProducerIdRequest("ready", 10_000), 1),
        ):
            answer = repeat_while(
                lambda answer: getattr(answer, "error_code", 0), partial(connection.call, question, version)
            )
            assert not getattr(answer, "error_code", 0)


@contextmanager
def to(bootstrap: str) -> Iterator[RawConnection]:
    host, _, port = bootstrap.partition(":")
    with RawConnection(host, int(port)) as connection:
        yield connection


def said(message: Any) -> Any:
    """What a response says, as plain values, without what is different wherever it comes from."""
    if isinstance(message, list):
        return [said(item) for item in message]
    if not isinstance(message, ProtocolStruct):
        return bytes(message) if isinstance(message, memoryview) else message
    return {name: said(getattr(message, name)) for name in message.__slots__ if name not in _OTHERWISE}


@pytest.mark.parametrize(("request_", "version"), REQUESTS)
def test_a_refusal_has_kafkas_error(
    kafkas_own: RealKafka, kproxys: KproxyProcess, request_: Message, version: int
) -> None:
    answers = []
    for bootstrap in (kafkas_own.bootstrap, kproxys.bootstrap):
        with to(bootstrap) as connection:
            answers.append(said(connection.call(request_, version)))
    kafkas, ours = answers
    assert ours == kafkas, "\n".join(differ(ours, kafkas))


def test_librdkafka_hears_which_topic_it_may_not_write(kproxys: KproxyProcess) -> None:
    producer = Producer({"bootstrap.servers": kproxys.bootstrap, "log_level": 0})
    told: dict[str, int | None] = {}

    def note(error: KafkaError | None, sent: Any) -> None:
        told[sent.topic()] = None if error is None else error.code()

    for topic in (CLOSED, "open"):
        producer.produce(
            topic, b"x", on_delivery=lambda error, sent: told.update({sent.topic(): error and error.code()})
        )
    producer.flush(PATIENCE_S)
    assert told == {CLOSED: KafkaError.TOPIC_AUTHORIZATION_FAILED, "open": None}
    assert CLOSED not in producer.list_topics(timeout=PATIENCE_S).topics


@pytest.mark.parametrize(
    ("group", "topic", "code"),
    [
        ("readers", CLOSED, KafkaError.TOPIC_AUTHORIZATION_FAILED),
        (CLOSED, "open", KafkaError.GROUP_AUTHORIZATION_FAILED),
    ],
)
def test_librdkafka_hears_what_it_may_not_read(kproxys: KproxyProcess, group: str, topic: str, code: int) -> None:
    consumer = Consumer({"bootstrap.servers": kproxys.bootstrap, "group.id": group, "log_level": 0})
    consumer.subscribe([topic])
    codes: set[int] = set()

    def poll() -> None:
        message = consumer.poll(0.5)
        if message is not None and message.error() is not None:
            codes.add(message.error().code())

    eventually(lambda: code in codes, poll, lambda: codes)
    consumer.close()


def test_librdkafka_hears_that_a_transactional_id_is_not_for_it(kproxys: KproxyProcess) -> None:
    producer = Producer({"bootstrap.servers": kproxys.bootstrap, "transactional.id": CLOSED, "log_level": 0})
    with pytest.raises(KafkaException) as caught:
        producer.init_transactions(PATIENCE_S)
    assert caught.value.args[0].code() == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


@pytest.mark.parametrize(
    ("name", "wait"), [("kafka-python-3.0.12", {"max_block_ms": 30_000}), ("java-4.4.0", {"max.block.ms": 30_000})]
)
def test_other_clients_hear_it_as_well(kproxys: KproxyProcess, name: str, wait: dict[str, Any]) -> None:
    client = next(each for each in CLIENTS if each.name == name)
    sent = records.make(name, "none", client.can, session.now_ms())[:1]
    step = {**session.produce_step(CLOSED, "none", sent), "timeout_ms": 40_000}
    options = {**client.options, "producer": {**client.options.get("producer", {}), **wait}}
    (written,) = run_driver(client.install(), session.job(kproxys.bootstrap, options, [step]))
    assert "authoriz" in written["error"].lower(), written


def test_librdkafka_is_slowed_and_told_so(kproxys: KproxyProcess) -> None:
    waits: list[float] = []
    settings = {"client.id": "heavy", "throttle_cb": lambda event: waits.append(event.throttle_time), "linger.ms": 0}
    producer = Producer({"bootstrap.servers": kproxys.bootstrap, **settings})
    errors: list[Any] = []
    for _ in range(4):  # at once: one after the other, on a busy machine they would not exceed the quota
        producer.produce("open", b"x" * 100_000, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(PATIENCE_S) == 0
    eventually(lambda: any(wait > 0 for wait in waits), lambda: producer.poll(0.1))
    assert errors == [None] * 4
    assert 'kproxy_throttles_total{limit="producer_byte_rate"}' in kproxys.metrics()


def differ(ours: Any, kafkas: Any, where: str = "") -> Iterator[str]:
    """What differs between the responses, one line each."""
    if isinstance(ours, dict) and isinstance(kafkas, dict):
        for name in ours:
            yield from differ(ours[name], kafkas[name], f"{where}.{name}")
    elif isinstance(ours, list) and isinstance(kafkas, list) and len(ours) == len(kafkas):
        for index, pair in enumerate(zip(ours, kafkas, strict=True)):
            yield from differ(*pair, f"{where}[{index}]")
    elif ours != kafkas:
        yield f"{where}: kproxy {ours!r}, Kafka {kafkas!r}"
