"""What the APIs of groups and transactions share: finding the group or the transactional id, and refusing others."""

from kproxy.codec.messages import ErrorCode
from kproxy.testing.fake_broker.api import Call
from kproxy.testing.fake_broker.groups import Group
from kproxy.testing.fake_broker.state import TransactionalId


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


_CREATING = (8, 11, 28)
"""OffsetCommit, TxnOffsetCommit and JoinGroup bring a group into being."""


def transaction_error(call: Call, fenced_version: int) -> ErrorCode:
    """Return why the producer that a request names does not own the request's transactional id; NONE if it does.

    :param fenced_version: the first version that may say PRODUCER_FENCED.
    """
    request = call.request
    if (error := coordinator_error(call, request.transactional_id)) is not ErrorCode.NONE:
        return error
    owner = call.cluster.transactional_ids.get(request.transactional_id)
    if owner is None or owner.producer_id != request.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if owner.epoch != request.producer_epoch:
        return ErrorCode.PRODUCER_FENCED if call.version >= fenced_version else ErrorCode.INVALID_PRODUCER_EPOCH
    return ErrorCode.NONE


def end_transaction(call: Call, owner: TransactionalId, committed: bool) -> None:
    """End the open transaction of a transactional id: the offsets of its groups move, or do not."""
    for name in owner.groups:
        if name in call.cluster.groups:
            call.cluster.groups[name].end_transaction(owner.producer_id, committed)
    owner.groups.clear()
