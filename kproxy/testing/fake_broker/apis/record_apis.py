"""Records of partitions: written, read, and found by time or leader epoch."""

from functools import partial
from typing import TypeVar

import trio

from kproxy.codec._generated.fetch import (
    FetchRequest,
    FetchRequestFetchPartition,
    FetchResponse,
    FetchResponseAbortedTransaction,
    FetchResponseEpochEndOffset,
    FetchResponseFetchableTopicResponse,
    FetchResponseLeaderIdAndEpoch,
    FetchResponseNodeEndpoint,
    FetchResponsePartitionData,
)
from kproxy.codec._generated.list_offsets import (
    ListOffsetsRequest,
    ListOffsetsRequestListOffsetsPartition,
    ListOffsetsResponse,
    ListOffsetsResponseListOffsetsPartitionResponse,
    ListOffsetsResponseListOffsetsTopicResponse,
)
from kproxy.codec._generated.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochRequestOffsetForLeaderPartition,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderEpochResponseEpochEndOffset,
    OffsetForLeaderEpochResponseOffsetForLeaderTopicResult,
)
from kproxy.codec._generated.produce import (
    ProduceRequest,
    ProduceRequestPartitionProduceData,
    ProduceResponse,
    ProduceResponseLeaderIdAndEpoch,
    ProduceResponseNodeEndpoint,
    ProduceResponsePartitionProduceResponse,
    ProduceResponseTopicProduceResponse,
)
from kproxy.codec.messages import ApiKey, ErrorCode, Message
from kproxy.testing.fake_broker.fake_api import Call, CloseConnection, api
from kproxy.testing.fake_broker.partition import Partition, Topic
from kproxy.testing.fake_broker.partition_log import FoundOffset
from kproxy.testing.fake_broker.replicated import Awaited, until_replicated
from kproxy.testing.fake_broker.stored_batches import is_transactional
from kproxy.testing.fake_broker.transactional_writes import joins, transaction_error

_Endpoint = TypeVar("_Endpoint", ProduceResponseNodeEndpoint, FetchResponseNodeEndpoint)
_ALL = -1
_TOPIC_ID_VERSION = 13
_NEW_LEADER_PRODUCE_VERSION = 10
_NEW_LEADER_FETCH_VERSION = 16
_LEADER_ERRORS = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)
_LATEST = -1
#: The replica id of a reader that is no replica, and is shown all (Kafka's ``DEBUGGING_CONSUMER_ID``).
_DEBUGGER = -2
_EARLIEST = -2
_MAX_TIMESTAMP = -3
_EARLIEST_LOCAL = -4
_LEADER_EPOCH_VERSION = 4
_READ_COMMITTED = 1
_FIRST_VERSION = {_LATEST: 1, _EARLIEST: 1, _MAX_TIMESTAMP: 7, _EARLIEST_LOCAL: 8, -5: 9, -6: 11}


def name_topics(call: Call) -> None:
    """Names the topics of a Produce request that has their ids: controls find them in all versions alike."""
    if isinstance(call.request, ProduceRequest) and call.version >= _TOPIC_ID_VERSION:
        for data in call.request.topic_data:
            topic = call.cluster.topic_by_id(data.topic_id)
            data.name = topic.name if topic is not None else ""


def identify_topics(call: Call, response: Message | None) -> None:
    """Replaces the names of topics by their ids in a response to a Produce request that had ids."""
    if isinstance(response, ProduceResponse) and call.version >= _TOPIC_ID_VERSION:
        for result in response.responses:
            topic = call.cluster.topics.get(result.name)
            if topic is not None and not any(result.topic_id):
                result.topic_id = topic.topic_id
            result.name = ""


@api(ApiKey.PRODUCE, (3, 13), advertised_from=0)
async def produce(call: Call) -> ProduceResponse | None:
    """Append every partition's batch and answer with its offset or error.

    Advertised from version 0, as Kafka 4 does for librdkafka's sake; on 0 to 2 the connection is closed. acks=1 is
    answered at once; acks=all when the high watermark has passed the batch, also if it is a repeat, or with
    REQUEST_TIMED_OUT and the offset all the same; with too few replicas in sync nothing is written, a repeat included.
    acks=0 gets no response, and a closed connection if anything failed. Version 10 and later name the new leader on
    NOT_LEADER_OR_FOLLOWER, version 13 knows topics by id. A transactional batch needs a transactional id, and is
    checked by ``transactional_writes``.
    """
    request: ProduceRequest = call.request
    response = ProduceResponse()
    awaited: list[Awaited] = []
    for data in request.topic_data:
        topic = _topic(call, data.name, data.topic_id)
        result = ProduceResponseTopicProduceResponse(name=data.name, topic_id=data.topic_id)
        result.partition_responses = [_written(call, topic, part, response, awaited) for part in data.partition_data]
        response.responses.append(result)
    call.cluster.notify()
    if request.acks == 0:
        if any(part.error_code for result in response.responses for part in result.partition_responses):
            raise CloseConnection
        return None
    if awaited:
        await until_replicated(call, awaited, request.timeout_ms)
    return response


def _topic(call: Call, name: str, topic_id: bytes) -> Topic | None:
    by_id = call.version >= _TOPIC_ID_VERSION
    return call.cluster.topic_by_id(topic_id) if by_id else call.cluster.topics.get(name)


def _written(
    call: Call,
    topic: Topic | None,
    part: ProduceRequestPartitionProduceData,
    response: ProduceResponse,
    awaited: list[Awaited],
) -> ProduceResponsePartitionProduceResponse:
    answer = ProduceResponsePartitionProduceResponse(index=part.index, base_offset=-1)
    records = memoryview(part.records or b"")
    if call.request.acks not in (_ALL, 0, 1):
        answer.error_code = ErrorCode.INVALID_REQUIRED_ACKS
    elif is_transactional(records) and call.request.transactional_id is None:
        answer.error_code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    elif topic is None or not 0 <= part.index < len(topic.partitions):
        by_id = topic is None and call.version >= _TOPIC_ID_VERSION
        answer.error_code = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    elif not call.leads(partition := topic.partitions[part.index]):
        answer.error_code = call.not_leader(partition)
        if call.version >= _NEW_LEADER_PRODUCE_VERSION and answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
            answer.current_leader = ProduceResponseLeaderIdAndEpoch(partition.leader, partition.leader_epoch)
            _add_endpoint(call, partition.leader, response.node_endpoints, ProduceResponseNodeEndpoint)
    elif is_transactional(records) and (error := transaction_error(call, partition, records, topic.name)):
        answer.error_code = error
    elif call.request.acks == _ALL and partition.under_min_isr:
        answer.error_code = ErrorCode.NOT_ENOUGH_REPLICAS
    else:
        _append(call, topic, partition, records, answer, awaited)
    return answer


def _append(
    call: Call,
    topic: Topic,
    partition: Partition,
    records: memoryview,
    answer: ProduceResponsePartitionProduceResponse,
    awaited: list[Awaited],
) -> None:
    done = partition.log.append(records, partition.leader_epoch, call.now, anywhere=not joins(call))
    answer.error_code, answer.base_offset, answer.log_append_time_ms = done.error, done.base_offset, done.append_time
    if done.error is ErrorCode.NONE:
        answer.log_start_offset = partition.log.start_offset
        if call.request.acks == _ALL and partition.high_watermark < done.end_offset:
            awaited.append(Awaited(topic, partition, done.end_offset, partial(_refuse, answer)))


def _refuse(answer: ProduceResponsePartitionProduceResponse, error: ErrorCode) -> None:
    answer.error_code = error


def _add_endpoint(call: Call, node_id: int, endpoints: list[_Endpoint], kind: type[_Endpoint]) -> None:
    """Add the broker's address, unless it is listed; none if there is no such broker."""
    broker = call.cluster.brokers.get(node_id)
    if broker is not None and all(endpoint.node_id != node_id for endpoint in endpoints):
        endpoints.append(kind(node_id=node_id, host=broker.host, port=broker.port))


@api(ApiKey.FETCH, (4, 18))
async def fetch(call: Call) -> FetchResponse:
    """Read at once; if that is too little, read again at each change until the time is up.

    Long poll: the response waits until min_bytes are available, max_wait_ms have passed, or a partition has an error.
    The first batch found is given whole whatever the limits (KIP-74). All after it is cut by bytes, inside a batch if
    need be, as a real broker cuts its file. Versions from 9 check the leader epoch, 13 and later know topics by id, 16
    and later name the new leader and its address (KIP-951). To a reader that names the leader epoch of its last record
    (version 12), the response says where the log diverges from it, if it does. Records above the high watermark are not
    given; an offset there is no error, one after the log's end is. For read_committed the last stable offset is the
    bound, and aborted transactions below it are listed (KIP-98). Sessions (7 and later) are never created.
    """
    request: FetchRequest = call.request
    if request.session_id != 0:
        return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    with trio.move_on_after(max(request.max_wait_ms, 0) / 1000):
        while not _enough(request, _read(call)):
            await call.cluster.wait_for_change()
    return _read(call)


def _enough(request: FetchRequest, response: FetchResponse) -> bool:
    partitions = [part for topic in response.responses for part in topic.partitions]
    if not partitions or any(part.error_code or part.diverging_epoch.end_offset >= 0 for part in partitions):
        return True
    return sum(len(part.records or b"") for part in partitions) >= request.min_bytes


def _read(call: Call) -> FetchResponse:
    request: FetchRequest = call.request
    response = FetchResponse()
    room = request.max_bytes
    for wanted in request.topics:
        topic = _topic(call, wanted.topic, wanted.topic_id)
        answer = FetchResponseFetchableTopicResponse(topic=wanted.topic, topic_id=wanted.topic_id)
        for part in wanted.partitions:
            data = _read_partition(call, topic, part, room, first=room == request.max_bytes)
            room -= len(data.records or b"")
            answer.partitions.append(data)
            _add_endpoint(call, data.current_leader.leader_id, response.node_endpoints, FetchResponseNodeEndpoint)
        response.responses.append(answer)
    return response


def _read_partition(
    call: Call, topic: Topic | None, part: FetchRequestFetchPartition, room: int, *, first: bool
) -> FetchResponsePartitionData:
    answer = FetchResponsePartitionData(partition_index=part.partition, high_watermark=-1, records=b"")
    answer.aborted_transactions = [] if call.request.isolation_level == 1 else None
    if topic is None or not 0 <= part.partition < len(topic.partitions):
        by_id = topic is None and call.version >= _TOPIC_ID_VERSION
        answer.error_code = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return answer
    partition = topic.partitions[part.partition]
    log = partition.log
    answer.error_code = call.check_leader(partition, part.current_leader_epoch)
    if answer.error_code in _LEADER_ERRORS and call.version >= _NEW_LEADER_FETCH_VERSION:
        answer.current_leader = FetchResponseLeaderIdAndEpoch(partition.leader, partition.leader_epoch)
    if answer.error_code == ErrorCode.NONE:
        answer.diverging_epoch = _diverging(partition, part)
    if answer.diverging_epoch.end_offset >= 0:
        return answer
    if answer.error_code == ErrorCode.NONE and not _is_there(partition, part):
        answer.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
    if answer.error_code == ErrorCode.NONE:
        answer.high_watermark = partition.high_watermark
        answer.last_stable_offset = log.transactions.stable_offset(answer.high_watermark)
        answer.log_start_offset = log.start_offset
        committed = answer.aborted_transactions is not None
        size, end = min(part.partition_max_bytes, room), answer.high_watermark
        end = answer.last_stable_offset if committed else end
        answer.records = log.read(part.fetch_offset, size, whole_first_batch=first, end=end)
        if committed and answer.records:
            answer.aborted_transactions = [
                FetchResponseAbortedTransaction(ended.producer_id, ended.first_offset)
                for ended in log.transactions.aborted(part.fetch_offset, end)
            ]
    return answer


def _is_there(partition: Partition, part: FetchRequestFetchPartition) -> bool:
    """Tell whether the log has the offset, and an epoch that is not beyond all it has."""
    log = partition.log
    return part.last_fetched_epoch <= partition.leader_epoch and log.start_offset <= part.fetch_offset <= log.end_offset


def _diverging(partition: Partition, part: FetchRequestFetchPartition) -> FetchResponseEpochEndOffset:
    """Return the epoch and the offset up to which the log is what the reader has read; -1 if it is all of that."""
    epoch = part.last_fetched_epoch
    if 0 <= epoch <= partition.leader_epoch:
        leads = epoch == partition.leader_epoch
        found, end = (epoch, partition.log.end_offset) if leads else partition.log.end_of_epoch(epoch)
        if found < epoch or end < part.fetch_offset:
            return FetchResponseEpochEndOffset(found, end)
    return FetchResponseEpochEndOffset()


@api(ApiKey.LIST_OFFSETS, (1, 11))
async def list_offsets(call: Call) -> ListOffsetsResponse:
    """Look every partition up.

    Timestamps: -1 latest, -2 earliest, -3 (version 7) the record with the newest time, -4 (8) earliest local, which is
    the earliest without tiered storage, -5 (9) and -6 (11) concern tiers and answer "none"; 0 and above: the first
    record of that time or later. Nothing found, or only above the high watermark, for read_committed the last stable
    offset: offset -1, no error.
    """
    request: ListOffsetsRequest = call.request
    response = ListOffsetsResponse()
    for topic in request.topics:
        answers = [_offset_for_time(call, topic.name, part) for part in topic.partitions]
        response.topics.append(ListOffsetsResponseListOffsetsTopicResponse(name=topic.name, partitions=answers))
    return response


def _offset_for_time(
    call: Call, name: str, part: ListOffsetsRequestListOffsetsPartition
) -> ListOffsetsResponseListOffsetsPartitionResponse:
    answer = ListOffsetsResponseListOffsetsPartitionResponse(partition_index=part.partition_index)
    found = call.find(name, part.partition_index)
    if call.version < _FIRST_VERSION.get(part.timestamp, 1 if part.timestamp >= 0 else call.version + 1):
        answer.error_code = ErrorCode.UNSUPPORTED_VERSION
    elif found is None:
        answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    else:
        answer.error_code = call.check_leader(found[1], part.current_leader_epoch)
        if answer.error_code == ErrorCode.NONE:
            offset = _offset(found[1], part.timestamp, _end(call, found[1]))
            if offset is not None:
                answer.offset, answer.timestamp = offset.offset, offset.timestamp
                answer.leader_epoch = offset.leader_epoch if call.version >= _LEADER_EPOCH_VERSION else -1
    return answer


def _end(call: Call, partition: Partition) -> int:
    """Return the offset after the last record that the reader may see; a debugger sees what is not replicated yet."""
    if call.request.replica_id == _DEBUGGER:
        return partition.log.end_offset
    end = partition.high_watermark
    committed = call.request.isolation_level == _READ_COMMITTED
    return partition.log.transactions.stable_offset(end) if committed else end


def _offset(partition: Partition, timestamp: int, end: int) -> FoundOffset | None:
    log = partition.log
    if timestamp == _LATEST:
        return FoundOffset(end, -1, partition.leader_epoch)
    if timestamp in (_EARLIEST, _EARLIEST_LOCAL):
        return FoundOffset(log.start_offset, -1, log.leader_epoch_at(log.start_offset))
    if timestamp != _MAX_TIMESTAMP and timestamp < 0:
        return None
    found = log.max_timestamp() if timestamp == _MAX_TIMESTAMP else log.find_timestamp(timestamp)
    return found if found is not None and found.offset < end else None


@api(ApiKey.OFFSET_FOR_LEADER_EPOCH, (2, 4))
async def offset_for_leader_epoch(call: Call) -> OffsetForLeaderEpochResponse:
    """Where the records of a leader epoch end (KIP-320)."""
    request: OffsetForLeaderEpochRequest = call.request
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderEpochResponseOffsetForLeaderTopicResult(
                topic=topic.topic, partitions=[_end_of_epoch(call, topic.topic, part) for part in topic.partitions]
            )
            for topic in request.topics
        ]
    )


def _end_of_epoch(
    call: Call, name: str, part: OffsetForLeaderEpochRequestOffsetForLeaderPartition
) -> OffsetForLeaderEpochResponseEpochEndOffset:
    answer = OffsetForLeaderEpochResponseEpochEndOffset(partition=part.partition)
    found = call.find(name, part.partition)
    if found is None:
        answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return answer
    partition = found[1]
    answer.error_code = call.check_leader(partition, part.current_leader_epoch)
    if answer.error_code == ErrorCode.NONE and part.leader_epoch == partition.leader_epoch:
        answer.leader_epoch, answer.end_offset = partition.leader_epoch, partition.log.end_offset
    elif answer.error_code == ErrorCode.NONE and part.leader_epoch < partition.leader_epoch:
        answer.leader_epoch, answer.end_offset = partition.log.end_of_epoch(part.leader_epoch)
    return answer
