"""Produce: what is appended, what is refused, and the rules of idempotent sequences."""

import itertools
import os
import struct

import crc32c
import pytest

from kproxy.codec._generated.api_versions import ApiVersionsRequest
from kproxy.codec._generated.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from kproxy.codec._generated.produce import (
    ProduceRequest,
    ProduceRequestPartitionProduceData,
    ProduceRequestTopicProduceData,
    ProduceResponse,
)
from kproxy.codec.batch import read_header
from kproxy.codec.messages import ErrorCode
from kproxy.testing.cluster_client import ClusterClient
from tests.contract.batches import START_MS, batch, values
from tests.contract.coordinators import TRANSACTION, find_coordinator, init_transactional_id
from tests.support.patience import repeat_while

_PIDS = itertools.count(int.from_bytes(os.urandom(4), "big") << 20)


@pytest.fixture
def pid() -> int:
    """A producer id that the broker did not allocate."""
    return next(_PIDS)


def _send(client: ClusterClient, topic: str, data: bytearray | bytes, **how: int) -> tuple[ErrorCode, int]:
    answer = client.produce(topic, 0, data, **how)  # type: ignore[arg-type]
    return ErrorCode(answer.error_code), answer.base_offset


@pytest.mark.parametrize("version", range(3, 13))
def test_offsets_follow_one_another(client: ClusterClient, topic: str, version: int) -> None:
    assert _send(client, topic, batch(b"a", b"b"), version=version) == (ErrorCode.NONE, 0)
    assert _send(client, topic, batch(b"c"), version=version, acks=1) == (ErrorCode.NONE, 2)
    assert values(client.read_all(topic)) == [b"a", b"b", b"c"]


def test_the_broker_fills_in_offset_and_leader_epoch_only(client: ClusterClient, topic: str) -> None:
    sent = batch(b"a", pid=5, epoch=0, seq=0)
    client.produce(topic, 0, batch(b"first"))
    client.produce(topic, 0, sent)
    kept = client.read_all(topic)[-len(sent) :]
    assert read_header(kept).base_offset == 1
    assert read_header(kept).partition_leader_epoch == 0
    assert kept[16:] == sent[16:]


def test_version_13_knows_topics_by_id(client: ClusterClient, topic: str) -> None:
    metadata = client.any_broker().call(
        MetadataRequest(topics=[MetadataRequestTopic(name=topic)]), 12, MetadataResponse
    )
    found = metadata.topics[0]
    for topic_id, error, offset in ((found.topic_id, 0, 0), (b"\x01" * 16, ErrorCode.UNKNOWN_TOPIC_ID, -1)):
        data = ProduceRequestTopicProduceData(
            topic_id=topic_id, partition_data=[ProduceRequestPartitionProduceData(index=0, records=bytes(batch(b"a")))]
        )
        request = ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[data])
        answer = client.leader(topic, 0).call(request, 13, ProduceResponse).responses[0]
        assert answer.topic_id == topic_id
        assert (answer.partition_responses[0].error_code, answer.partition_responses[0].base_offset) == (error, offset)


def test_no_acknowledgement_no_answer(client: ClusterClient, topic: str) -> None:
    part = ProduceRequestPartitionProduceData(index=0, records=bytes(batch(b"a")))
    data = ProduceRequestTopicProduceData(name=topic, partition_data=[part])
    client.leader(topic, 0).send(ProduceRequest(acks=0, timeout_ms=10_000, topic_data=[data]), 9)
    assert client.offset(topic, 0) == 1


def test_a_failed_send_without_acknowledgement_closes_the_connection(client: ClusterClient, topic: str) -> None:
    part = ProduceRequestPartitionProduceData(index=7, records=bytes(batch(b"a")))
    data = ProduceRequestTopicProduceData(name=topic, partition_data=[part])
    connection = client.leader(topic, 0)
    connection.send(ProduceRequest(acks=0, timeout_ms=10_000, topic_data=[data]), 9)
    with pytest.raises(ConnectionError):
        connection.call(ApiVersionsRequest(), 0)


def test_log_append_time_is_reported_and_stored(client: ClusterClient, unique: str) -> None:
    client.create_topic(unique, config={"message.timestamp.type": "LogAppendTime"})
    answer = client.produce(unique, 0, batch(b"a", b"b"))
    assert answer.log_append_time_ms > START_MS
    header = read_header(client.read_all(unique))
    assert header.max_timestamp == answer.log_append_time_ms
    assert header.attributes & 0x08
    assert client.produce(unique, 0, batch(b"c")).error_code == 0


def _damaged(data: bytearray) -> bytearray:
    data[-1] ^= 0xFF
    return data


def _miscounted(data: bytearray) -> bytearray:
    struct.pack_into(">i", data, 57, 5)
    struct.pack_into(">I", data, 17, crc32c.crc32c(bytes(data[21:])))
    return data


def _old_format(data: bytearray) -> bytearray:
    data[16] = 1
    return data


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (batch(b"a") + batch(b"b"), ErrorCode.INVALID_RECORD),
        (b"", ErrorCode.INVALID_RECORD),
        (_old_format(batch(b"a")), ErrorCode.INVALID_RECORD),
        (_miscounted(batch(b"a")), ErrorCode.INVALID_RECORD),
        (_damaged(batch(b"a")), ErrorCode.CORRUPT_MESSAGE),
        (batch(b"a")[:-3], ErrorCode.INVALID_RECORD),
        (batch(bytes(1_100_000)), ErrorCode.MESSAGE_TOO_LARGE),
        (batch(b"a", transactional=True, pid=9, epoch=0, seq=0), ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
    ],
    ids=["two batches", "empty", "magic 1", "count", "checksum", "cut", "too large", "transactional"],
)
def test_bad_records_are_refused(client: ClusterClient, topic: str, data: bytearray, error: ErrorCode) -> None:
    assert _send(client, topic, data) == (error, -1)
    assert client.offset(topic, 0) == 0


def test_unknown_places_and_acks_are_refused(client: ClusterClient, topic: str) -> None:
    assert _send(client, topic, batch(b"a"), acks=2) == (ErrorCode.INVALID_REQUIRED_ACKS, -1)
    part = ProduceRequestPartitionProduceData(index=9, records=bytes(batch(b"a")))
    for name in (topic, "contract-no-such-topic"):
        data = ProduceRequestTopicProduceData(name=name, partition_data=[part])
        request = ProduceRequest(acks=1, timeout_ms=10_000, topic_data=[data])
        answer = client.any_broker().call(request, 9, ProduceResponse).responses[0].partition_responses[0]
        assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_batch_of_no_transaction_is_refused(client: ClusterClient, topic: str, unique: str) -> None:
    find_coordinator(client, unique, TRANSACTION)
    foreign = batch(b"a", transactional=True, pid=9, epoch=0, seq=0)
    answer = repeat_while(  # so it says while the coordinator, which is known by now, still loads
        lambda answer: answer.error_code == ErrorCode.NOT_ENOUGH_REPLICAS,
        lambda: client.produce(topic, 0, foreign, version=9, transactional_id=unique),
    )
    assert answer.error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    owner = init_transactional_id(client, unique)
    data = batch(b"a", transactional=True, pid=owner.producer_id, epoch=owner.producer_epoch, seq=0)
    for version, error in ((9, ErrorCode.INVALID_TXN_STATE), (11, ErrorCode.TRANSACTION_ABORTABLE)):
        answer = client.produce(topic, 0, data, version=version, transactional_id=unique)
        assert ErrorCode(answer.error_code) is error


def test_a_repeat_gets_the_original_offset_and_writes_nothing(client: ClusterClient, topic: str, pid: int) -> None:
    for number in range(5):
        assert _send(client, topic, batch(b"x", b"y", pid=pid, epoch=0, seq=2 * number))[0] is ErrorCode.NONE
    for number in range(5):
        assert _send(client, topic, batch(b"x", b"y", pid=pid, epoch=0, seq=2 * number)) == (ErrorCode.NONE, 2 * number)
    assert client.offset(topic, 0) == 10


def test_a_repeat_beyond_the_last_five_is_out_of_order(client: ClusterClient, topic: str, pid: int) -> None:
    for number in range(6):
        _send(client, topic, batch(b"x", pid=pid, epoch=0, seq=number))
    assert _send(client, topic, batch(b"x", pid=pid, epoch=0, seq=0)) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)


@pytest.mark.parametrize("seq", [0, 1, 3, 100], ids=["part of the last", "its second half", "gap", "big gap"])
def test_other_sequences_are_out_of_order(client: ClusterClient, topic: str, pid: int, seq: int) -> None:
    assert _send(client, topic, batch(b"x", b"y", pid=pid, epoch=0, seq=0)) == (ErrorCode.NONE, 0)
    data = batch(b"x", pid=pid, epoch=0, seq=seq)
    assert _send(client, topic, data) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    assert _send(client, topic, batch(b"z", pid=pid, epoch=0, seq=2)) == (ErrorCode.NONE, 2)


def test_an_unknown_producer_may_begin_anywhere(client: ClusterClient, topic: str, pid: int) -> None:
    assert _send(client, topic, batch(b"x", pid=pid, epoch=7, seq=1234)) == (ErrorCode.NONE, 0)
    assert _send(client, topic, batch(b"x", pid=2**62 + pid, epoch=0, seq=9)) == (ErrorCode.NONE, 1)


def test_epochs(client: ClusterClient, topic: str, pid: int) -> None:
    assert _send(client, topic, batch(b"a", pid=pid, epoch=3, seq=5)) == (ErrorCode.NONE, 0)
    assert _send(client, topic, batch(b"b", pid=pid, epoch=4, seq=6))[0] is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert _send(client, topic, batch(b"b", pid=pid, epoch=4, seq=0)) == (ErrorCode.NONE, 1)
    assert _send(client, topic, batch(b"a", pid=pid, epoch=3, seq=5))[0] is ErrorCode.INVALID_PRODUCER_EPOCH
    assert _send(client, topic, batch(b"c", pid=pid, epoch=3, seq=6))[0] is ErrorCode.INVALID_PRODUCER_EPOCH
    assert client.produce(topic, 1, batch(b"a", pid=pid, epoch=3, seq=6)).error_code == ErrorCode.NONE


def test_sequences_wrap_between_and_inside_batches(client: ClusterClient, topic: str, pid: int) -> None:
    assert _send(client, topic, batch(b"a", pid=pid, epoch=0, seq=2**31 - 2)) == (ErrorCode.NONE, 0)
    assert _send(client, topic, batch(b"b", b"c", b"d", pid=pid, epoch=0, seq=2**31 - 1)) == (ErrorCode.NONE, 1)
    assert _send(client, topic, batch(b"b", b"c", b"d", pid=pid, epoch=0, seq=2**31 - 1)) == (ErrorCode.NONE, 1)
    assert _send(client, topic, batch(b"e", pid=pid, epoch=0, seq=2)) == (ErrorCode.NONE, 4)
    other = pid + 2**61
    assert _send(client, topic, batch(b"a", pid=other, epoch=0, seq=2**31 - 1)) == (ErrorCode.NONE, 5)
    assert _send(client, topic, batch(b"b", pid=other, epoch=0, seq=0)) == (ErrorCode.NONE, 6)


def test_partitions_of_a_request_stand_alone(client: ClusterClient, topic: str) -> None:
    parts = [
        ProduceRequestPartitionProduceData(index=index, records=bytes(data))
        for index, data in ((0, batch(b"a")), (1, _damaged(batch(b"b"))), (2, batch(b"c")))
    ]
    data = ProduceRequestTopicProduceData(name=topic, partition_data=parts)
    request = ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[data])
    answers = client.leader(topic, 0).call(request, 9, ProduceResponse).responses[0].partition_responses
    by_index = {answer.index: answer.error_code for answer in answers}
    assert by_index == {0: 0, 1: ErrorCode.CORRUPT_MESSAGE, 2: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
