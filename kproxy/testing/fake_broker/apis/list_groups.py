"""ListGroups (16): versions 0-5. Each broker lists the groups it coordinates; 4 filters by state, 5 by type."""

from kproxy.codec._generated.list_groups import ListGroupsRequest, ListGroupsResponse, ListGroupsResponseListedGroup
from kproxy.codec.messages import ApiKey, ErrorCode
from kproxy.testing.fake_broker.coordination import coordinator_error
from kproxy.testing.fake_broker.fake_api import Api, Call

_TYPE = "classic"


async def handle(call: Call) -> ListGroupsResponse:
    """List the groups of the broker that was asked."""
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


API = Api(ApiKey.LIST_GROUPS, (0, 5), handle)
