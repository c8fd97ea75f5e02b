"""Classic consumer groups: their members, and what admin clients ask of them."""

from kproxy.codec._generated.delete_groups import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DeleteGroupsResponseDeletableGroupResult,
)
from kproxy.codec._generated.describe_groups import (
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    DescribeGroupsResponseDescribedGroup,
    DescribeGroupsResponseDescribedGroupMember,
)
from kproxy.codec._generated.heartbeat import HeartbeatRequest, HeartbeatResponse
from kproxy.codec._generated.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember
from kproxy.codec._generated.leave_group import LeaveGroupRequest, LeaveGroupResponse, LeaveGroupResponseMemberResponse
from kproxy.codec._generated.list_groups import ListGroupsRequest, ListGroupsResponse, ListGroupsResponseListedGroup
from kproxy.codec._generated.sync_group import SyncGroupRequest, SyncGroupResponse
from kproxy.codec.messages import ApiKey, ErrorCode
from kproxy.testing.fake_broker.consumer_groups import Group, GroupState
from kproxy.testing.fake_broker.coordination import coordinator_error, group_of
from kproxy.testing.fake_broker.fake_api import Call, api
from kproxy.testing.fake_broker.group_members import Member

_MEMBER_ID_REQUIRED_VERSION = 4
_MANY_LEAVE_VERSION = 3
_TYPE = "classic"
_NOT_FOUND_VERSION = 6
#: Characters of a client's own words in a member id or an error message, which have 32,767 bytes at most.
_SHOWN = 255


@api(ApiKey.JOIN_GROUP, (0, 9))
async def join_group(call: Call) -> JoinGroupResponse:
    """Enter the group and wait for the next generation, or answer at once where nothing changes.

    The classic protocol. From version 4 on a member without an id gets one with MEMBER_ID_REQUIRED and must join again
    with it (KIP-394). Version 0 has no rebalance time-out: the session time-out serves as one.
    """
    request: JoinGroupRequest = call.request
    group = group_of(call, request.group_id)
    error = _join_error(call, group)
    if error is not ErrorCode.NONE:
        return _refusal(error, request.member_id)
    member_id = request.member_id
    if not member_id:
        member_id = f"{(call.client_id or '')[:_SHOWN]}-{call.cluster.count('member'):032x}"
        if call.version >= _MEMBER_ID_REQUIRED_VERSION:
            group.pending[member_id] = call.now + request.session_timeout_ms
            return _refusal(ErrorCode.MEMBER_ID_REQUIRED, member_id)
    member = group.members.get(member_id) or _new_member(call, member_id)
    protocols = [(protocol.name, protocol.metadata) for protocol in request.protocols]
    if _changes_nothing(group, member, protocols):
        member.last_seen = call.now
        return _welcome(group, member)
    member.protocols = protocols
    member.session_timeout_ms = request.session_timeout_ms
    member.rebalance_timeout_ms = _rebalance_timeout(request)
    group.join(member, request.protocol_type, call.now)
    while member.joined:
        await group.wait(call.now)
        group.expire(call.now)
    if member.member_id not in group.members:
        return _refusal(ErrorCode.UNKNOWN_MEMBER_ID, member_id)
    return _welcome(group, member)


def _join_error(call: Call, group: Group) -> ErrorCode:
    request: JoinGroupRequest = call.request
    config = call.cluster.config
    if not request.group_id:
        return ErrorCode.INVALID_GROUP_ID
    wrong_coordinator = coordinator_error(call, request.group_id)
    if wrong_coordinator is not ErrorCode.NONE:
        return wrong_coordinator
    if not config.group_min_session_timeout_ms <= request.session_timeout_ms <= config.group_max_session_timeout_ms:
        return ErrorCode.INVALID_SESSION_TIMEOUT
    known = request.member_id in group.members or request.member_id in group.pending
    if request.member_id and not known:
        return ErrorCode.UNKNOWN_MEMBER_ID
    protocols = [(protocol.name, protocol.metadata) for protocol in request.protocols]
    if not group.supports(request.protocol_type, protocols):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    return ErrorCode.NONE


def _rebalance_timeout(request: JoinGroupRequest) -> int:
    return request.rebalance_timeout_ms if request.rebalance_timeout_ms >= 0 else request.session_timeout_ms


def _new_member(call: Call, member_id: str) -> Member:
    request: JoinGroupRequest = call.request
    return Member(
        member_id,
        request.group_instance_id,
        call.client_id or "",
        call.client_host,
        request.session_timeout_ms,
        _rebalance_timeout(request),
        call.now,
    )


def _changes_nothing(group: Group, member: Member, protocols: list[tuple[str, bytes]]) -> bool:
    """Tell whether a member asks again without news: a repeat while syncing, or a follower in a stable group."""
    if member.member_id not in group.members or member.protocols != protocols:
        return False
    if group.state is GroupState.COMPLETING:
        return True
    return group.state is GroupState.STABLE and member.member_id != group.leader


def _refusal(error: ErrorCode, member_id: str) -> JoinGroupResponse:
    return JoinGroupResponse(error_code=error, generation_id=-1, protocol_name="", member_id=member_id)


def _welcome(group: Group, member: Member) -> JoinGroupResponse:
    protocol = group.protocol or ""
    response = JoinGroupResponse(
        generation_id=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=protocol,
        leader=group.leader or "",
        member_id=member.member_id,
    )
    if member.member_id == group.leader:
        response.members = [
            JoinGroupResponseMember(
                member_id=other.member_id, group_instance_id=other.instance_id, metadata=other.metadata(protocol)
            )
            for other in group.members.values()
        ]
    return response


@api(ApiKey.SYNC_GROUP, (0, 5))
async def sync_group(call: Call) -> SyncGroupResponse:
    """Hand out a member's assignment once the leader has given it. Version 5 names the protocol, too."""
    request: SyncGroupRequest = call.request
    group = group_of(call, request.group_id)
    error = _sync_error(call, group)
    if error is not ErrorCode.NONE:
        return SyncGroupResponse(error_code=error)
    member = group.members[request.member_id]
    member.last_seen = call.now
    if group.state is GroupState.COMPLETING:
        member.synced = True
        if member.member_id == group.leader:
            given = {assignment.member_id: assignment.assignment for assignment in request.assignments}
            group.store_assignments(given, call.now)
    return await _assigned(call, group, member)


async def _assigned(call: Call, group: Group, member: Member) -> SyncGroupResponse:
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


def _sync_error(call: Call, group: Group) -> ErrorCode:
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


@api(ApiKey.HEARTBEAT, (0, 4))
async def heartbeat(call: Call) -> HeartbeatResponse:
    """Keep a member alive and inform it of a rebalance."""
    request: HeartbeatRequest = call.request
    if not request.group_id:
        return HeartbeatResponse(error_code=ErrorCode.INVALID_GROUP_ID)
    error = coordinator_error(call, request.group_id)
    if error is ErrorCode.NONE:
        group = group_of(call, request.group_id)
        error = group.check_member(request.member_id, request.generation_id)
        if error is ErrorCode.NONE:
            group.members[request.member_id].last_seen = call.now
            if group.state is GroupState.PREPARING:
                error = ErrorCode.REBALANCE_IN_PROGRESS
    return HeartbeatResponse(error_code=error)


@api(ApiKey.LEAVE_GROUP, (0, 5))
async def leave_group(call: Call) -> LeaveGroupResponse:
    """Remove the members; those who stay rebalance.

    Version 3 and later remove several members at once, each with its own error.
    """
    request: LeaveGroupRequest = call.request
    error = coordinator_error(call, request.group_id) if request.group_id else ErrorCode.INVALID_GROUP_ID
    if error is not ErrorCode.NONE:
        return LeaveGroupResponse(error_code=error)
    group = group_of(call, request.group_id)
    if call.version < _MANY_LEAVE_VERSION:
        return LeaveGroupResponse(error_code=_leave(call, group, request.member_id))
    return LeaveGroupResponse(
        members=[
            LeaveGroupResponseMemberResponse(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                error_code=_leave(call, group, member.member_id),
            )
            for member in request.members
        ]
    )


def _leave(call: Call, group: Group, member_id: str) -> ErrorCode:
    return ErrorCode.NONE if group.remove(member_id, call.now) else ErrorCode.UNKNOWN_MEMBER_ID


@api(ApiKey.LIST_GROUPS, (0, 5))
async def list_groups(call: Call) -> ListGroupsResponse:
    """Each broker lists the groups it coordinates; version 4 filters by state, 5 by type."""
    request: ListGroupsRequest = call.request
    states = {state.lower() for state in request.states_filter}
    types = {kind.lower() for kind in request.types_filter}
    response = ListGroupsResponse()
    if types and _TYPE not in types:
        return response
    for group in call.cluster.groups.values():
        group.expire(call.now)
        mine = coordinator_error(call, group.group_id) is ErrorCode.NONE
        if mine and (not states or group.state.value.lower() in states):
            response.groups.append(
                ListGroupsResponseListedGroup(
                    group_id=group.group_id,
                    protocol_type=group.protocol_type,
                    group_state=group.state.value,
                    group_type=_TYPE,
                )
            )
    return response


@api(ApiKey.DESCRIBE_GROUPS, (0, 6))
async def describe_groups(call: Call) -> DescribeGroupsResponse:
    """An unknown group is Dead; from version 6 also GROUP_ID_NOT_FOUND (KIP-1043)."""
    request: DescribeGroupsRequest = call.request
    return DescribeGroupsResponse(groups=[_described(call, group_id) for group_id in request.groups])


def _described(call: Call, group_id: str) -> DescribeGroupsResponseDescribedGroup:
    answer = DescribeGroupsResponseDescribedGroup(group_id=group_id)
    answer.error_code = coordinator_error(call, group_id) if group_id else ErrorCode.INVALID_GROUP_ID
    if answer.error_code != ErrorCode.NONE:
        return answer
    if group_id not in call.cluster.groups:
        answer.group_state = GroupState.DEAD.value
        if call.version >= _NOT_FOUND_VERSION:
            answer.error_code = ErrorCode.GROUP_ID_NOT_FOUND
            answer.error_message = f"Group {group_id[:_SHOWN]} not found."
        return answer
    group = group_of(call, group_id)
    answer.group_state = group.state.value
    answer.protocol_type = group.protocol_type
    if group.state is GroupState.STABLE:
        answer.protocol_data = group.protocol or ""
    answer.members = _described_members(group)
    return answer


def _described_members(group: Group) -> list[DescribeGroupsResponseDescribedGroupMember]:
    stable = group.state is GroupState.STABLE
    return [
        DescribeGroupsResponseDescribedGroupMember(
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            client_id=member.client_id,
            client_host=f"/{member.client_host}",
            member_metadata=member.metadata(group.protocol or "") if stable else b"",
            member_assignment=member.assignment if stable else b"",
        )
        for member in group.members.values()
    ]


@api(ApiKey.DELETE_GROUPS, (0, 3))
async def delete_groups(call: Call) -> DeleteGroupsResponse:
    """Only a group without members is deleted, with its offsets."""
    request: DeleteGroupsRequest = call.request
    return DeleteGroupsResponse(
        results=[
            DeleteGroupsResponseDeletableGroupResult(group_id=group_id, error_code=_delete(call, group_id))
            for group_id in request.groups_names
        ]
    )


def _delete(call: Call, group_id: str) -> ErrorCode:
    error = coordinator_error(call, group_id)
    if error is not ErrorCode.NONE:
        return error
    if group_id not in call.cluster.groups:
        return ErrorCode.GROUP_ID_NOT_FOUND
    if group_of(call, group_id).members:
        return ErrorCode.NON_EMPTY_GROUP
    del call.cluster.groups[group_id]
    return ErrorCode.NONE
