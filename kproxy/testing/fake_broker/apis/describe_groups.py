"""DescribeGroups (15): versions 0-6. An unknown group is Dead; from version 6 also GROUP_ID_NOT_FOUND (KIP-1043)."""

from kproxy.codec._generated.describe_groups import (
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    DescribeGroupsResponseDescribedGroup,
    DescribeGroupsResponseDescribedGroupMember,
)
from kproxy.codec.messages import ApiKey, ErrorCode
from kproxy.testing.fake_broker.consumer_groups import Group, GroupState
from kproxy.testing.fake_broker.coordination import coordinator_error, group_of
from kproxy.testing.fake_broker.fake_api import Api, Call

_NOT_FOUND_VERSION = 6
#: An error message is a string of 32,767 bytes at most.
_SHOWN = 255


async def handle(call: Call) -> DescribeGroupsResponse:
    """Describe each group."""
    request: DescribeGroupsRequest = call.request
    return DescribeGroupsResponse(groups=[_describe(call, group_id) for group_id in request.groups])


def _describe(call: Call, group_id: str) -> DescribeGroupsResponseDescribedGroup:
    answer = DescribeGroupsResponseDescribedGroup(group_id=group_id)
    answer.error_code = coordinator_error(call, group_id) if group_id else ErrorCode.INVALID_GROUP_ID
    if answer.error_code != ErrorCode.NONE:
        return answer
    if group_id not in call.cluster.groups:
        answer.group_state = GroupState.DEAD.value
        if call.version >= _NOT_FOUND_VERSION:
            answer.error_code, answer.error_message = (
                ErrorCode.GROUP_ID_NOT_FOUND,
                f"Group {group_id[:_SHOWN]} not found.",
            )
        return answer
    group = group_of(call, group_id)
    answer.group_state = group.state.value
    answer.protocol_type = group.protocol_type
    if group.state is GroupState.STABLE:
        answer.protocol_data = group.protocol or ""
    answer.members = _members(group)
    return answer


def _members(group: Group) -> list[DescribeGroupsResponseDescribedGroupMember]:
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


API = Api(ApiKey.DESCRIBE_GROUPS, (0, 6), handle)
