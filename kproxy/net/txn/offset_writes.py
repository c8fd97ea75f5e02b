"""Offsets that a transaction of kproxy's has committed, written to the broker's own group offsets.

They are written by a transaction of the broker's own, under a transactional id for each group. Live groups accept it in
any generation (they refuse a plain commit of a non-member). Initializing the id again fences all earlier writers, so no
delayed writer can move a group back. Brokers without transactions, or that do not let kproxy use them, get a plain
commit, which is not fenced.
"""

from collections.abc import Mapping
from typing import Any, Final, TypeVar

import structlog

from kproxy.codec._generated.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from kproxy.codec._generated.end_txn import EndTxnRequest, EndTxnResponse
from kproxy.codec._generated.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kproxy.codec._generated.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kproxy.codec._generated.transaction_offsets import TransactionOffsetsPartition
from kproxy.codec._generated.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from kproxy.codec.error_codes import NO_TOPIC
from kproxy.codec.messages import ApiKey, ErrorCode, Message, response_class
from kproxy.codec.topic_partition import TopicPartition
from kproxy.net.brokers.cluster import Cluster
from kproxy.net.brokers.coordinators import TRANSACTION, errors_in
from kproxy.txn.ids import Producer
from kproxy.txn.logged_group_offsets import Unmirrored

Offsets = Mapping[TopicPartition, TransactionOffsetsPartition]
T = TypeVar("T", bound=Message)

log = structlog.get_logger("kproxy.group_offsets")

#: Before the groups' ids.
PREFIX: Final = "__kproxy_group_offsets."
_TIMEOUT_MS: Final = 10_000
#: The versions of a client that joins groups to its transaction by AddOffsetsToTxn; they keep its epoch (KIP-890).
_INIT, _ADD, _COMMIT, _END = 4, 3, 3, 3
#: OffsetCommit before topics are named by ids.
_PLAIN: Final = 9


async def fence(cluster: Cluster, group_id: str) -> Producer | None:
    """Ends all writes of a group that are in flight, and begins again; None if kproxy may not use transactions.

    After this, all that was committed before is visible, and no reader of the older log can write any more. OSError,
    RemoteProtocolError if that fails.
    """
    if ApiKey.TXN_OFFSET_COMMIT not in (await cluster.coordinators.broker(group_id))[1]:
        return None
    request = InitProducerIdRequest(PREFIX + group_id, _TIMEOUT_MS)
    refused = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    answer = await _ask(cluster, group_id, request, InitProducerIdResponse, _INIT, refused)
    if answer.error_code == refused:
        grant = f"Write on transactional ids that begin with {PREFIX}, to kproxy's principal"
        log.warning("group offsets of transactions are written unfenced", group_id=group_id, grant=grant)
        return None
    return Producer(answer.producer_id, answer.producer_epoch)


async def write(cluster: Cluster, group_id: str, producer: Producer | None, unmirrored: Unmirrored) -> None:
    """Writes offsets, and returns when they are there. OSError, RemoteProtocolError if they may not be."""
    if producer is None:
        await _write_plainly(cluster, group_id, unmirrored)
        return
    name = PREFIX + group_id
    await _ask(cluster, group_id, AddOffsetsToTxnRequest(name, *producer, group_id), AddOffsetsToTxnResponse, _ADD)
    topics = _topics(unmirrored.offsets, TxnOffsetCommitRequestTopic, TxnOffsetCommitRequestPartition)
    request = TxnOffsetCommitRequest(name, group_id, *producer, topics=topics)
    _check(group_id, await _commit(cluster, group_id, request, _COMMIT))
    await _ask(cluster, group_id, EndTxnRequest(name, *producer, True), EndTxnResponse, _END)
    await fence(cluster, group_id)  # the end is answered before it can be seen everywhere; this is not


async def _ask(
    cluster: Cluster, group_id: str, request: Message, kind: type[T], newest: int, told: int = ErrorCode.NONE
) -> T:
    """The response; OSError if it has another error than ``told``."""
    answer = await cluster.coordinators.ask(PREFIX + group_id, request, kind, (0, newest), key_type=TRANSACTION)
    _check(group_id, {*errors_in(answer)} - {told})
    return answer


async def _commit(cluster: Cluster, group_id: str, request: Any, newest: int) -> set[int]:
    """The errors; metadata that the broker finds too long are left out."""
    for _ in range(2):
        kind = response_class(request.API_KEY)
        answer = await cluster.coordinators.ask(group_id, request, kind, (0, newest), trim=_trim)
        errors = {*errors_in(answer)} - NO_TOPIC  # the offsets of a partition are deleted with it
        if ErrorCode.OFFSET_METADATA_TOO_LARGE not in errors:
            break
        for topic in request.topics:
            for row in topic.partitions:
                row.committed_metadata = ""
    return errors


def _trim(request: Any, version: int) -> None:
    """Leader epochs came with OffsetCommit v6 and TxnOffsetCommit v2, static members with OffsetCommit v7."""
    is_plain = isinstance(request, OffsetCommitRequest)
    if version < (6 if is_plain else 2):
        for topic in request.topics:
            for row in topic.partitions:
                row.committed_leader_epoch = -1
    if is_plain and version < 7:
        request.group_instance_id = None


async def _write_plainly(cluster: Cluster, group_id: str, unmirrored: Unmirrored) -> None:
    """Commits as the member that committed before, if the group still knows it; else as nobody, for an empty group."""
    topics = _topics(unmirrored.offsets, OffsetCommitRequestTopic, OffsetCommitRequestPartition)
    member = unmirrored.newest
    assert member is not None
    named = (member.generation_id, member.member_id, member.group_instance_id)
    errors: set[int] = set()
    for generation_id, member_id, instance_id in dict.fromkeys((named, (-1, "", None))):
        request = OffsetCommitRequest(group_id, generation_id, member_id, instance_id, topics=topics)
        errors = await _commit(cluster, group_id, request, _PLAIN)
        if not errors:
            return
    _check(group_id, errors)


def _topics(offsets: Offsets, new_topic: Any, new_row: Any) -> list[Any]:
    topics: dict[str, Any] = {}
    for (name, index), row in offsets.items():
        topic = topics.setdefault(name, new_topic(name=name))
        topic.partitions.append(
            new_row(
                partition_index=index,
                committed_offset=row.offset,
                committed_leader_epoch=row.leader_epoch,
                committed_metadata=row.metadata,
            )
        )
    return list(topics.values())


def _check(group_id: str, errors: set[int]) -> None:
    if errors:
        raise OSError(f"offsets of group {group_id} can't be written: {sorted(errors)}")
