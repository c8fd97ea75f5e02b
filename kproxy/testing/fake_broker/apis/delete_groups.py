"""DeleteGroups (42): versions 0-2. Only a group without members is deleted, with its offsets."""

from kproxy.codec._generated.delete_groups import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DeleteGroupsResponseDeletableGroupResult,
)
from kproxy.codec.messages import ApiKey, ErrorCode
from kproxy.testing.fake_broker.coordination import coordinator_error, group_of
from kproxy.testing.fake_broker.fake_api import Api, Call


async def handle(call: Call) -> DeleteGroupsResponse:
    """Delete each group."""
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


API = Api(ApiKey.DELETE_GROUPS, (0, 2), handle)
