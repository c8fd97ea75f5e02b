"""OffsetCommit (8): versions 2-10. Version 10 names topics by id.

A member commits under its generation; without members, anyone may commit with generation -1.
"""

from kproxy.codec._generated.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from kproxy.codec.messages import ApiKey, ErrorCode
from kproxy.testing.fake_broker.consumer_groups import Group, GroupState
from kproxy.testing.fake_broker.coordination import coordinator_error, group_of
from kproxy.testing.fake_broker.fake_api import Api, Call
from kproxy.testing.fake_broker.group_members import CommittedOffset
from kproxy.testing.fake_broker.topics import Topic

_TOPIC_ID_VERSION = 10


async def handle(call: Call) -> OffsetCommitResponse:
    """Store the offsets of one group."""
    request: OffsetCommitRequest = call.request
    error = coordinator_error(call, request.group_id)
    group = group_of(call, request.group_id)
    if error is ErrorCode.NONE:
        error = _member_error(call, group)
    return OffsetCommitResponse(topics=[_commit_topic(call, group, topic, error) for topic in request.topics])


def _member_error(call: Call, group: Group) -> ErrorCode:
    request: OffsetCommitRequest = call.request
    if not group.members:
        return ErrorCode.NONE if request.generation_id_or_member_epoch < 0 else ErrorCode.ILLEGAL_GENERATION
    error = group.check_member(request.member_id, request.generation_id_or_member_epoch)
    if error is ErrorCode.NONE:
        group.members[request.member_id].last_seen = call.now
        if group.state is GroupState.COMPLETING:
            error = ErrorCode.REBALANCE_IN_PROGRESS
    return error


def _commit_topic(
    call: Call, group: Group, wanted: OffsetCommitRequestTopic, error: ErrorCode
) -> OffsetCommitResponseTopic:
    by_id = call.version >= _TOPIC_ID_VERSION
    topic = call.cluster.topic_by_id(wanted.topic_id) if by_id else call.cluster.topics.get(wanted.name)
    if topic is None and by_id:
        error = ErrorCode.UNKNOWN_TOPIC_ID
    answer = OffsetCommitResponseTopic(name=wanted.name, topic_id=wanted.topic_id)
    for part in wanted.partitions:
        outcome = error if error is not ErrorCode.NONE else _commit(call, group, topic, part)
        answer.partitions.append(
            OffsetCommitResponsePartition(partition_index=part.partition_index, error_code=outcome)
        )
    return answer


def _commit(call: Call, group: Group, topic: Topic | None, part: OffsetCommitRequestPartition) -> ErrorCode:
    if topic is None or not 0 <= part.partition_index < len(topic.partitions):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    metadata = part.committed_metadata or ""
    if len(metadata) > call.cluster.config.offset_metadata_max_bytes:
        return ErrorCode.OFFSET_METADATA_TOO_LARGE
    committed = CommittedOffset(part.committed_offset, part.committed_leader_epoch, metadata)
    group.commit((topic.name, part.partition_index), committed)
    return ErrorCode.NONE


API = Api(ApiKey.OFFSET_COMMIT, (2, 10), handle)
