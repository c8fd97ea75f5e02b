"""Whether a consumer group has moved on since its offsets were read (KIP-447)."""

from typing import Any, Final

from kproxy.codec._generated.consumer_group_describe import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
from kproxy.codec._generated.heartbeat import HeartbeatRequest, HeartbeatResponse
from kproxy.codec._generated.streams_group_describe import StreamsGroupDescribeRequest, StreamsGroupDescribeResponse
from kproxy.codec._generated.transaction_offsets import TransactionOffsets
from kproxy.codec.messages import ErrorCode, Message
from kproxy.codec.version_choice import NoCommonVersion
from kproxy.errors import RemoteProtocolError
from kproxy.net.brokers.cluster import Cluster

_NO_GENERATION: Final = -1
#: Static membership is younger than Heartbeat (KIP-345).
_FIRST_STATIC: Final = 3
#: The members are asked to join again: until they do, the generation is the one that it was.
_STILL_THERE: Final = frozenset({ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS})
#: Requests that report the epochs of members: each knows its own kind of group, and no members of others.
_DESCRIBED_BY: Final = (
    (ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse),
    (StreamsGroupDescribeRequest, StreamsGroupDescribeResponse),
)


async def check_member(cluster: Cluster, offsets: TransactionOffsets) -> int:
    """The error that Kafka's TxnOffsetCommit has for a member or generation that is not current, else 0.

    Nothing is checked where neither was named. COORDINATOR_NOT_AVAILABLE if nobody can be asked now.
    """
    if offsets.generation_id == _NO_GENERATION and not offsets.member_id:
        return ErrorCode.NONE
    request = HeartbeatRequest(
        offsets.group_id, offsets.generation_id, offsets.member_id, group_instance_id=offsets.group_instance_id
    )
    try:
        answer = await cluster.coordinators.ask(offsets.group_id, request, HeartbeatResponse, trim=_trim)
    except (OSError, RemoteProtocolError):
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID:
        return await _check_epoch(cluster, offsets)
    return ErrorCode.NONE if answer.error_code in _STILL_THERE else answer.error_code


def _trim(request: HeartbeatRequest, version: int) -> None:
    if version < _FIRST_STATIC:
        request.group_instance_id = None


async def _check_epoch(cluster: Cluster, offsets: TransactionOffsets) -> int:
    """Checks offsets of a group whose members have epochs (KIP-848, KIP-1071); Heartbeat does not know them.

    Their own heartbeats are not for others than the member: the response may be the one that has a new assignment.
    """
    for kind, told in _DESCRIBED_BY:
        request: Message = kind([offsets.group_id])
        try:
            answer: Any = await cluster.coordinators.ask(offsets.group_id, request, told)
        except NoCommonVersion:
            continue
        except (OSError, RemoteProtocolError):
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        epochs = {member.member_id: member.member_epoch for group in answer.groups for member in group.members}
        if offsets.member_id in epochs:
            is_current = epochs[offsets.member_id] == offsets.generation_id
            return ErrorCode.NONE if is_current else ErrorCode.STALE_MEMBER_EPOCH
    return ErrorCode.UNKNOWN_MEMBER_ID
