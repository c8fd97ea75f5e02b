"""LeaveGroup (13): versions 0-5. Version 3 and later remove several members at once, each with its own error."""

from kproxy.codec._generated.leave_group import LeaveGroupRequest, LeaveGroupResponse, LeaveGroupResponseMemberResponse
from kproxy.codec.messages import ApiKey, ErrorCode
from kproxy.testing.fake_broker.consumer_groups import Group
from kproxy.testing.fake_broker.coordination import coordinator_error, group_of
from kproxy.testing.fake_broker.fake_api import Api, Call

_BATCH_VERSION = 3


async def handle(call: Call) -> LeaveGroupResponse:
    """Remove the members; those who stay rebalance."""
    request: LeaveGroupRequest = call.request
    error = coordinator_error(call, request.group_id) if request.group_id else ErrorCode.INVALID_GROUP_ID
    if error is not ErrorCode.NONE:
        return LeaveGroupResponse(error_code=error)
    group = group_of(call, request.group_id)
    if call.version < _BATCH_VERSION:
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


API = Api(ApiKey.LEAVE_GROUP, (0, 5), handle)
