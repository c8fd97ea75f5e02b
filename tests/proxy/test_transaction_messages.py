"""Requests about transactions in the coordinator's words, and its words in those of each version."""

import pytest

from kproxy.budget import unbounded
from kproxy.codec._generated.add_offsets_to_txn import AddOffsetsToTxnRequest
from kproxy.codec._generated.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnRequestAddPartitionsToTxnTopic,
)
from kproxy.codec._generated.end_txn import EndTxnRequest
from kproxy.codec._generated.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kproxy.codec._generated.produce import ProduceResponse
from kproxy.codec._generated.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from kproxy.codec.header import response_header_size
from kproxy.codec.messages import APIS, ApiKey, ErrorCode, Message, response_class
from kproxy.codec.produce_layout import PartitionData, ProduceLayout
from kproxy.proxy.transaction_messages import (
    failed,
    offsets_committed,
    offsets_of,
    partitions_added,
    places_of,
    produce_parts,
    produced,
    txn_request_of,
)
from kproxy.txn.ids import Producer
from kproxy.txn.requests import IdHolder, TxnRequest, Written
from tests.proxy.playbook import batch

ADD = AddPartitionsToTxnRequest(
    v3_and_below_transactional_id="id",
    v3_and_below_producer_id=4000,
    v3_and_below_producer_epoch=3,
    v3_and_below_topics=[
        AddPartitionsToTxnRequestAddPartitionsToTxnTopic("t", [0, 1]),
        AddPartitionsToTxnRequestAddPartitionsToTxnTopic("u", [5]),
    ],
)
OFFSETS = TxnOffsetCommitRequest(
    "id",
    "g",
    4000,
    3,
    7,
    "m",
    "i",
    [TxnOffsetCommitRequestTopic("t", partitions=[TxnOffsetCommitRequestPartition(1, 42, 6, "x")])],
)
ALL: list[Message] = [
    InitProducerIdRequest("id", 1000, 4000, 3),
    ADD,
    AddOffsetsToTxnRequest("id", 4000, 3, "g"),
    EndTxnRequest("id", 4000, 3, True),
    OFFSETS,
]


@pytest.mark.parametrize("request_", ALL, ids=lambda request: type(request).__name__)
def test_who_asks(request_: Message) -> None:
    holder = IdHolder("User:me")
    assert txn_request_of(request_, 8, "me", holder) == TxnRequest("id", Producer(4000, 3), 8, "me", holder)


@pytest.mark.parametrize("request_", ALL, ids=lambda request: type(request).__name__)
def test_a_failure_can_be_said_in_each_version(request_: Message) -> None:
    newest = 3 if request_ is ADD else APIS[request_.API_KEY][2]
    for version in range(newest + 1):
        answer = failed(request_, version, ErrorCode.NOT_COORDINATOR)
        again = response_class(request_.API_KEY).decode(answer.encode(version), version, unbounded())
        assert str(again).count(f"error_code={int(ErrorCode.NOT_COORDINATOR)}") == (3 if request_ is ADD else 1)


def test_a_producer_that_gets_no_id_gets_no_epoch() -> None:
    answer = failed(ALL[0], 4, ErrorCode.CONCURRENT_TRANSACTIONS)
    assert answer == InitProducerIdResponse(
        error_code=ErrorCode.CONCURRENT_TRANSACTIONS, producer_id=-1, producer_epoch=-1
    )


def test_one_refused_partition_leaves_the_others_unattempted() -> None:
    assert places_of(ADD) == [("t", 0), ("t", 1), ("u", 5)]
    answer = partitions_added(ADD, 3, {("t", 1): ErrorCode.POLICY_VIOLATION})
    told = [
        (topic.name, row.partition_index, row.partition_error_code)
        for topic in answer.results_by_topic_v3_and_below
        for row in topic.results_by_partition
    ]
    skipped = ErrorCode.OPERATION_NOT_ATTEMPTED
    assert told == [("t", 0, skipped), ("t", 1, ErrorCode.POLICY_VIOLATION), ("u", 5, skipped)]
    assert "error_code=0" in str(partitions_added(ADD, 3, {}))


def test_offsets_as_the_log_has_them() -> None:
    offsets = offsets_of(OFFSETS, {})
    assert (offsets.group_id, offsets.generation_id, offsets.member_id, offsets.group_instance_id) == ("g", 7, "m", "i")
    (topic,) = offsets.topics
    (row,) = topic.partitions
    assert (topic.name, row.index, row.offset, row.leader_epoch, row.metadata) == ("t", 1, 42, 6, "x")


def test_offsets_of_topics_with_ids() -> None:
    rows = [TxnOffsetCommitRequestPartition(0, 5)]
    topics = [TxnOffsetCommitRequestTopic(topic_id=name * 16, partitions=rows) for name in (b"t", b"u")]
    request = TxnOffsetCommitRequest("id", "g", 4000, 3, topics=topics)
    assert [topic.name for topic in offsets_of(request, {b"t" * 16: "t"}).topics] == ["t"]
    answer = offsets_committed(request, 6, ErrorCode.NONE, unknown={b"u" * 16})
    told = [(topic.topic_id[:1], topic.partitions[0].error_code) for topic in answer.topics]
    assert told == [(b"t", ErrorCode.NONE), (b"u", ErrorCode.UNKNOWN_TOPIC_ID)]


# -- Produce


def layout(*sets: bytes | None, topics: list[bytes] | None = None) -> tuple[bytearray, ProduceLayout]:
    frame, places = bytearray(), []
    for index, data in enumerate(sets):
        topic = topics[index] if topics else f"t{index}".encode()
        start = len(frame) if data is not None else -1
        frame += data or b""
        places.append(PartitionData((topic, 0), start, len(frame) if data is not None else -1))
    return frame, ProduceLayout(True, -1, 0, 1000, places)


def data(*, producer_id: int = 4000, epoch: int = 3, sequence: int = 5, transactional: bool = True) -> bytes:
    return batch(
        b"a",
        b"b",
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        is_transactional=transactional,
    )


def test_batches_with_their_producer_and_sequences() -> None:
    frame, wanted = layout(data(sequence=5), data(sequence=9))
    producer, parts = produce_parts(frame, wanted)
    assert producer == (4000, 3)
    assert [(part.topic, part.records, part.base_sequence, part.error_code) for part in parts] == [
        (b"t0", 2, 5, 0),
        (b"t1", 2, 9, 0),
    ]
    assert bytes(parts[1].batch) == data(sequence=9)
    parts[0].batch[0] = 255
    assert frame[0] == 255, "the batch is written in place"


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        (None, ErrorCode.INVALID_RECORD),
        (data()[:-1], ErrorCode.INVALID_RECORD),
        (data() + data(), ErrorCode.INVALID_RECORD),
        (data(transactional=False), ErrorCode.INVALID_RECORD),
        (data(sequence=-1), ErrorCode.INVALID_RECORD),
        (batch(b"a", producer_id=4000, producer_epoch=3, base_sequence=0, is_control=True), ErrorCode.INVALID_RECORD),
        (data(producer_id=4001), ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (data(epoch=4), ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (data(producer_id=-1, epoch=-1), ErrorCode.INVALID_PRODUCER_ID_MAPPING),
    ],
)
def test_a_bad_batch_is_refused_alone(bad: bytes | None, error: ErrorCode) -> None:
    frame, wanted = layout(data(), bad, data())
    producer, parts = produce_parts(frame, wanted)
    assert producer == (4000, 3)
    assert [part.error_code for part in parts] == [0, error, 0]


@pytest.mark.parametrize("pid", [-1, -5])
def test_batches_without_a_producer_are_refused(pid: int) -> None:
    frame, wanted = layout(data(producer_id=pid, epoch=-1))
    assert produce_parts(frame, wanted)[1][0].error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_two_batches_for_one_partition_are_one_too_many() -> None:
    frame, wanted = layout(data(), data(sequence=7), topics=[b"t", b"t"])
    assert [part.error_code for part in produce_parts(frame, wanted)[1]] == [0, ErrorCode.INVALID_RECORD]


@pytest.mark.parametrize("version", range(3, 14))
def test_each_partition_receives_its_outcome_in_each_version(version: int) -> None:
    ids = [bytes([n]) * 16 for n in range(3)]
    frame, wanted = layout(data(), data(epoch=4), data(), topics=ids if version >= 13 else None)
    _, parts = produce_parts(frame, wanted)
    written = [Written(0, 77, 123), Written(ErrorCode.PRODUCER_FENCED, -1, -1)]
    frame = bytearray(produced(parts, written, version).frame(7))
    header = 4 + response_header_size(ApiKey.PRODUCE, version, frame[4:])
    again = ProduceResponse.decode(frame[header:], version, unbounded())
    rows = [row for topic in again.responses for row in topic.partition_responses]
    assert [(row.error_code, row.base_offset) for row in rows] == [
        (0, 77),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, -1),
        (ErrorCode.INVALID_PRODUCER_EPOCH, -1),
    ]
    assert rows[0].log_append_time_ms == 123
    names = [topic.topic_id if version >= 13 else topic.name.encode() for topic in again.responses]
    assert names == (ids if version >= 13 else [b"t0", b"t1", b"t2"])
