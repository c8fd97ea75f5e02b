"""Requests that name a topic which there cannot be, and the error of each: of a real Kafka, of the fake, of kproxy."""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from kproxy.codec._generated.create_topics import CreateTopicsRequest, CreateTopicsRequestCreatableTopic
from kproxy.codec._generated.delete_topics import DeleteTopicsRequest
from kproxy.codec._generated.fetch import FetchRequest, FetchRequestFetchPartition, FetchRequestFetchTopic
from kproxy.codec._generated.list_offsets import (
    ListOffsetsRequest,
    ListOffsetsRequestListOffsetsPartition,
    ListOffsetsRequestListOffsetsTopic,
)
from kproxy.codec._generated.metadata import MetadataRequest, MetadataRequestTopic
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
from kproxy.codec._generated.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochRequestOffsetForLeaderPartition,
    OffsetForLeaderEpochRequestOffsetForLeaderTopic,
)
from kproxy.codec.messages import ErrorCode, Message

NAMES: Final = ("t" * 250, "t" * 32_000, "t/1", "t\n")


class Asked(NamedTuple):
    """One API: its request for a topic, in a version, and where the response has which error."""

    request: Callable[[str], Message]
    version: int
    found: Callable[[Any], int]
    error: ErrorCode


def _metadata(name: str, *, creates: bool) -> Message:
    return MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=creates)


def _fetch(name: str) -> Message:
    part = FetchRequestFetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
    return FetchRequest(max_wait_ms=0, max_bytes=1000, topics=[FetchRequestFetchTopic(topic=name, partitions=[part])])


def _list_offsets(name: str) -> Message:
    part = ListOffsetsRequestListOffsetsPartition(partition_index=0, timestamp=-1)
    return ListOffsetsRequest(topics=[ListOffsetsRequestListOffsetsTopic(name=name, partitions=[part])])


def _offset_commit(name: str) -> Message:
    topic = OffsetCommitRequestTopic(name, partitions=[OffsetCommitRequestPartition(0, 1)])
    return OffsetCommitRequest("illegal-names", -1, "", topics=[topic])


def _offset_fetch(name: str) -> Message:
    return OffsetFetchRequest("illegal-names", [OffsetFetchRequestTopic(name, [0])])


def _offset_fetch_of_groups(name: str) -> Message:
    group = OffsetFetchRequestGroup(
        group_id="illegal-names", topics=[OffsetFetchRequestTopics(name=name, partition_indexes=[0])]
    )
    return OffsetFetchRequest(groups=[group])


def _leader_epoch(name: str) -> Message:
    part = OffsetForLeaderEpochRequestOffsetForLeaderPartition(partition=0, leader_epoch=0)
    return OffsetForLeaderEpochRequest(
        replica_id=-2, topics=[OffsetForLeaderEpochRequestOffsetForLeaderTopic(topic=name, partitions=[part])]
    )


ASKED: Final = {
    "Metadata": Asked(
        lambda name: _metadata(name, creates=True),
        9,
        lambda answer: answer.topics[0].error_code,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
    ),
    "Metadata without creation": Asked(
        lambda name: _metadata(name, creates=False),
        9,
        lambda answer: answer.topics[0].error_code,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
    ),
    "Fetch": Asked(
        _fetch,
        11,
        lambda answer: answer.responses[0].partitions[0].error_code,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ),
    "ListOffsets": Asked(
        _list_offsets,
        5,
        lambda answer: answer.topics[0].partitions[0].error_code,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ),
    "OffsetCommit": Asked(
        _offset_commit,
        7,
        lambda answer: answer.topics[0].partitions[0].error_code,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ),
    # a coordinator that is not ready says so of the group, and names no topic
    "OffsetFetch": Asked(
        _offset_fetch, 5, lambda answer: answer.error_code or answer.topics[0].partitions[0].error_code, ErrorCode.NONE
    ),
    "OffsetFetch of groups": Asked(
        _offset_fetch_of_groups,
        9,
        lambda answer: answer.groups[0].error_code or answer.groups[0].topics[0].partitions[0].error_code,
        ErrorCode.NONE,
    ),
    "OffsetForLeaderEpoch": Asked(
        _leader_epoch,
        3,
        lambda answer: answer.topics[0].partitions[0].error_code,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ),
    "CreateTopics": Asked(
        lambda name: CreateTopicsRequest([CreateTopicsRequestCreatableTopic(name, 1, 1)], timeout_ms=5000),
        5,
        lambda answer: answer.topics[0].error_code,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
    ),
    "DeleteTopics": Asked(
        lambda name: DeleteTopicsRequest(topic_names=[name], timeout_ms=5000),
        4,
        lambda answer: answer.responses[0].error_code,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ),
}
