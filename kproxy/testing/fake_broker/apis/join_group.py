"""JoinGroup (11): versions 0-9, classic protocol. Waits until the generation is complete.

From version 4 on a member without an id gets one with MEMBER_ID_REQUIRED and must join again with it (KIP-394).
Version 0 has no rebalance time-out: the session time-out serves as one.
"""

from kproxy.codec._generated.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember
from kproxy.codec.messages import ApiKey, ErrorCode
from kproxy.testing.fake_broker.consumer_groups import Group, GroupState
from kproxy.testing.fake_broker.coordination import coordinator_error, group_of
from kproxy.testing.fake_broker.fake_api import Api, Call
from kproxy.testing.fake_broker.group_members import Member

_MEMBER_ID_REQUIRED_VERSION = 4
#: Characters of a client.id in a member id, which is a string of 32,767 bytes at most.
_SHOWN = 255


async def handle(call: Call) -> JoinGroupResponse:
    """Enter the group and wait for the next generation, or answer at once where nothing changes."""
    request: JoinGroupRequest = call.request
    group = group_of(call, request.group_id)
    error = _error(call, group)
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


def _error(call: Call, group: Group) -> ErrorCode:
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


API = Api(ApiKey.JOIN_GROUP, (0, 9), handle)
