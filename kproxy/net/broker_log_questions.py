"""The four questions about partitions' logs: markers written, producers, offsets, batches."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from kproxy.codec._generated.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersRequestTopicRequest,
    DescribeProducersResponse,
)
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
    ListOffsetsResponseListOffsetsPartitionResponse,
)
from kproxy.codec._generated.write_txn_markers import (
    WriteTxnMarkersRequest,
    WriteTxnMarkersRequestWritableTxnMarker,
    WriteTxnMarkersRequestWritableTxnMarkerTopic,
    WriteTxnMarkersResponse,
)
from kproxy.codec.messages import ErrorCode, Message
from kproxy.codec.topic_partition import TopicPartition
from kproxy.net.brokers.leaders import LeaderQuestion

LATEST: Final = -1
"""The high watermark, in ListOffsets."""
EARLIEST: Final = -2
"""The beginning of the log, in ListOffsets."""
_NEWEST: Final = -3
#: Replica ids: of a consumer, and of one that learns where the leader's log ends, replicated or not (Kafka's
#: ``FetchRequest.DEBUGGING_CONSUMER_ID``).
_CONSUMER: Final = -1
_DEBUGGER: Final = -2
_ASKED_FOR_NEWEST: Final = 7

Marker: TypeAlias = tuple[int, int]
"""A producer id, and the epoch below which it is fenced."""

_MARKERS: Final = 1
_PRODUCERS: Final = 0
#: The last one that names topics.
_FETCH: Final = 12
_OFFSETS: Final = 7
_WAIT_MS: Final = 500


class ActiveProducer(NamedTuple):
    """The memory that a partition has of a producer: -1 as ``last_sequence`` if its epoch has written nothing."""

    producer_id: int
    epoch: int
    last_sequence: int
    last_timestamp_ms: int


def _by_topic(places: Sequence[TopicPartition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for name, index in places:
        topics.setdefault(name, []).append(index)
    return topics


def write_markers(markers: Sequence[Marker]) -> LeaderQuestion[bool]:
    """Fences each producer by a marker that ends a transaction which it never began; the worst error is returned.

    The value is False where a higher epoch had fenced one of them already, so that its marker was not written.
    """

    def request(places: Sequence[TopicPartition]) -> Message:
        topics = [
            WriteTxnMarkersRequestWritableTxnMarkerTopic(name=name, partition_indexes=indexes)
            for name, indexes in _by_topic(places).items()
        ]
        return WriteTxnMarkersRequest(
            markers=[
                WriteTxnMarkersRequestWritableTxnMarker(
                    producer_id=producer_id,
                    producer_epoch=epoch,
                    transaction_result=False,
                    topics=topics,
                    coordinator_epoch=0,
                )
                for producer_id, epoch in markers
            ]
        )

    def answers(response: Message) -> Iterator[tuple[TopicPartition, int, bool]]:
        assert isinstance(response, WriteTxnMarkersResponse)
        worst: dict[TopicPartition, int] = {}
        fenced_before = set()
        for marker in response.markers:
            for topic in marker.topics:
                for row in topic.partitions:
                    place, error = (topic.name, row.partition_index), row.error_code
                    if error == ErrorCode.INVALID_PRODUCER_EPOCH:
                        fenced_before.add(place)
                        error = ErrorCode.NONE
                    worst[place] = worst.get(place, 0) or error
        for place, error in worst.items():
            yield place, error, place not in fenced_before

    return LeaderQuestion(request, answers, WriteTxnMarkersResponse, (0, _MARKERS))


def describe_producers() -> LeaderQuestion[dict[int, ActiveProducer]]:
    """The memory that partitions have of their producers, by producer id (KIP-664)."""

    def request(places: Sequence[TopicPartition]) -> Message:
        return DescribeProducersRequest(
            topics=[
                DescribeProducersRequestTopicRequest(name=name, partition_indexes=indexes)
                for name, indexes in _by_topic(places).items()
            ]
        )

    def answers(response: Message) -> Iterator[tuple[TopicPartition, int, dict[int, ActiveProducer]]]:
        assert isinstance(response, DescribeProducersResponse)
        for topic in response.topics:
            for part in topic.partitions:
                active = {
                    row.producer_id: ActiveProducer(
                        row.producer_id, row.producer_epoch, row.last_sequence, row.last_timestamp
                    )
                    for row in part.active_producers
                }
                yield (topic.name, part.partition_index), part.error_code, active

    return LeaderQuestion(request, answers, DescribeProducersResponse, (0, _PRODUCERS))


def list_offsets(timestamp: int, oldest: int = 1) -> LeaderQuestion[int]:
    """An offset of each partition: ``LATEST``, ``EARLIEST``, or the first that was written then or later (-1: none is).

    Asked at no older version than ``oldest``.
    """
    return _list_offsets(timestamp, oldest, lambda row: row.offset)


def log_ends() -> LeaderQuestion[int]:
    """The offset after the last record that the leader has, also of what its followers do not have yet."""
    return _list_offsets(LATEST, 1, lambda row: row.offset, _DEBUGGER)


def newest_timestamps() -> LeaderQuestion[int]:
    """The largest timestamp of each partition, -1 for empty ones (KIP-734)."""
    return _list_offsets(_NEWEST, _ASKED_FOR_NEWEST, lambda row: row.timestamp)


def _list_offsets(
    timestamp: int,
    oldest: int,
    value: Callable[[ListOffsetsResponseListOffsetsPartitionResponse], int],
    replica_id: int = _CONSUMER,
) -> LeaderQuestion[int]:
    def request(places: Sequence[TopicPartition]) -> Message:
        topics = []
        for name, indexes in _by_topic(places).items():
            rows = [ListOffsetsRequestListOffsetsPartition(partition_index=n, timestamp=timestamp) for n in indexes]
            topics.append(ListOffsetsRequestListOffsetsTopic(name=name, partitions=rows))
        return ListOffsetsRequest(replica_id=replica_id, topics=topics)

    def answers(response: Message) -> Iterator[tuple[TopicPartition, int, int]]:
        assert isinstance(response, ListOffsetsResponse)
        for topic in response.topics:
            for row in topic.partitions:
                yield (topic.name, row.partition_index), row.error_code, value(row)

    return LeaderQuestion(request, answers, ListOffsetsResponse, (oldest, _OFFSETS))


def fetch(
    wishes: Mapping[TopicPartition, tuple[int, int]], max_bytes: int, wait_ms: int = _WAIT_MS, min_bytes: int = 1
) -> LeaderQuestion[FetchResponsePartitionData]:
    """The contents of partitions' logs, committed or not; where there is less than ``min_bytes``, it waits ``wait_ms``.

    ``wishes``: by place the offset to read from and the most bytes. A leader answers with ``max_bytes`` at most, but
    the first batch that it finds is given whole; so what had nothing should be asked for first the next time.
    """

    def request(places: Sequence[TopicPartition]) -> Message:
        topics = []
        for name, indexes in _by_topic(places).items():
            rows = []
            for n in indexes:
                offset, most = wishes[name, n]
                rows.append(FetchRequestFetchPartition(partition=n, fetch_offset=offset, partition_max_bytes=most))
            topics.append(FetchRequestFetchTopic(topic=name, partitions=rows))
        return FetchRequest(max_wait_ms=wait_ms, min_bytes=min_bytes, max_bytes=max_bytes, topics=topics)

    def answers(response: Message) -> Iterator[tuple[TopicPartition, int, FetchResponsePartitionData]]:
        assert isinstance(response, FetchResponse)
        for topic in response.responses:
            for part in topic.partitions:
                yield (topic.topic, part.partition_index), response.error_code or part.error_code, part

    return LeaderQuestion(request, answers, FetchResponse, (4, _FETCH), wait_ms)
