"""OffsetFetch (9): versions 1-10. Null topics (2 and later) ask for all offsets; 8 for many groups; 10 by topic id.

Nothing committed: offset -1, no error. From 7 on clients may ask for stable offsets (KIP-447): UNSTABLE_OFFSET_COMMIT
where an open transaction has one.
"""

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
from kproxy.codec.messages import ApiKey, ErrorCode
from kproxy.testing.fake_broker.consumer_groups import Group
from kproxy.testing.fake_broker.coordination import coordinator_error, group_of
from kproxy.testing.fake_broker.fake_api import Api, Call
from kproxy.testing.fake_broker.group_members import CommittedOffset

_GROUPS_VERSION = 8
_TOPIC_ID_VERSION = 10
_GROUP_ERROR_VERSION = 2
_NONE = CommittedOffset(-1, -1, "")


async def handle(call: Call) -> OffsetFetchResponse:
    """Tell what was committed."""
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


def _find(call: Call, group: Group, place: tuple[str, int]) -> tuple[CommittedOffset, ErrorCode]:
    if call.request.require_stable and group.is_unstable(place):
        return _NONE, ErrorCode.UNSTABLE_OFFSET_COMMIT
    return group.offsets.get(place, _NONE), ErrorCode.NONE


def _fetch_topic(
    call: Call, group: Group, wanted: OffsetFetchRequestTopic, error: ErrorCode
) -> OffsetFetchResponseTopic:
    answer = OffsetFetchResponseTopic(name=wanted.name)
    for index in wanted.partition_indexes:
        found, unstable = (_NONE, error) if error is not ErrorCode.NONE else _find(call, group, (wanted.name, index))
        answer.partitions.append(
            OffsetFetchResponsePartition(
                partition_index=index,
                committed_offset=found.offset,
                committed_leader_epoch=found.leader_epoch,
                metadata=found.metadata,
                error_code=unstable,
            )
        )
    return answer


def _fetch_group(call: Call, wanted: OffsetFetchRequestGroup) -> OffsetFetchResponseGroup:
    error = coordinator_error(call, wanted.group_id)
    answer = OffsetFetchResponseGroup(group_id=wanted.group_id, error_code=error)
    if error is not ErrorCode.NONE:
        return answer
    group = group_of(call, wanted.group_id)
    for name, topic_id, indexes in _places(call, group, wanted):
        topic = OffsetFetchResponseTopics(name=name, topic_id=topic_id)
        unknown = call.version >= _TOPIC_ID_VERSION and call.cluster.topic_by_id(topic_id) is None
        for index in indexes:
            found, unstable = _find(call, group, (name, index))
            topic.partitions.append(
                OffsetFetchResponsePartitions(
                    partition_index=index,
                    committed_offset=found.offset,
                    committed_leader_epoch=found.leader_epoch,
                    metadata=found.metadata,
                    error_code=ErrorCode.UNKNOWN_TOPIC_ID if unknown else unstable,
                )
            )
        answer.topics.append(topic)
    return answer


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


API = Api(ApiKey.OFFSET_FETCH, (1, 10), handle)
