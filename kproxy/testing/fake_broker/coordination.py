"""What the APIs of groups and transactions share: finding the group or the transactional id, and refusing others."""

from kproxy.codec.messages import ErrorCode
from kproxy.testing.fake_broker.consumer_groups import Group
from kproxy.testing.fake_broker.fake_api import Call
from kproxy.testing.fake_broker.transactional_ids import TransactionalId


def coordinator_error(call: Call, key: str) -> ErrorCode:
    """Return NOT_COORDINATOR unless the broker that was asked coordinates ``key``, and whether it is able to."""
    broker = call.cluster.coordinator_of(key)
    if broker is None or broker.node_id != call.broker_id:
        return ErrorCode.NOT_COORDINATOR
    return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if broker.node_id in call.cluster.loading else ErrorCode.NONE


def group_of(call: Call, group_id: str) -> Group:
    """Return the group with its due time-outs applied; an unknown one is a fresh empty group, not yet stored."""
    group = call.cluster.groups.get(group_id)
    if group is None:
        group = Group(group_id)
        if group_id and call.request.API_KEY in _CREATING and coordinator_error(call, group_id) is ErrorCode.NONE:
            call.cluster.groups[group_id] = group
    group.expire(call.now)
    return group


_CREATING = (8, 11, 28)
"""OffsetCommit, TxnOffsetCommit and JoinGroup bring a group into being."""


def unless_new(error: ErrorCode, version: int, fenced_version: int) -> ErrorCode:
    """Return INVALID_PRODUCER_EPOCH for PRODUCER_FENCED to clients that do not know that error."""
    if error is ErrorCode.PRODUCER_FENCED and version < fenced_version:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error


def verify(call: Call, transactional_id: str, producer: tuple[int, int]) -> TransactionalId | ErrorCode:
    """Return the transactional id's owner if it is this producer; what brokers ask before they append.

    While its coordinator can't be asked they say NOT_ENOUGH_REPLICAS, which every producer takes for "ask again".
    """
    broker = call.cluster.coordinator_of(transactional_id)
    if broker is None or broker.node_id in call.cluster.loading:
        return ErrorCode.NOT_ENOUGH_REPLICAS
    owner = call.cluster.transactional_ids.get(transactional_id)
    if owner is None:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    error = unless_new(owner.check(*producer), 0, 1)
    return owner if error is ErrorCode.NONE else error
