"""The leader check that Fetch, ListOffsets and OffsetForLeaderEpoch share (KIP-320)."""

from typing import Final

from kproxy.codec.messages import ErrorCode
from kproxy.testing.fake_broker.fake_api import Call
from kproxy.testing.fake_broker.partition import Partition

_ANY_EPOCH: Final = -1


def check_leader(call: Call, partition: Partition, current_epoch: int) -> ErrorCode:
    """Return the error for a reader that believes in leader epoch ``current_epoch`` (-1: does not say)."""
    if call.is_offline(partition):
        return ErrorCode.KAFKA_STORAGE_ERROR
    if current_epoch != _ANY_EPOCH and current_epoch < partition.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if current_epoch > partition.leader_epoch:
        return ErrorCode.UNKNOWN_LEADER_EPOCH
    return ErrorCode.NONE if call.leads(partition) else ErrorCode.NOT_LEADER_OR_FOLLOWER
