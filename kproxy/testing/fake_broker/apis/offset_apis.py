"""Offsets that consumer groups commit, by themselves or in a transaction."""

from typing import TypeVar

from kproxy.codec._generated.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from kproxy.codec._generated.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from kproxy.codec._generated.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from kproxy.codec._generated.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from kproxy.codec.messages import ApiKey, ErrorCode
from kproxy.testing.fake_broker.consumer_groups import ANY_GENERATION, Group, GroupState
from kproxy.testing.fake_broker.coordination import coordinator_error, group_of, verify
from kproxy.testing.fake_broker.fake_api import Call, api
from kproxy.testing.fake_broker.group_members import CommittedOffset
from kproxy.testing.fake_broker.partition import Topic

_Row = TypeVar("_Row", OffsetFetchResponsePartition, OffsetFetchResponsePartitions)
_TOPIC_ID_VERSION = 10
_GROUPS_VERSION = 8
_GROUP_ERROR_VERSION = 2
_NOTHING = CommittedOffset(-1, -1, "")
_ABORTABLE_VERSION = 4
_JOINING_VERSION = 5
_TXN_TOPIC_ID_VERSION = 6


@api(ApiKey.OFFSET_COMMIT, (2, 10))
async def offset_commit(call: Call) -> OffsetCommitResponse:
    """Version 10 names topics by id.

    A member commits under its generation; without members, anyone may commit with generation -1.
    """
    request: OffsetCommitRequest = call.request
    error = coordinator_error(call, request.group_id)
    group = group_of(call, request.group_id)
    if error is ErrorCode.NONE:
        error = _member_error(call, group)
    return OffsetCommitResponse(topics=[_commit_topic(call, group, topic, error) for topic in request.topics])


def _member_error(call: Call, group: Group) -> ErrorCode:
    request: OffsetCommitRequest = call.request
    if not group.members:
        return ErrorCode.NONE if request.generation_id_or_member_epoch < 0 else ErrorCode.ILLEGAL_GENERATION
    error = group.check_member(request.member_id, request.generation_id_or_member_epoch)
    if error is ErrorCode.NONE:
        group.members[request.member_id].last_seen = call.now
        if group.state is GroupState.COMPLETING:
            error = ErrorCode.REBALANCE_IN_PROGRESS
    return error


def _commit_topic(
    call: Call, group: Group, wanted: OffsetCommitRequestTopic, error: ErrorCode
) -> OffsetCommitResponseTopic:
    by_id = call.version >= _TOPIC_ID_VERSION
    topic = call.cluster.topic_by_id(wanted.topic_id) if by_id else call.cluster.topics.get(wanted.name)
    if topic is None and by_id:
        error = ErrorCode.UNKNOWN_TOPIC_ID
    answer = OffsetCommitResponseTopic(name=wanted.name, topic_id=wanted.topic_id)
    for part in wanted.partitions:
        outcome = error if error is not ErrorCode.NONE else _commit(call, group, topic, part)
        answer.partitions.append(
            OffsetCommitResponsePartition(partition_index=part.partition_index, error_code=outcome)
        )
    return answer


def _commit(call: Call, group: Group, topic: Topic | None, part: OffsetCommitRequestPartition) -> ErrorCode:
    if topic is None or not 0 <= part.partition_index < len(topic.partitions):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    committed = _committed_by(call, part)
    if committed is None:
        return ErrorCode.OFFSET_METADATA_TOO_LARGE
    group.commit((topic.name, part.partition_index), committed)
    return ErrorCode.NONE


def _committed_by(
    call: Call, part: OffsetCommitRequestPartition | TxnOffsetCommitRequestPartition
) -> CommittedOffset | None:
    """Return what a request commits for a partition; None if its metadata are too long."""
    metadata = part.committed_metadata or ""
    fits = len(metadata) <= call.cluster.config.offset_metadata_max_bytes
    return CommittedOffset(part.committed_offset, part.committed_leader_epoch, metadata) if fits else None


@api(ApiKey.OFFSET_DELETE, (0, 0))
async def offset_delete(call: Call) -> OffsetDeleteResponse:
    """A group with members keeps the offsets of the topics that they are subscribed to."""
    request: OffsetDeleteRequest = call.request
    error = coordinator_error(call, request.group_id)
    if error is not ErrorCode.NONE:
        return OffsetDeleteResponse(error_code=error)
    if request.group_id not in call.cluster.groups:
        return OffsetDeleteResponse(error_code=ErrorCode.GROUP_ID_NOT_FOUND)
    group = group_of(call, request.group_id)
    subscribed = group.subscribed_topics
    if group.members and subscribed is None:
        return OffsetDeleteResponse(error_code=ErrorCode.NON_EMPTY_GROUP)
    topics = []
    for topic in request.topics:
        rows = []
        for index in (row.partition_index for row in topic.partitions):
            outcome = ErrorCode.NONE
            known = call.cluster.topics.get(topic.name)
            if known is None or not 0 <= index < len(known.partitions):
                outcome = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif topic.name in (subscribed or ()):
                outcome = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
            else:
                group.offsets.pop((topic.name, index), None)
            rows.append(OffsetDeleteResponsePartition(index, outcome))
        topics.append(OffsetDeleteResponseTopic(topic.name, rows))
    return OffsetDeleteResponse(topics=topics)


@api(ApiKey.OFFSET_FETCH, (1, 10))
async def offset_fetch(call: Call) -> OffsetFetchResponse:
    """Null topics (2 and later) ask for all offsets; 8 for many groups; 10 by topic id.

    Nothing committed: offset -1, no error. From 7 on clients may ask for stable offsets (KIP-447):
    UNSTABLE_OFFSET_COMMIT where an open transaction has one.
    """
    request: OffsetFetchRequest = call.request
    if call.version >= _GROUPS_VERSION:
        return OffsetFetchResponse(groups=[_fetch_group(call, group) for group in request.groups])
    error = coordinator_error(call, request.group_id)
    response = OffsetFetchResponse(error_code=error if call.version >= _GROUP_ERROR_VERSION else ErrorCode.NONE)
    group = group_of(call, request.group_id)
    wanted = request.topics
    if wanted is None:
        wanted = [
            OffsetFetchRequestTopic(name=name, partition_indexes=indexes) for name, indexes in _committed(group).items()
        ]
    if error is ErrorCode.NONE or call.version < _GROUP_ERROR_VERSION:
        response.topics = [_fetch_topic(call, group, topic, error) for topic in wanted]
    return response


def _committed(group: Group) -> dict[str, list[int]]:
    places: dict[str, list[int]] = {}
    for name, index in sorted(group.offsets):
        places.setdefault(name, []).append(index)
    return places


def _fetch_topic(
    call: Call, group: Group, wanted: OffsetFetchRequestTopic, error: ErrorCode
) -> OffsetFetchResponseTopic:
    rows = [
        _fetch_row(OffsetFetchResponsePartition, call, group, (wanted.name, index), error)
        for index in wanted.partition_indexes
    ]
    return OffsetFetchResponseTopic(name=wanted.name, partitions=rows)


def _fetch_group(call: Call, wanted: OffsetFetchRequestGroup) -> OffsetFetchResponseGroup:
    answer = OffsetFetchResponseGroup(wanted.group_id, error_code=coordinator_error(call, wanted.group_id))
    if answer.error_code:
        return answer
    group = group_of(call, wanted.group_id)
    for name, topic_id, indexes in _places(call, group, wanted):
        unknown = call.version >= _TOPIC_ID_VERSION and call.cluster.topic_by_id(topic_id) is None
        error = ErrorCode.UNKNOWN_TOPIC_ID if unknown else ErrorCode.NONE
        rows = [_fetch_row(OffsetFetchResponsePartitions, call, group, (name, index), error) for index in indexes]
        answer.topics.append(OffsetFetchResponseTopics(name=name, topic_id=topic_id, partitions=rows))
    return answer


def _fetch_row(kind: type[_Row], call: Call, group: Group, place: tuple[str, int], error: ErrorCode) -> _Row:
    found = _NOTHING if error else group.offsets.get(place, _NOTHING)
    if not error and call.request.require_stable and group.is_unstable(place):
        found, error = _NOTHING, ErrorCode.UNSTABLE_OFFSET_COMMIT
    return kind(place[1], found.offset, found.leader_epoch, found.metadata, error)


def _places(call: Call, group: Group, wanted: OffsetFetchRequestGroup) -> list[tuple[str, bytes, list[int]]]:
    """Return (name, id, partitions) of each topic asked for."""
    if wanted.topics is None:
        topics = call.cluster.topics
        return [(name, topics[name].topic_id, indexes) for name, indexes in _committed(group).items()]
    places = []
    for topic in wanted.topics:
        name = topic.name
        if call.version >= _TOPIC_ID_VERSION:
            known = call.cluster.topic_by_id(topic.topic_id)
            name = known.name if known else ""
        places.append((name, topic.topic_id, topic.partition_indexes))
    return places


@api(ApiKey.TXN_OFFSET_COMMIT, (0, 6))
async def txn_offset_commit(call: Call) -> TxnOffsetCommitResponse:
    """Offsets of a group that move with the transaction.

    The member is checked if one is named (KIP-447, version 3). A producer whose transaction the group has not joined is
    refused with TRANSACTION_ABORTABLE, below version 4 INVALID_TXN_STATE; from 5 on the group joins by this (KIP-890).
    Version 6 names topics by id (KIP-1319). What there is not is refused before anything is checked.
    """
    request: TxnOffsetCommitRequest = call.request
    group = group_of(call, request.group_id)
    named = [(wanted, _named(call, wanted)) for wanted in request.topics]
    missing = [_missing(call, topic, row.partition_index) for wanted, topic in named for row in wanted.partitions]
    error = ErrorCode.NONE if missing and all(missing) else _txn_commit_error(call, group)
    answer = TxnOffsetCommitResponse()
    for wanted, topic in named:
        rows = []
        for row in wanted.partitions:
            outcome = _missing(call, topic, row.partition_index) or error or _keep(call, group, topic, row)
            rows.append(TxnOffsetCommitResponsePartition(row.partition_index, outcome))
        answer.topics.append(TxnOffsetCommitResponseTopic(wanted.name, wanted.topic_id, rows))
    return answer


def _named(call: Call, wanted: TxnOffsetCommitRequestTopic) -> Topic | None:
    by_id = call.version >= _TXN_TOPIC_ID_VERSION
    return call.cluster.topic_by_id(wanted.topic_id) if by_id else call.cluster.topics.get(wanted.name)


def _missing(call: Call, topic: Topic | None, index: int) -> ErrorCode:
    """Return the error for a partition that there is not."""
    if topic is None and call.version >= _TXN_TOPIC_ID_VERSION:
        return ErrorCode.UNKNOWN_TOPIC_ID
    there = topic is not None and 0 <= index < len(topic.partitions)
    return ErrorCode.NONE if there else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _txn_commit_error(call: Call, group: Group) -> ErrorCode:
    """Return the error for all of a request, NONE if the offsets may be kept."""
    request: TxnOffsetCommitRequest = call.request
    error = coordinator_error(call, request.group_id)
    if error is ErrorCode.NONE:
        error = _transaction_error(call)
    return _txn_member_error(request, group) if error is ErrorCode.NONE else error


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


def _txn_member_error(request: TxnOffsetCommitRequest, group: Group) -> ErrorCode:
    if request.generation_id_or_member_epoch == ANY_GENERATION and not request.member_id:
        return ErrorCode.NONE
    return group.check_member(request.member_id, request.generation_id_or_member_epoch)


def _keep(call: Call, group: Group, topic: Topic | None, part: TxnOffsetCommitRequestPartition) -> ErrorCode:
    offset = _committed_by(call, part)
    if offset is None:
        return ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert topic is not None  # it is not missing
    group.commit_pending(call.request.producer_id, (topic.name, part.partition_index), offset)
    return ErrorCode.NONE
