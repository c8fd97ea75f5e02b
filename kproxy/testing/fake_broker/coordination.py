"""What the group APIs share: finding the group, and refusing when another broker coordinates it."""

from kproxy.codec.messages import ErrorCode
from kproxy.testing.fake_broker.api import Call
from kproxy.testing.fake_broker.groups import Group


def coordinator_error(call: Call, key: str) -> ErrorCode:
    """Return NOT_COORDINATOR unless the broker that was asked coordinates ``key``."""
    broker = call.cluster.coordinator_of(key)
    if broker is None or broker.node_id != call.broker_id:
        return ErrorCode.NOT_COORDINATOR
    return ErrorCode.NONE


def group_of(call: Call, group_id: str) -> Group:
    """Return the group with its due time-outs applied; an unknown one is a fresh empty group, not yet stored."""
    group = call.cluster.groups.get(group_id)
    if group is None:
        group = Group(group_id)
        if group_id and call.request.API_KEY in _CREATING and coordinator_error(call, group_id) is ErrorCode.NONE:
            call.cluster.groups[group_id] = group
    group.expire(call.now)
    return group


_CREATING = (8, 11)
"""OffsetCommit and JoinGroup bring a group into being."""
