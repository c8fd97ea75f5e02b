"""A consumer group's offsets in frames, in any version, over any connection."""

from collections.abc import Sequence
from typing import Any

from kproxy.codec._generated.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kproxy.codec._generated.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from tests.net.harness import FrameClient

Told = dict[tuple[str, int], tuple[int, int]]
"""By topic (or its id in hexadecimal) and partition: offset and error code."""


def fetch_request(
    groups: Sequence[str],
    places: Sequence[tuple[str, int]] | None,
    version: int,
    *,
    stable: bool = True,
    ids: Any = None,
) -> OffsetFetchRequest:
    """``places``: None for all offsets; ``ids``: the topics' ids, for v10."""
    by_topic: dict[str, list[int]] = {}
    for name, index in places or ():
        by_topic.setdefault(name, []).append(index)
    is_stable = stable and version >= 7
    if version < 8:
        topics = [OffsetFetchRequestTopic(name, rows) for name, rows in by_topic.items()]
        return OffsetFetchRequest(groups[0], None if places is None else topics, require_stable=is_stable)
    named = [OffsetFetchRequestTopics(name, (ids or {}).get(name, bytes(16)), rows) for name, rows in by_topic.items()]
    asked = [OffsetFetchRequestGroup(group, topics=None if places is None else named) for group in groups]
    return OffsetFetchRequest(groups=asked, require_stable=is_stable)


def told(answer: Any, version: int, group: str) -> Told:
    """What a response says of a group; an error of the whole group stands at ("", -1)."""
    whole = answer
    if version >= 8:
        whole = next(row for row in answer.groups if row.group_id == group)
    rows = {
        (topic.topic_id.hex() if version >= 10 else topic.name, row.partition_index): (
            row.committed_offset,
            row.error_code,
        )
        for topic in whole.topics
        for row in topic.partitions
    }
    return {**rows, ("", -1): (-1, whole.error_code)} if whole.error_code else rows


async def fetched(
    client: FrameClient, group: str, version: int, *places: tuple[str, int], stable: bool = True
) -> list[tuple[int, int]]:
    """Offset and error code of each place (v0-v9); of all if none is named."""
    answer = await client.call(fetch_request([group], places or None, version, stable=stable), version)
    return list(told(answer, version, group).values())


def commit_request(
    group: str, offset: int, *, topic: str = "t", index: int = 0, generation: int = -1, member: str = ""
) -> OffsetCommitRequest:
    """A plain commit of one offset."""
    row = OffsetCommitRequestPartition(index, offset, committed_metadata="plain")
    return OffsetCommitRequest(group, generation, member, topics=[OffsetCommitRequestTopic(topic, partitions=[row])])


async def commit(client: FrameClient, group: str, offset: int, version: int = 7, **more: Any) -> int:
    """Commits plainly; the error code."""
    answer = await client.call(commit_request(group, offset, **more), version)
    return int(answer.topics[0].partitions[0].error_code)
