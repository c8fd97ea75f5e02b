"""A full disk.

Measured by hand on 4.3.0, with ``log.dirs`` on a full tmpfs of 24 MB (ENOSPC): the first batch that did not fit was
answered KAFKA_STORAGE_ERROR. With one log directory the broker then ended; with two it kept serving the partitions of
the other one, and new topics could be made there.
"""

import os
import time

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
)
from kproxy.codec._generated.list_offsets import (
    ListOffsetsRequest,
    ListOffsetsRequestListOffsetsPartition,
    ListOffsetsRequestListOffsetsTopic,
    ListOffsetsResponse,
)
from kproxy.codec._generated.metadata import MetadataResponsePartition
from kproxy.codec.messages import ErrorCode
from kproxy.testing.cluster_client import LATEST, ClusterClient, RawConnection
from tests.contract.batches import batch
from tests.contract.faults.levers import Levers
from tests.contract.questions import connect, delete_before, mark, producers, send
from tests.support.patience import eventually

PID = 2**61 + 55
FAILED = ErrorCode.KAFKA_STORAGE_ERROR


def _sent(sequence: int, size: int = 90_000) -> bytearray:
    return batch(os.urandom(size), pid=PID, epoch=0, seq=sequence, first_ms=int(time.time() * 1000))


def _partition(client: ClusterClient, topic: str) -> MetadataResponsePartition:
    return client.metadata(topic).topics[0].partitions[0]


def _questions(broker: RawConnection, topic: str) -> list[tuple[int, int]]:
    """The errors and offsets that Fetch, ListOffsets and DescribeProducers give."""
    fetched = FetchRequestFetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
    fetch = FetchRequest(max_wait_ms=100, topics=[FetchRequestFetchTopic(topic=topic, partitions=[fetched])])
    data = broker.call(fetch, 11, FetchResponse).responses[0].partitions[0]
    listed = ListOffsetsRequestListOffsetsPartition(partition_index=0, timestamp=LATEST)
    wanted = ListOffsetsRequestListOffsetsTopic(name=topic, partitions=[listed])
    offsets = broker.call(ListOffsetsRequest(replica_id=-1, topics=[wanted]), 5, ListOffsetsResponse)
    offset = offsets.topics[0].partitions[0]
    described = DescribeProducersRequestTopicRequest(name=topic, partition_indexes=[0])
    known = broker.call(DescribeProducersRequest(topics=[described]), 0, DescribeProducersResponse)
    producer = known.topics[0].partitions[0]
    return [
        (data.error_code, data.high_watermark),
        (offset.error_code, offset.offset),
        (producer.error_code, len(producer.active_producers)),
    ]


def test_a_full_disk_is_a_storage_error_until_the_broker_has_room(storage: Levers, unique: str) -> None:
    with ClusterClient(storage.bootstrap) as client:
        client.create_topic(unique)
        with connect(client, 1) as broker:
            assert send(broker, unique, _sent(0)) == (ErrorCode.NONE, 0)
            storage.fill(1)
            written = 1
            while (answer := send(broker, unique, _sent(written)))[0] is ErrorCode.NONE and written < 9:
                written += 1
            assert answer == (FAILED, -1)
            eventually(lambda: _partition(client, unique).leader_id == -1)
            gone = _partition(client, unique)
            assert gone.error_code == ErrorCode.LEADER_NOT_AVAILABLE
            assert (gone.isr_nodes, gone.offline_replicas, gone.leader_epoch) == ([], [1], 1)
            assert send(broker, unique, _sent(written)) == (FAILED, -1)
            assert send(broker, unique, _sent(written), acks=1) == (FAILED, -1)
            assert _questions(broker, unique) == [(FAILED, -1), (FAILED, -1), (FAILED, 0)]
            assert delete_before(broker, unique, 1) == (FAILED, -1)
            assert mark(broker, unique, PID, 1) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        storage.make_room(1)
        eventually(lambda: _partition(client, unique).leader_id == 1)
        with connect(client, 1) as broker:
            eventually(lambda: send(broker, unique, _sent(written - 1)) == (ErrorCode.NONE, written - 1))
            assert producers(broker, unique) == {PID: (0, written - 1)}
            assert send(broker, unique, _sent(written)) == (ErrorCode.NONE, written)
