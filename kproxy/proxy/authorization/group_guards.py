"""Guards of the requests of groups and of their offsets (``KafkaApis``)."""

from typing import Any, Final

from kproxy.codec._generated.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kproxy.codec._generated.delete_groups import DeleteGroupsResponseDeletableGroupResult
from kproxy.codec._generated.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from kproxy.codec._generated.find_coordinator import FindCoordinatorResponseCoordinator as Coordinator
from kproxy.codec._generated.join_group import JoinGroupResponse
from kproxy.codec._generated.offset_commit import OffsetCommitResponsePartition, OffsetCommitResponseTopic
from kproxy.codec._generated.offset_delete import OffsetDeleteResponsePartition, OffsetDeleteResponseTopic
from kproxy.codec._generated.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from kproxy.codec._generated.share_group_heartbeat import ShareGroupHeartbeatRequest
from kproxy.codec._generated.streams_group_heartbeat import StreamsGroupHeartbeatRequest
from kproxy.codec.messages import Message
from kproxy.proxy.authorization.access import Access
from kproxy.proxy.authorization.acl_rules import Operation, ResourceType
from kproxy.proxy.authorization.guards import Asked, Whole, on_name, on_topic, with_error
from kproxy.proxy.offset_fetch_overlay import FIRST_OF_GROUPS, FIRST_WHOLE_ERROR, refused_commit, refused_fetch
from kproxy.proxy.screening import PASSED, Amend, Parts, Rows, Screened

_GROUP: Final = ResourceType.GROUP
_TOPIC: Final = ResourceType.TOPIC
_READS_GROUP = Asked(Operation.READ, _GROUP, "group_id")
#: FindCoordinator's key type of transactional ids; groups and share groups are the others.
_TRANSACTION: Final = 1
_FIRST_BATCHED: Final = 4
#: From here on JoinGroup can say that there is no protocol.
_FIRST_WITHOUT_PROTOCOL: Final = 7

member = Whole(_READS_GROUP)


def _not_joined(request: Any, version: int, error: int) -> Message:
    name = None if version >= _FIRST_WITHOUT_PROTOCOL else ""
    return JoinGroupResponse(error_code=error, protocol_name=name)


join_group = Whole(_READS_GROUP, refusal=_not_joined)
offset_commit = Whole(
    _READS_GROUP,
    refusal=lambda request, _, error: refused_commit(request, error),
    rest=Parts(on_topic(Operation.READ), Rows(OffsetCommitResponseTopic, OffsetCommitResponsePartition)),
)
offset_delete = Whole(
    Asked(Operation.DELETE, _GROUP, "group_id"),
    rest=Parts(on_topic(Operation.READ), Rows(OffsetDeleteResponseTopic, OffsetDeleteResponsePartition)),
)
delete_groups = Parts(
    on_name(Operation.DELETE, _GROUP),
    lambda name, error: DeleteGroupsResponseDeletableGroupResult(name, error),
    parts=("groups_names",),
    results="results",
)


def streams_member(access: Access, request: StreamsGroupHeartbeatRequest, version: int) -> Screened:
    """Read on the group; Describe on the topics of a topology, and Create on those that the broker makes for it."""
    screened = member(access, request, version)
    if screened.answer is not None or request.topology is None:
        return screened
    for part in request.topology.subtopologies:
        made = [row.name for row in [*part.repartition_source_topics, *part.state_changelog_topics]]
        for name in [*part.source_topics, *part.repartition_sink_topics, *made]:
            error = access.error(Operation.DESCRIBE, _TOPIC, name)
            if not error and name in made and not access.sees(Operation.CREATE, ResourceType.CLUSTER):
                error = access.error(Operation.CREATE, _TOPIC, name)
            if error:
                return Screened(answer=with_error(request, version, error))
    return PASSED


def subscribing_member(
    access: Access, request: ConsumerGroupHeartbeatRequest | ShareGroupHeartbeatRequest, version: int
) -> Screened:
    """Read on the group, and Describe on the topics that are subscribed to by name (KIP-848, KIP-932)."""
    screened = member(access, request, version)
    if screened.answer is not None:
        return screened
    for name in request.subscribed_topic_names or ():
        error = access.error(Operation.DESCRIBE, _TOPIC, name)
        if error:
            return Screened(answer=with_error(request, version, error))
    return PASSED


def list_groups(access: Access, request: object, version: int) -> Screened:
    """All of them with Describe on the cluster, else those that may be described."""
    if access.sees(Operation.DESCRIBE, ResourceType.CLUSTER):
        return PASSED

    def change(answer: Any) -> None:
        answer.groups = [row for row in answer.groups if access.sees(Operation.DESCRIBE, _GROUP, row.group_id)]

    return Screened(amend=change)


def find_coordinator(access: Access, request: FindCoordinatorRequest, version: int) -> Screened:
    """Describe on the group or on the transactional id."""
    type_ = ResourceType.TRANSACTIONAL_ID if request.key_type == _TRANSACTION else _GROUP
    if version >= _FIRST_BATCHED:
        return Parts(
            on_name(Operation.DESCRIBE, type_),
            lambda key, error: Coordinator(key, -1, "", -1, error),
            parts=("coordinator_keys",),
            results="coordinators",
        )(access, request, version)
    error = access.error(Operation.DESCRIBE, type_, request.key)
    return Screened(answer=FindCoordinatorResponse(0, error, None, -1, "", -1)) if error else PASSED


# -- OffsetFetch

_UNKNOWN = (("committed_offset", -1),)
_OLD_ROWS = Rows(
    OffsetFetchResponseTopic,
    OffsetFetchResponsePartition,
    asked="partition_indexes",
    asked_index=None,
    fields=_UNKNOWN,
)
_ROWS = Rows(
    OffsetFetchResponseTopics,
    OffsetFetchResponsePartitions,
    asked="partition_indexes",
    asked_index=None,
    fields=_UNKNOWN,
)
_old_topics = Parts(on_topic(Operation.DESCRIBE), _OLD_ROWS)


def _topics_seen(access: Access) -> Amend:
    def change(answer: Any) -> None:
        names = ((row, access.name_of(row) or "") for row in answer.topics)
        answer.topics = [row for row, name in names if access.sees(Operation.DESCRIBE, _TOPIC, name)]

    return change


def offset_fetch(access: Access, request: OffsetFetchRequest, version: int) -> Screened:
    """Describe on each group and each topic; a request for all topics returns those that may be described."""
    if version >= FIRST_OF_GROUPS:
        return _fetch_groups(access, request)
    error = access.error(Operation.DESCRIBE, _GROUP, request.group_id)
    if error:
        whole = OffsetFetchResponse(error_code=error)
        return Screened(answer=whole if version >= FIRST_WHOLE_ERROR else refused_fetch(request, version, error))
    if request.topics is None:
        return Screened(amend=_topics_seen(access))
    return _old_topics(access, request, version)


def _fetch_groups(access: Access, request: OffsetFetchRequest) -> Screened:
    kept: list[OffsetFetchRequestGroup] = []
    refused: list[OffsetFetchResponseGroup] = []
    # a request may name a group twice: each rule holds for all of its rows
    filtered: set[str] = set()
    refused_topics: dict[str, list[Any]] = {}
    for group in request.groups:
        error = access.error(Operation.DESCRIBE, _GROUP, group.group_id)
        if error:
            refused.append(OffsetFetchResponseGroup(group.group_id, error_code=error))
            continue
        rest, rows = _group_topics(access, group)
        kept.append(rest)
        if group.topics is None:
            filtered.add(group.group_id)
        if rows:
            refused_topics.setdefault(group.group_id, []).extend(rows)
    if not kept:
        return Screened(answer=OffsetFetchResponse(groups=refused))
    if not (refused or filtered or refused_topics):
        return PASSED

    def amend(answer: OffsetFetchResponse) -> None:
        seen = _topics_seen(access)
        for row in answer.groups:
            if row.group_id in filtered:
                seen(row)
            row.topics.extend(refused_topics.pop(row.group_id, ()))
        answer.groups.extend(refused)

    return Screened(request=request.replaced(groups=kept), amend=amend)


def _group_topics(access: Access, group: OffsetFetchRequestGroup) -> tuple[OffsetFetchRequestGroup, list[Any]]:
    """The part of a group's request that may be asked, and the rows that refuse the rest."""
    errors = [access.topic_error(Operation.DESCRIBE, topic) for topic in group.topics or ()]
    if not any(errors):
        return group, []
    topics = group.topics or []
    rows: list[Any] = [_ROWS(topic, error) for topic, error in zip(topics, errors, strict=True) if error]
    return group.replaced(topics=[topic for topic, error in zip(topics, errors, strict=True) if not error]), rows
