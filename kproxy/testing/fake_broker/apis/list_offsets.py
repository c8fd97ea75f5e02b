"""ListOffsets (2): versions 1-11.

Timestamps: -1 latest, -2 earliest, -3 (version 7) the record with the newest time, -4 (8) earliest local, which is the
earliest without tiered storage, -5 (9) and -6 (11) concern tiers and answer "none"; 0 and above: the first record of
that time or later. Nothing found, or only above the high watermark, for read_committed the last stable offset:
offset -1, no error.
"""

from kproxy.codec._generated.list_offsets import (
    ListOffsetsRequest,
    ListOffsetsRequestListOffsetsPartition,
    ListOffsetsResponse,
    ListOffsetsResponseListOffsetsPartitionResponse,
    ListOffsetsResponseListOffsetsTopicResponse,
)
from kproxy.codec.messages import ApiKey, ErrorCode
from kproxy.testing.fake_broker.epochs import check_leader
from kproxy.testing.fake_broker.fake_api import Api, Call
from kproxy.testing.fake_broker.partition import Partition
from kproxy.testing.fake_broker.partition_log import FoundOffset

_LATEST = -1
_EARLIEST = -2
_MAX_TIMESTAMP = -3
_EARLIEST_LOCAL = -4
_LEADER_EPOCH_VERSION = 4
_READ_COMMITTED = 1
_FIRST_VERSION = {_LATEST: 1, _EARLIEST: 1, _MAX_TIMESTAMP: 7, _EARLIEST_LOCAL: 8, -5: 9, -6: 11}


async def handle(call: Call) -> ListOffsetsResponse:
    """Look every partition up."""
    request: ListOffsetsRequest = call.request
    response = ListOffsetsResponse()
    for topic in request.topics:
        answers = [_look_up(call, topic.name, part) for part in topic.partitions]
        response.topics.append(ListOffsetsResponseListOffsetsTopicResponse(name=topic.name, partitions=answers))
    return response


def _look_up(
    call: Call, name: str, part: ListOffsetsRequestListOffsetsPartition
) -> ListOffsetsResponseListOffsetsPartitionResponse:
    answer = ListOffsetsResponseListOffsetsPartitionResponse(partition_index=part.partition_index)
    found = call.find(name, part.partition_index)
    if call.version < _FIRST_VERSION.get(part.timestamp, 1 if part.timestamp >= 0 else call.version + 1):
        answer.error_code = ErrorCode.UNSUPPORTED_VERSION
    elif found is None:
        answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    else:
        answer.error_code = check_leader(call, found[1], part.current_leader_epoch)
        if answer.error_code == ErrorCode.NONE:
            offset = _offset(found[1], part.timestamp, _end(call, found[1]))
            if offset is not None:
                answer.offset, answer.timestamp = offset.offset, offset.timestamp
                answer.leader_epoch = offset.leader_epoch if call.version >= _LEADER_EPOCH_VERSION else -1
    return answer


def _end(call: Call, partition: Partition) -> int:
    """Return the offset after the last record that the reader may see."""
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


API = Api(ApiKey.LIST_OFFSETS, (1, 11), handle)
