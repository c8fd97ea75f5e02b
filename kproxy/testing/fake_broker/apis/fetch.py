"""Fetch (1): versions 4-18.

Long poll: the response waits until min_bytes are available, max_wait_ms have passed, or a partition has an error. The
first batch found is given whole whatever the limits (KIP-74). All after it is cut by bytes, inside a batch if need be,
as a real broker cuts its file. Versions from 9 check the leader epoch, 13 and later know topics by id, 16 and later
name the new leader and its address (KIP-951). To a reader that names the leader epoch of its last record (version 12),
the response says where the log diverges from it, if it does. Records above the high watermark are not given; an offset
there is no error, one after the log's end is. For read_committed the last stable offset is the bound, and aborted
transactions below it are listed (KIP-98). Sessions (7 and later) are never created.
"""

import trio

from kproxy.codec._generated.fetch import (
    FetchRequest,
    FetchRequestFetchPartition,
    FetchRequestFetchTopic,
    FetchResponse,
    FetchResponseAbortedTransaction,
    FetchResponseEpochEndOffset,
    FetchResponseFetchableTopicResponse,
    FetchResponseLeaderIdAndEpoch,
    FetchResponseNodeEndpoint,
    FetchResponsePartitionData,
)
from kproxy.codec.messages import ApiKey, ErrorCode
from kproxy.testing.fake_broker.epochs import check_leader
from kproxy.testing.fake_broker.fake_api import Api, Call
from kproxy.testing.fake_broker.partition import Partition
from kproxy.testing.fake_broker.topics import Topic

_TOPIC_ID_VERSION = 13
_NEW_LEADER_VERSION = 16
_LEADER_ERRORS = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


async def handle(call: Call) -> FetchResponse:
    """Read at once; if that is too little, read again at each change until the time is up."""
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
        topic = _topic(call, wanted)
        answer = FetchResponseFetchableTopicResponse(topic=wanted.topic, topic_id=wanted.topic_id)
        for part in wanted.partitions:
            data = _read_partition(call, topic, part, room, first=room == request.max_bytes)
            room -= len(data.records or b"")
            answer.partitions.append(data)
            _add_endpoint(call, data, response)
        response.responses.append(answer)
    return response


def _topic(call: Call, wanted: FetchRequestFetchTopic) -> Topic | None:
    if call.version >= _TOPIC_ID_VERSION:
        return call.cluster.topic_by_id(wanted.topic_id)
    return call.cluster.topics.get(wanted.topic)


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
    answer.error_code = check_leader(call, partition, part.current_leader_epoch)
    if answer.error_code in _LEADER_ERRORS and call.version >= _NEW_LEADER_VERSION:
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


def _add_endpoint(call: Call, data: FetchResponsePartitionData, response: FetchResponse) -> None:
    node_id = data.current_leader.leader_id
    broker = call.cluster.brokers.get(node_id)
    if broker is not None and all(endpoint.node_id != node_id for endpoint in response.node_endpoints):
        endpoint = FetchResponseNodeEndpoint(node_id=node_id, host=broker.host, port=broker.port)
        response.node_endpoints.append(endpoint)


API = Api(ApiKey.FETCH, (4, 18), handle)
