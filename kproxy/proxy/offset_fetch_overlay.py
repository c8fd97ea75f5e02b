"""OffsetFetch answers, and what the transaction log says of the same groups laid over them.

What the log says travels in Kafka's own words, as an OffsetFetch answer with one entry for each group: offsets that are
committed and that the broker may not have yet, UNSTABLE_OFFSET_COMMIT where a transaction is undecided, an error of the
whole group where it can't be known in time, and an error of the response where the log can't be read.
"""

from collections.abc import Iterable
from typing import Any, Final

from kproxy.codec._generated.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from kproxy.codec._generated.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from kproxy.codec.messages import ErrorCode

#: From here on a request names several groups.
FIRST_OF_GROUPS: Final = 8
#: From here on clients can say that they want no offset that is being decided (KIP-447).
FIRST_STABLE: Final = 7
#: From here on topics are named by their ids.
FIRST_OF_IDS: Final = 10
#: From here on a response has an error for all of it.
FIRST_WHOLE_ERROR: Final = 2


def groups_of(request: OffsetFetchRequest, version: int) -> list[str]:
    """The groups that a request asks for."""
    return [group.group_id for group in request.groups] if version >= FIRST_OF_GROUPS else [request.group_id]


def stable_requests(request: OffsetFetchRequest, version: int) -> list[OffsetFetchRequest]:
    """The same question, each group by itself (v7, or v10 where topics are named by ids): only what is stable.

    With the partitions that the client names: a broker that is asked for all offsets of a group leaves out a partition
    whose first offset is being decided.
    """
    if version < FIRST_OF_GROUPS:
        return [OffsetFetchRequest(request.group_id, request.topics, require_stable=True)]
    if version >= FIRST_OF_IDS:
        alone = [OffsetFetchRequestGroup(group.group_id, topics=group.topics) for group in request.groups]
        return [OffsetFetchRequest(groups=[group], require_stable=True) for group in alone]
    return [OffsetFetchRequest(group.group_id, _named(group.topics), require_stable=True) for group in request.groups]


def _named(topics: list[OffsetFetchRequestTopics] | None) -> list[OffsetFetchRequestTopic] | None:
    return None if topics is None else [OffsetFetchRequestTopic(one.name, one.partition_indexes) for one in topics]


def says_something(said: OffsetFetchResponse) -> bool:
    """Whether the log says anything that the broker does not."""
    return any(group.topics or group.error_code for group in said.groups)


def refused_fetch(request: OffsetFetchRequest, version: int, error_code: int) -> OffsetFetchResponse:
    """The response where nothing can be told; clients that can retry do."""
    if version >= FIRST_OF_GROUPS:
        return OffsetFetchResponse(
            groups=[OffsetFetchResponseGroup(group.group_id, error_code=error_code) for group in request.groups]
        )
    topics = [
        OffsetFetchResponseTopic(
            topic.name,
            [OffsetFetchResponsePartition(index, -1, -1, "", error_code) for index in topic.partition_indexes],
        )
        for topic in request.topics or ()
    ]
    return OffsetFetchResponse(topics=topics, error_code=error_code if version >= FIRST_WHOLE_ERROR else 0)


def refused_commit(request: OffsetCommitRequest, error_code: int) -> OffsetCommitResponse:
    """The response where nothing was committed."""
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                topic.name,
                topic.topic_id,
                [OffsetCommitResponsePartition(row.partition_index, error_code) for row in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def overlay(
    request: OffsetFetchRequest, version: int, response: OffsetFetchResponse, said: OffsetFetchResponse
) -> OffsetFetchResponse:
    """The broker's response with what the log says in its place; what the broker refuses stays refused."""
    by_group = {group.group_id: group for group in said.groups}
    if version < FIRST_OF_GROUPS:
        group = by_group.get(request.group_id)
        if group is None or response.error_code:
            return response
        if group.error_code:
            return refused_fetch(request, version, group.error_code)
        _lay(response.topics, group, request.topics is None, OffsetFetchResponseTopic, OffsetFetchResponsePartition)
        return response
    asked_for_all = {group.group_id for group in request.groups if group.topics is None}
    for answered in response.groups:
        group = by_group.get(answered.group_id)
        if group is None or answered.error_code:
            continue
        is_all = answered.group_id in asked_for_all
        _lay(answered.topics, group, is_all, OffsetFetchResponseTopics, OffsetFetchResponsePartitions)
    return response


def _lay(topics: list[Any], said: OffsetFetchResponseGroup, is_all: bool, new_topic: Any, new_row: Any) -> None:
    """``is_all``: the client asked for all offsets of the group, and the broker may not name what only the log has."""
    for topic in said.topics:
        answered = next((have for have in topics if _is_same(have, topic)), None)
        if answered is None and is_all:
            answered = new_topic(name=topic.name)
            if isinstance(answered, OffsetFetchResponseTopics):
                answered.topic_id = topic.topic_id
            topics.append(answered)
        if answered is not None:
            _lay_rows(answered.partitions, topic.partitions, is_all, new_row)


def _is_same(answered: Any, topic: OffsetFetchResponseTopics) -> bool:
    by_id = isinstance(answered, OffsetFetchResponseTopics) and any(answered.topic_id)
    return bool(answered.topic_id == topic.topic_id if by_id else answered.name == topic.name)


def _lay_rows(rows: list[Any], said: Iterable[OffsetFetchResponsePartitions], is_all: bool, new_row: Any) -> None:
    by_index = {row.partition_index: row for row in rows}
    for told in said:
        row = by_index.get(told.partition_index)
        if row is None:
            if not is_all:
                continue
            row = new_row(partition_index=told.partition_index)
            rows.append(row)
        elif row.error_code:
            continue
        row.committed_offset, row.committed_leader_epoch = told.committed_offset, told.committed_leader_epoch
        row.metadata, row.error_code = told.metadata, told.error_code


def unstable_row(index: int) -> OffsetFetchResponsePartitions:
    """The row of a partition whose offset is being decided."""
    return OffsetFetchResponsePartitions(index, -1, -1, "", ErrorCode.UNSTABLE_OFFSET_COMMIT)
