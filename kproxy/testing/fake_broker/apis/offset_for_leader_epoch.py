"""OffsetForLeaderEpoch (23): versions 2-4. Where the records of a leader epoch end (KIP-320)."""

from kproxy.codec._generated.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochRequestOffsetForLeaderPartition,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderEpochResponseEpochEndOffset,
    OffsetForLeaderEpochResponseOffsetForLeaderTopicResult,
)
from kproxy.codec.messages import ApiKey, ErrorCode
from kproxy.testing.fake_broker.epochs import check_leader
from kproxy.testing.fake_broker.fake_api import Api, Call


async def handle(call: Call) -> OffsetForLeaderEpochResponse:
    """Look up the end of an epoch in each partition."""
    request: OffsetForLeaderEpochRequest = call.request
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderEpochResponseOffsetForLeaderTopicResult(
                topic=topic.topic, partitions=[_look_up(call, topic.topic, part) for part in topic.partitions]
            )
            for topic in request.topics
        ]
    )


def _look_up(
    call: Call, name: str, part: OffsetForLeaderEpochRequestOffsetForLeaderPartition
) -> OffsetForLeaderEpochResponseEpochEndOffset:
    answer = OffsetForLeaderEpochResponseEpochEndOffset(partition=part.partition)
    found = call.find(name, part.partition)
    if found is None:
        answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return answer
    partition = found[1]
    answer.error_code = check_leader(call, partition, part.current_leader_epoch)
    if answer.error_code == ErrorCode.NONE and part.leader_epoch == partition.leader_epoch:
        answer.leader_epoch, answer.end_offset = partition.leader_epoch, partition.log.end_offset
    elif answer.error_code == ErrorCode.NONE and part.leader_epoch < partition.leader_epoch:
        answer.leader_epoch, answer.end_offset = partition.log.end_of_epoch(part.leader_epoch)
    return answer


API = Api(ApiKey.OFFSET_FOR_LEADER_EPOCH, (2, 4), handle)
