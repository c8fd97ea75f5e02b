"""ListOffsets, DeleteRecords and OffsetForLeaderEpoch: places in a log."""

import pytest

from kproxy.codec._generated.delete_records import (
    DeleteRecordsRequest,
    DeleteRecordsRequestDeleteRecordsPartition,
    DeleteRecordsRequestDeleteRecordsTopic,
    DeleteRecordsResponse,
    DeleteRecordsResponseDeleteRecordsPartitionResult,
)
from kproxy.codec._generated.list_offsets import (
    ListOffsetsRequest,
    ListOffsetsRequestListOffsetsPartition,
    ListOffsetsRequestListOffsetsTopic,
    ListOffsetsResponse,
    ListOffsetsResponseListOffsetsPartitionResponse,
)
from kproxy.codec._generated.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochRequestOffsetForLeaderPartition,
    OffsetForLeaderEpochRequestOffsetForLeaderTopic,
    OffsetForLeaderEpochResponse,
)
from kproxy.codec.messages import ErrorCode
from kproxy.testing.cluster_client import EARLIEST, LATEST, ClusterClient
from tests.contract.batches import START_MS, batch, values


def _look_up(
    client: ClusterClient, topic: str, timestamp: int, version: int = 7, index: int = 0, epoch: int = -1
) -> ListOffsetsResponseListOffsetsPartitionResponse:
    part = ListOffsetsRequestListOffsetsPartition(
        partition_index=index, timestamp=timestamp, current_leader_epoch=epoch
    )
    wanted = ListOffsetsRequestListOffsetsTopic(name=topic, partitions=[part])
    request = ListOffsetsRequest(replica_id=-1, topics=[wanted], timeout_ms=5_000)
    return client.any_broker().call(request, version, ListOffsetsResponse).topics[0].partitions[0]


@pytest.fixture
def filled(client: ClusterClient, topic: str) -> str:
    """A topic with records at START_MS + 0, 1, 2, 10, 11, 5 in its first partition."""
    client.produce(topic, 0, batch(b"a", b"b", b"c"))
    client.produce(topic, 0, batch(b"d", b"e", first_ms=START_MS + 10))
    client.produce(topic, 0, batch(b"f", first_ms=START_MS + 5))
    return topic


@pytest.mark.parametrize("version", range(1, 12))
def test_ends_of_the_log(client: ClusterClient, filled: str, version: int) -> None:
    assert _look_up(client, filled, EARLIEST, version).offset == 0
    latest = _look_up(client, filled, LATEST, version)
    assert (latest.offset, latest.timestamp) == (6, -1)
    assert latest.leader_epoch == (0 if version >= 4 else -1)


@pytest.mark.parametrize(
    ("after", "offset", "found_ms"), [(-5, 0, 0), (1, 1, 1), (3, 3, 10), (10, 3, 10), (11, 4, 11), (12, -1, None)]
)
def test_the_first_record_of_a_time_or_later(
    client: ClusterClient, filled: str, after: int, offset: int, found_ms: int | None
) -> None:
    answer = _look_up(client, filled, START_MS + after)
    assert (answer.error_code, answer.offset) == (ErrorCode.NONE, offset)
    assert answer.timestamp == (-1 if found_ms is None else START_MS + found_ms)


def test_the_newest_time(client: ClusterClient, filled: str) -> None:
    answer = _look_up(client, filled, -3)
    assert (answer.offset, answer.timestamp) == (4, START_MS + 11)
    assert _look_up(client, filled, -3, index=1).offset == -1


def test_an_empty_partition_has_both_ends_at_zero(client: ClusterClient, topic: str) -> None:
    assert (_look_up(client, topic, EARLIEST).offset, _look_up(client, topic, LATEST).offset) == (0, 0)
    assert _look_up(client, topic, START_MS).offset == -1


def test_a_question_that_the_version_does_not_know(client: ClusterClient, filled: str) -> None:
    assert _look_up(client, filled, -3, version=6).error_code == ErrorCode.UNSUPPORTED_VERSION
    assert _look_up(client, filled, -4, version=7).error_code == ErrorCode.UNSUPPORTED_VERSION
    assert _look_up(client, filled, -4, version=8).offset == 0


def test_unknown_places_and_epochs(client: ClusterClient, topic: str) -> None:
    assert _look_up(client, topic, LATEST, index=9).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert _look_up(client, topic, LATEST, epoch=3).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH


def _delete(client: ClusterClient, topic: str, offset: int) -> DeleteRecordsResponseDeleteRecordsPartitionResult:
    part = DeleteRecordsRequestDeleteRecordsPartition(partition_index=0, offset=offset)
    wanted = DeleteRecordsRequestDeleteRecordsTopic(name=topic, partitions=[part])
    request = DeleteRecordsRequest(topics=[wanted], timeout_ms=5_000)
    return client.leader(topic, 0).call(request, 2, DeleteRecordsResponse).topics[0].partitions[0]


def test_delete_records_moves_the_start(client: ClusterClient, filled: str) -> None:
    answer = _delete(client, filled, 4)
    assert (answer.error_code, answer.low_watermark) == (ErrorCode.NONE, 4)
    assert client.offset(filled, 0, EARLIEST) == 4
    assert values(client.read_all(filled)) == [b"d", b"e", b"f"]
    behind = client.fetch(filled, 0, 1).responses[0].partitions[0]
    assert behind.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert _look_up(client, filled, START_MS).offset == 4


def test_delete_records_to_the_end_and_beyond(client: ClusterClient, filled: str) -> None:
    assert _delete(client, filled, 7).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert _delete(client, filled, -1).low_watermark == 6
    assert client.offset(filled, 0, EARLIEST) == client.offset(filled, 0) == 6
    assert client.produce(filled, 0, batch(b"g")).base_offset == 6


@pytest.mark.parametrize("version", [2, 3, 4])
def test_the_end_of_a_leader_epoch(client: ClusterClient, filled: str, version: int) -> None:
    for epoch, expected in ((0, (0, 6)), (3, (-1, -1))):
        part = OffsetForLeaderEpochRequestOffsetForLeaderPartition(
            partition=0, leader_epoch=epoch, current_leader_epoch=-1
        )
        wanted = OffsetForLeaderEpochRequestOffsetForLeaderTopic(topic=filled, partitions=[part])
        request = OffsetForLeaderEpochRequest(replica_id=-1, topics=[wanted])
        answer = client.any_broker().call(request, version, OffsetForLeaderEpochResponse).topics[0].partitions[0]
        assert (answer.leader_epoch, answer.end_offset) == expected
