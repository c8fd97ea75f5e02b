"""Heartbeat (12): versions 0-4. Keeps a member alive and informs it of a rebalance."""

from kproxy.codec._generated.heartbeat import HeartbeatRequest, HeartbeatResponse
from kproxy.codec.messages import ApiKey, ErrorCode
from kproxy.testing.fake_broker.consumer_groups import GroupState
from kproxy.testing.fake_broker.coordination import coordinator_error, group_of
from kproxy.testing.fake_broker.fake_api import Api, Call


async def handle(call: Call) -> HeartbeatResponse:
    """Take the sign of life."""
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


API = Api(ApiKey.HEARTBEAT, (0, 4), handle)
