"""Requests about transactions, between the wire's words and those of kproxy's coordinator (KIP-98)."""

from collections.abc import Container, Mapping, Sequence
from typing import Any

from kproxy.codec._generated.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResponseAddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponseAddPartitionsToTxnTopicResult,
)
from kproxy.codec._generated.transaction_offsets import (
    TransactionOffsets,
    TransactionOffsetsPartition,
    TransactionOffsetsTopic,
)
from kproxy.codec._generated.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from kproxy.codec.messages import ApiKey, ErrorCode, Message, response_class
from kproxy.codec.produce_layout import ProduceLayout, TopicRef
from kproxy.codec.records import TRANSACTIONAL
from kproxy.proxy.coordinator_requests import Produced, ProducePart
from kproxy.proxy.produce_batches import read_batch_head
from kproxy.proxy.txn_errors import wire_error
from kproxy.txn.ids import Producer
from kproxy.txn.requests import IdHolder, TxnRequest, Written

NO_PRODUCER = Producer(-1, -1)
_NO_BATCH = memoryview(b"")


def txn_request_of(request: Any, connection: int, client_id: str, holder: IdHolder) -> TxnRequest:
    """Who asks by a request that names a transactional id and a producer."""
    if isinstance(request, AddPartitionsToTxnRequest):
        client = Producer(request.v3_and_below_producer_id, request.v3_and_below_producer_epoch)
        return TxnRequest(request.v3_and_below_transactional_id, client, connection, client_id, holder)
    client = Producer(request.producer_id, request.producer_epoch)
    return TxnRequest(request.transactional_id, client, connection, client_id, holder)


def failed(request: Message, version: int, error_code: int) -> Message:
    """The response to a request of which nothing was done."""
    if isinstance(request, AddPartitionsToTxnRequest):
        return partitions_added(request, version, dict.fromkeys(places_of(request), error_code))
    if isinstance(request, TxnOffsetCommitRequest):
        return offsets_committed(request, version, error_code)
    answer: Any = response_class(request.API_KEY)()
    answer.error_code = wire_error(request.API_KEY, version, error_code)
    if request.API_KEY == ApiKey.INIT_PRODUCER_ID:
        answer.producer_epoch = -1
    response: Message = answer
    return response


# -- AddPartitionsToTxn v0-v3


def places_of(request: AddPartitionsToTxnRequest) -> list[tuple[str, int]]:
    """The partitions to add: topic and index."""
    return [(topic.name, index) for topic in request.v3_and_below_topics for index in topic.partitions]


def partitions_added(
    request: AddPartitionsToTxnRequest, version: int, errors: Mapping[tuple[str, int], int]
) -> AddPartitionsToTxnResponse:
    """The response: if some partitions have errors, none was added, and the others were not attempted."""
    rest = ErrorCode.OPERATION_NOT_ATTEMPTED if errors else ErrorCode.NONE
    topics = []
    for topic in request.v3_and_below_topics:
        rows = [
            AddPartitionsToTxnResponseAddPartitionsToTxnPartitionResult(
                index, wire_error(request.API_KEY, version, errors.get((topic.name, index), rest))
            )
            for index in topic.partitions
        ]
        topics.append(AddPartitionsToTxnResponseAddPartitionsToTxnTopicResult(topic.name, rows))
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=topics)


# -- TxnOffsetCommit


def offsets_of(request: TxnOffsetCommitRequest, names: Mapping[bytes, str]) -> TransactionOffsets:
    """The offsets as the transaction log records them; whose they are is for the coordinator to fill in.

    ``names`` of the topics that are named by ids (v6); the others of these are left out.
    """
    topics = [
        TransactionOffsetsTopic(
            topic.name or names[topic.topic_id],
            [
                TransactionOffsetsPartition(
                    row.partition_index, row.committed_offset, row.committed_leader_epoch, row.committed_metadata
                )
                for row in topic.partitions
            ],
        )
        for topic in request.topics
        if topic.name or topic.topic_id in names
    ]
    return TransactionOffsets(
        group_id=request.group_id,
        generation_id=request.generation_id_or_member_epoch,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        topics=topics,
    )


def offsets_committed(
    request: TxnOffsetCommitRequest, version: int, error_code: int, unknown: Container[bytes] = ()
) -> TxnOffsetCommitResponse:
    """The response, the same for all partitions but those of topics whose ids are ``unknown``."""
    code = wire_error(request.API_KEY, version, error_code)
    response = TxnOffsetCommitResponse()
    for topic in request.topics:
        error = ErrorCode.UNKNOWN_TOPIC_ID if topic.topic_id in unknown else code
        rows = [TxnOffsetCommitResponsePartition(row.partition_index, error) for row in topic.partitions]
        response.topics.append(TxnOffsetCommitResponseTopic(topic.name, topic.topic_id, rows))
    return response


# -- Produce


def produce_parts(frame: bytearray, layout: ProduceLayout) -> tuple[Producer, list[ProducePart]]:
    """The producer that the first whole batch names, and each partition's batch, or what is wrong with it."""
    producer = NO_PRODUCER
    parts: list[ProducePart] = []
    seen: set[tuple[TopicRef, int]] = set()
    view = memoryview(frame)
    for place in layout.partitions:
        key, start, end = place
        error, records, attributes, producer_id, epoch, sequence = read_batch_head(frame, place)
        batch = _NO_BATCH
        if not error and key in seen:
            error, sequence = ErrorCode.INVALID_RECORD, -1  # a broker takes one batch for each partition
        if not error:
            batch = view[start:end]
            if producer == NO_PRODUCER:
                producer = Producer(producer_id, epoch)
            if not attributes & TRANSACTIONAL or sequence < 0:
                error = ErrorCode.INVALID_RECORD  # without the bit a broker would show it at once, committed or not
            elif producer_id < 0 or epoch < 0 or producer != (producer_id, epoch):
                error = ErrorCode.INVALID_PRODUCER_ID_MAPPING
        seen.add(key)
        parts.append(ProducePart(*key, batch, records, sequence, error))
    return producer, parts


def produced(parts: Sequence[ProducePart], written: Sequence[Written], version: int) -> Produced:
    """The response: ``written`` holds the outcomes of the parts without an error, in their order."""
    rows: list[tuple[TopicRef, int, int, int, int]] = []
    outcomes = iter(written)
    for part in parts:
        error, offset, append_ms = (part.error_code, -1, -1) if part.error_code else next(outcomes)
        if error:
            error, offset, append_ms = wire_error(ApiKey.PRODUCE, version, error), -1, -1
        rows.append((part.topic, part.partition, error, offset, append_ms))
    return Produced(version, rows)
