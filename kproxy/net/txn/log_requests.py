"""The follower's requests to a leader: where logs begin, and what they hold."""

from collections.abc import Iterator, Sequence
from typing import Final

from kproxy.codec._generated.fetch import (
    FetchRequest,
    FetchRequestFetchPartition,
    FetchRequestFetchTopic,
    FetchResponse,
    FetchResponsePartitionData,
)
from kproxy.codec._generated.list_offsets import (
    ListOffsetsRequest,
    ListOffsetsRequestListOffsetsPartition,
    ListOffsetsRequestListOffsetsTopic,
    ListOffsetsResponse,
)
from kproxy.codec.messages import ErrorCode
from kproxy.codec.version_choice import VersionRange
from kproxy.errors import RemoteProtocolError
from kproxy.net.broker_log_questions import EARLIEST
from kproxy.net.brokers.broker_client import BrokerClient
from kproxy.net.txn.log_partition import LogPartition

_OFFSETS: Final[VersionRange] = (1, 7)
_OLDEST_FETCH: Final = 4
#: From Fetch v12 on a reader tells the leader epoch of what it read last (KIP-595), from v13 on the topic's id.
_WITH_EPOCHS: Final = 12
_WITH_IDS: Final = 13
_PARTITION_BYTES: Final = 1 << 20
_FETCH_BYTES: Final = 8 << 20


async def log_starts(client: BrokerClient, topic: str, parts: Sequence[LogPartition]) -> Iterator[tuple[int, int, int]]:
    """(partition, error code, offset at which its log begins) for each. OSError, RemoteProtocolError."""
    rows = [
        ListOffsetsRequestListOffsetsPartition(
            partition_index=part.index, current_leader_epoch=part.leader_epoch, timestamp=EARLIEST
        )
        for part in parts
    ]
    wanted = ListOffsetsRequestListOffsetsTopic(name=topic, partitions=rows)
    request = ListOffsetsRequest(replica_id=-1, topics=[wanted])
    response = await client.call(request, ListOffsetsResponse, _OFFSETS)
    indexes = {part.index for part in parts}
    found = (row for rows in response.topics for row in rows.partitions if row.partition_index in indexes)
    return ((row.partition_index, row.error_code, row.offset) for row in found)


async def log_records(
    client: BrokerClient, topic: str, topic_id: bytes, parts: Sequence[LogPartition], wait_ms: int
) -> Iterator[tuple[int, int, FetchResponsePartitionData]]:
    """(partition, error code, what it holds from its position on) for each; waits up to ``wait_ms`` for a record.

    The first batch that is found is given whole, and the others as far as there is room. So the partition that had
    nothing for longest should come first. A log that is not the one that was read gives an error: OFFSET_OUT_OF_RANGE
    also where the leader lost what was read, UNKNOWN_TOPIC_ID where the topic was recreated. OSError,
    RemoteProtocolError.
    """
    versions = _OLDEST_FETCH, _WITH_IDS if any(topic_id) else _WITH_IDS - 1
    rows = [
        FetchRequestFetchPartition(
            partition=part.index,
            current_leader_epoch=part.leader_epoch,
            fetch_offset=part.position,
            last_fetched_epoch=part.fetched_epoch,
            partition_max_bytes=_PARTITION_BYTES,
        )
        for part in parts
    ]
    wanted = FetchRequestFetchTopic(topic=topic, topic_id=topic_id, partitions=rows)
    request = FetchRequest(max_wait_ms=wait_ms, min_bytes=1, max_bytes=_FETCH_BYTES, topics=[wanted])
    response = await client.call(request, FetchResponse, versions, extra_ms=wait_ms, trim=_trim)
    if response.error_code:
        raise RemoteProtocolError(f"Fetch failed with error {response.error_code}")
    indexes = {part.index for part in parts}
    found = (row for rows in response.responses for row in rows.partitions if row.partition_index in indexes)
    return ((row.partition_index, _error(row), row) for row in found)


def _trim(request: FetchRequest, version: int) -> None:
    if version < _WITH_EPOCHS:
        for topic in request.topics:
            for row in topic.partitions:
                row.last_fetched_epoch = -1


def _error(row: FetchResponsePartitionData) -> int:
    diverged = row.diverging_epoch.end_offset >= 0
    return row.error_code or (ErrorCode.OFFSET_OUT_OF_RANGE if diverged else ErrorCode.NONE)
