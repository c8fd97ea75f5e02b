"""SyncGroup (14): versions 0-5. Followers wait for the leader's assignments. Version 5 names the protocol, too."""

from kproxy.codec._generated.sync_group import SyncGroupRequest, SyncGroupResponse
from kproxy.codec.messages import ApiKey, ErrorCode
from kproxy.testing.fake_broker.consumer_groups import Group, GroupState
from kproxy.testing.fake_broker.coordination import coordinator_error, group_of
from kproxy.testing.fake_broker.fake_api import Api, Call
from kproxy.testing.fake_broker.group_members import Member


async def handle(call: Call) -> SyncGroupResponse:
    """Hand out a member's assignment once the leader has given it."""
    request: SyncGroupRequest = call.request
    group = group_of(call, request.group_id)
    error = _error(call, group)
    if error is not ErrorCode.NONE:
        return SyncGroupResponse(error_code=error)
    member = group.members[request.member_id]
    member.last_seen = call.now
    if group.state is GroupState.COMPLETING:
        member.synced = True
        if member.member_id == group.leader:
            given = {assignment.member_id: assignment.assignment for assignment in request.assignments}
            group.store_assignments(given, call.now)
    return await _wait(call, group, member)


async def _wait(call: Call, group: Group, member: Member) -> SyncGroupResponse:
    generation = group.generation
    while member.synced and group.generation == generation:
        await group.wait(call.now)
        group.expire(call.now)
    if member.member_id not in group.members:
        return SyncGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID)
    if group.generation != generation or group.state is not GroupState.STABLE:
        return SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
    return SyncGroupResponse(
        protocol_type=group.protocol_type, protocol_name=group.protocol, assignment=member.assignment
    )


def _error(call: Call, group: Group) -> ErrorCode:
    request: SyncGroupRequest = call.request
    if not request.group_id:
        return ErrorCode.INVALID_GROUP_ID
    error = coordinator_error(call, request.group_id)
    if error is ErrorCode.NONE:
        error = group.check_member(request.member_id, request.generation_id)
    if error is ErrorCode.NONE and not _protocol_matches(request, group):
        error = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if error is ErrorCode.NONE and group.state is GroupState.PREPARING:
        error = ErrorCode.REBALANCE_IN_PROGRESS
    return error


def _protocol_matches(request: SyncGroupRequest, group: Group) -> bool:
    return request.protocol_type in (None, group.protocol_type) and request.protocol_name in (None, group.protocol)


API = Api(ApiKey.SYNC_GROUP, (0, 5), handle)
