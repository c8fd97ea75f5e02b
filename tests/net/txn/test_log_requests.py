"""What leaders of the transaction log are asked, at the versions that they serve, and what is taken of the answers."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from kproxy.budget import unbounded
from kproxy.codec._generated.fetch import (
    FetchResponse,
    FetchResponseEpochEndOffset,
    FetchResponseFetchableTopicResponse,
    FetchResponsePartitionData,
)
from kproxy.codec._generated.list_offsets import (
    ListOffsetsResponse,
    ListOffsetsResponseListOffsetsPartitionResponse,
    ListOffsetsResponseListOffsetsTopicResponse,
)
from kproxy.codec.messages import ErrorCode, Message
from kproxy.codec.version_choice import VersionRange, choose_version
from kproxy.errors import RemoteProtocolError
from kproxy.net.brokers.broker_client import BrokerClient
from kproxy.net.txn.log_partition import LogPartition
from kproxy.net.txn.log_requests import log_records, log_starts
from tests.net.txn.log_harness import Sink

TOPIC, TOPIC_ID, NO_ID = "log", bytes(range(16)), bytes(16)
LEADER_EPOCH, FETCHED_EPOCH, POSITION = 7, 3, 40


@dataclass
class Leader:
    """Serves some versions of one API, and answers what a test says."""

    served: VersionRange
    answer: Message
    asked: list[tuple[int, Any]] = field(default_factory=list)

    async def call(
        self,
        request: Message,
        kind: type[Message],
        versions: VersionRange,
        *,
        extra_ms: int = 0,
        trim: Callable[[Any, int], None] = lambda request, version: None,
    ) -> Message:
        version = choose_version({request.API_KEY: self.served}, request, versions)
        trim(request, version)
        self.asked.append((version, type(request).decode(request.encode(version), version, unbounded())))
        return kind.decode(self.answer.encode(version), version, unbounded())


def part(index: int = 2) -> LogPartition:
    made = LogPartition(index, Sink())
    made.leader_epoch, made.position, made.fetched_epoch = LEADER_EPOCH, POSITION, FETCHED_EPOCH
    return made


def fetched(topic_id: bytes = NO_ID, *rows: FetchResponsePartitionData, error: int = 0) -> FetchResponse:
    topic = FetchResponseFetchableTopicResponse(topic="" if any(topic_id) else TOPIC, topic_id=topic_id)
    topic.partitions = list(rows)
    return FetchResponse(error_code=error, responses=[topic])


async def records(leader: Leader, topic_id: bytes = NO_ID) -> list[tuple[int, int]]:
    """Partitions and their error codes."""
    found = await log_records(cast(BrokerClient, leader), TOPIC, topic_id, [part()], 500)
    return [(index, error) for index, error, _ in found]


@pytest.mark.parametrize(("served", "version"), [((0, 1), 1), ((0, 9), 7)])
async def test_where_logs_begin(served: VersionRange, version: int) -> None:
    row = ListOffsetsResponseListOffsetsPartitionResponse
    rows = [row(partition_index=index, error_code=0, offset=5) for index in (1, 2)]
    topics = [ListOffsetsResponseListOffsetsTopicResponse(name=TOPIC, partitions=rows)]
    leader = Leader(served, ListOffsetsResponse(topics=topics))
    found = await log_starts(cast(BrokerClient, leader), TOPIC, [part()])
    assert list(found) == [(2, 0, 5)], "no partition that was not asked for"
    ((asked_at, request),) = leader.asked
    assert (asked_at, request.replica_id) == (version, -1), "as a consumer"
    (wanted,) = request.topics[0].partitions
    assert (wanted.partition_index, wanted.timestamp) == (2, -2)
    if version == 7:
        assert wanted.current_leader_epoch == LEADER_EPOCH


@pytest.mark.parametrize(
    ("newest", "topic_id", "version", "epoch"),
    [
        (4, NO_ID, 4, -1),
        (11, TOPIC_ID, 11, -1),
        (12, TOPIC_ID, 12, FETCHED_EPOCH),
        (17, NO_ID, 12, FETCHED_EPOCH),
        (17, TOPIC_ID, 13, FETCHED_EPOCH),
    ],
)
async def test_what_logs_hold(newest: int, topic_id: bytes, version: int, epoch: int) -> None:
    """From v12 on a reader says the leader epoch of what it read last; from v13 on topics are named by ids."""
    answered = topic_id if version > 12 else NO_ID
    rows = [FetchResponsePartitionData(partition_index=index) for index in (1, 2)]
    leader = Leader((0, newest), fetched(answered, *rows))
    assert await records(leader, topic_id) == [(2, ErrorCode.NONE)], "no partition that was not asked for"
    ((asked_at, request),) = leader.asked
    assert asked_at == version
    assert (request.max_wait_ms, request.min_bytes) == (500, 1), "the first record ends the wait"
    (topic,) = request.topics
    assert (topic.topic, topic.topic_id) == (("", TOPIC_ID) if version > 12 else (TOPIC, NO_ID))
    (wanted,) = topic.partitions
    assert (wanted.partition, wanted.fetch_offset, wanted.last_fetched_epoch) == (2, POSITION, epoch)


@pytest.mark.parametrize("end", [0, 30])
async def test_a_leader_that_lost_what_was_read_gives_an_error(end: int) -> None:
    diverged = FetchResponsePartitionData(partition_index=2)
    diverged.diverging_epoch = FetchResponseEpochEndOffset(epoch=2, end_offset=end)
    assert await records(Leader((0, 12), fetched(NO_ID, diverged))) == [(2, ErrorCode.OFFSET_OUT_OF_RANGE)]


async def test_errors_of_a_partition_and_of_all() -> None:
    row = FetchResponsePartitionData(partition_index=2, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert await records(Leader((0, 12), fetched(NO_ID, row))) == [(2, ErrorCode.NOT_LEADER_OR_FOLLOWER)]
    with pytest.raises(RemoteProtocolError, match="error 35"):
        await records(Leader((0, 12), fetched(error=ErrorCode.UNSUPPORTED_VERSION)))
