"""Questions to one broker about one partition, for the contract tests."""

from kproxy.codec._generated.create_topics import (
    CreateTopicsRequest,
    CreateTopicsRequestCreatableReplicaAssignment,
    CreateTopicsRequestCreatableTopic,
    CreateTopicsRequestCreatableTopicConfig,
    CreateTopicsResponse,
)
from kproxy.codec._generated.delete_records import (
    DeleteRecordsRequest,
    DeleteRecordsRequestDeleteRecordsPartition,
    DeleteRecordsRequestDeleteRecordsTopic,
    DeleteRecordsResponse,
)
from kproxy.codec._generated.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersRequestTopicRequest,
    DescribeProducersResponse,
)
from kproxy.codec._generated.produce import (
    ProduceRequest,
    ProduceRequestPartitionProduceData,
    ProduceRequestTopicProduceData,
    ProduceResponse,
)
from kproxy.codec._generated.write_txn_markers import (
    WriteTxnMarkersRequest,
    WriteTxnMarkersRequestWritableTxnMarker,
    WriteTxnMarkersRequestWritableTxnMarkerTopic,
    WriteTxnMarkersResponse,
)
from kproxy.codec.messages import ErrorCode
from kproxy.testing.cluster_client import ClusterClient, RawConnection


def create_on(client: ClusterClient, topic: str, *nodes: int, config: dict[str, str] | None = None) -> None:
    """Create a topic with one partition whose replicas are on these brokers; the first of them leads."""
    placed = CreateTopicsRequestCreatableReplicaAssignment(partition_index=0, broker_ids=list(nodes))
    configs = [CreateTopicsRequestCreatableTopicConfig(name=key, value=value) for key, value in (config or {}).items()]
    wanted = CreateTopicsRequestCreatableTopic(
        name=topic, num_partitions=-1, replication_factor=-1, assignments=[placed], configs=configs
    )
    request = CreateTopicsRequest(topics=[wanted], timeout_ms=30_000)
    answer = client.any_broker().call(request, 5, CreateTopicsResponse).topics[0]
    assert ErrorCode(answer.error_code) is ErrorCode.NONE
    client.wait_served(topic, 0)


def send(
    connection: RawConnection, topic: str, data: bytes | bytearray, *, acks: int = -1, timeout_ms: int = 30_000
) -> tuple[ErrorCode, int]:
    """Produce to partition 0; the error and the base offset."""
    part = ProduceRequestPartitionProduceData(index=0, records=bytes(data))
    wanted = ProduceRequestTopicProduceData(name=topic, partition_data=[part])
    request = ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=[wanted])
    answer = connection.call(request, 9, ProduceResponse).responses[0].partition_responses[0]
    return ErrorCode(answer.error_code), answer.base_offset


def producers(connection: RawConnection, topic: str) -> dict[int, tuple[int, int]]:
    """The epoch and last sequence of each producer of partition 0."""
    wanted = DescribeProducersRequestTopicRequest(name=topic, partition_indexes=[0])
    answer = connection.call(DescribeProducersRequest(topics=[wanted]), 0, DescribeProducersResponse)
    part = answer.topics[0].partitions[0]
    assert ErrorCode(part.error_code) is ErrorCode.NONE
    return {found.producer_id: (found.producer_epoch, found.last_sequence) for found in part.active_producers}


def mark(connection: RawConnection, topic: str, pid: int, epoch: int) -> ErrorCode:
    """Write an abort marker to partition 0."""
    wanted = WriteTxnMarkersRequestWritableTxnMarkerTopic(name=topic, partition_indexes=[0])
    marker = WriteTxnMarkersRequestWritableTxnMarker(
        producer_id=pid, producer_epoch=epoch, transaction_result=False, topics=[wanted], coordinator_epoch=0
    )
    answer = connection.call(WriteTxnMarkersRequest(markers=[marker]), 1, WriteTxnMarkersResponse)
    return ErrorCode(answer.markers[0].topics[0].partitions[0].error_code)


def delete_before(connection: RawConnection, topic: str, offset: int) -> tuple[ErrorCode, int]:
    """DeleteRecords of partition 0; the error and the low watermark."""
    part = DeleteRecordsRequestDeleteRecordsPartition(partition_index=0, offset=offset)
    wanted = DeleteRecordsRequestDeleteRecordsTopic(name=topic, partitions=[part])
    request = DeleteRecordsRequest(topics=[wanted], timeout_ms=30_000)
    answer = connection.call(request, 2, DeleteRecordsResponse).topics[0].partitions[0]
    return ErrorCode(answer.error_code), answer.low_watermark


def connect(client: ClusterClient, node: int) -> RawConnection:
    """A connection of its own to a broker."""
    broker = next(broker for broker in client.metadata().brokers if broker.node_id == node)
    return RawConnection(broker.host, broker.port)


def in_sync(client: ClusterClient, topic: str) -> list[int]:
    """The in-sync replicas of partition 0, sorted."""
    return sorted(client.metadata(topic).topics[0].partitions[0].isr_nodes)
