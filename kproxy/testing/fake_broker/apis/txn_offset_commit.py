"""TxnOffsetCommit (28): versions 0-5. Offsets of a group that move with the transaction.

The member is checked if one is named (KIP-447, version 3). A producer whose transaction the group has not joined is
refused with TRANSACTION_ABORTABLE, below version 4 INVALID_TXN_STATE; from 5 on the group joins by this (KIP-890).
"""

from kproxy.codec._generated.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from kproxy.codec.messages import ApiKey, ErrorCode
from kproxy.testing.fake_broker.consumer_groups import ANY_GENERATION, Group
from kproxy.testing.fake_broker.coordination import coordinator_error, group_of, verify
from kproxy.testing.fake_broker.fake_api import Api, Call
from kproxy.testing.fake_broker.group_members import CommittedOffset

_ABORTABLE_VERSION = 4
_JOINING_VERSION = 5


async def handle(call: Call) -> TxnOffsetCommitResponse:
    """Keep the offsets until the transaction ends."""
    request: TxnOffsetCommitRequest = call.request
    error = coordinator_error(call, request.group_id)
    group = group_of(call, request.group_id)
    if error is ErrorCode.NONE:
        error = _transaction_error(call)
    if error is ErrorCode.NONE:
        error = _member_error(request, group)
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                topic.name,
                [
                    TxnOffsetCommitResponsePartition(row.partition_index, error or _keep(call, group, topic.name, row))
                    for row in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _transaction_error(call: Call) -> ErrorCode:
    request: TxnOffsetCommitRequest = call.request
    owner = verify(call, request.transactional_id, (request.producer_id, request.producer_epoch))
    if isinstance(owner, ErrorCode):
        return ErrorCode.COORDINATOR_NOT_AVAILABLE if owner is ErrorCode.NOT_ENOUGH_REPLICAS else owner
    if owner.prepared or call.version >= _JOINING_VERSION:
        return owner.join(call.now, groups=[request.group_id])
    if request.group_id in owner.groups:
        return ErrorCode.NONE
    return ErrorCode.TRANSACTION_ABORTABLE if call.version >= _ABORTABLE_VERSION else ErrorCode.INVALID_TXN_STATE


def _member_error(request: TxnOffsetCommitRequest, group: Group) -> ErrorCode:
    if request.generation_id == ANY_GENERATION and not request.member_id:
        return ErrorCode.NONE
    return group.check_member(request.member_id, request.generation_id)


def _keep(call: Call, group: Group, name: str, part: TxnOffsetCommitRequestPartition) -> ErrorCode:
    if call.find(name, part.partition_index) is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    metadata = part.committed_metadata or ""
    if len(metadata) > call.cluster.config.offset_metadata_max_bytes:
        return ErrorCode.OFFSET_METADATA_TOO_LARGE
    offset = CommittedOffset(part.committed_offset, part.committed_leader_epoch, metadata)
    group.commit_pending(call.request.producer_id, (name, part.partition_index), offset)
    return ErrorCode.NONE


API = Api(ApiKey.TXN_OFFSET_COMMIT, (0, 5), handle)
