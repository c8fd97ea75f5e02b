"""Three brokers: what a broker says that does not lead, and who coordinates."""

from collections.abc import Iterator
from functools import partial

import pytest

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
from kproxy.codec._generated.fetch import (
    FetchRequest,
    FetchRequestFetchPartition,
    FetchRequestFetchTopic,
    FetchResponse,
)
from kproxy.codec._generated.heartbeat import HeartbeatRequest, HeartbeatResponse
from kproxy.codec._generated.list_offsets import (
    ListOffsetsRequest,
    ListOffsetsRequestListOffsetsPartition,
    ListOffsetsRequestListOffsetsTopic,
    ListOffsetsResponse,
)
from kproxy.codec._generated.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from kproxy.codec._generated.produce import (
    ProduceRequest,
    ProduceRequestPartitionProduceData,
    ProduceRequestTopicProduceData,
    ProduceResponse,
)
from kproxy.codec.messages import ErrorCode
from kproxy.testing.cluster_client import LATEST, ClusterClient, RawConnection
from tests.contract.batches import batch
from tests.contract.coordinators import GROUP, STARTING, find_coordinator
from tests.support.patience import repeat_while


@pytest.fixture
def cluster(cluster_bootstrap: str) -> Iterator[ClusterClient]:
    """A client of three brokers."""
    with ClusterClient(cluster_bootstrap) as connected:
        yield connected


@pytest.fixture
def placed(cluster: ClusterClient, unique: str) -> str:
    """A topic with one partition and one replica, so that two brokers do not have it."""
    cluster.create_topic(unique)
    return unique


def _leader(metadata: MetadataResponse) -> int:
    return metadata.topics[0].partitions[0].leader_id


@pytest.fixture
def outsider(cluster: ClusterClient, placed: str) -> Iterator[RawConnection]:
    """A connection to a broker that does not lead the partition."""
    metadata = cluster.metadata(placed)
    other = next(broker for broker in metadata.brokers if broker.node_id != _leader(metadata))
    with RawConnection(other.host, other.port) as connection:
        yield connection


@pytest.mark.parametrize("version", [9, 10, 12])
def test_produce_names_the_leader(cluster: ClusterClient, placed: str, outsider: RawConnection, version: int) -> None:
    part = ProduceRequestPartitionProduceData(index=0, records=bytes(batch(b"a")))
    data = ProduceRequestTopicProduceData(name=placed, partition_data=[part])
    answer = outsider.call(ProduceRequest(acks=-1, timeout_ms=5_000, topic_data=[data]), version, ProduceResponse)
    refused = answer.responses[0].partition_responses[0]
    assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    if version >= 10:
        metadata = cluster.metadata(placed)
        assert refused.current_leader.leader_id == _leader(metadata)
        places = {broker.node_id: (broker.host, broker.port) for broker in metadata.brokers}
        endpoints = {endpoint.node_id: (endpoint.host, endpoint.port) for endpoint in answer.node_endpoints}
        assert endpoints == {_leader(metadata): places[_leader(metadata)]}


@pytest.mark.parametrize("version", [4, 11, 12, 16, 18])
def test_fetch_names_the_leader(cluster: ClusterClient, placed: str, outsider: RawConnection, version: int) -> None:
    part = FetchRequestFetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
    asked = MetadataRequest(topics=[MetadataRequestTopic(name=placed)])
    metadata = cluster.any_broker().call(asked, 12, MetadataResponse)
    wanted = FetchRequestFetchTopic(topic=placed, partitions=[part])
    if version >= 13:
        wanted = FetchRequestFetchTopic(topic_id=metadata.topics[0].topic_id, partitions=[part])
    response = outsider.call(FetchRequest(max_wait_ms=100, topics=[wanted]), version, FetchResponse)
    answer = response.responses[0].partitions[0]
    assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert answer.current_leader.leader_id == (_leader(metadata) if version >= 16 else -1)
    assert [endpoint.node_id for endpoint in response.node_endpoints] == ([_leader(metadata)] if version >= 16 else [])


def test_other_questions_are_for_the_leader_too(placed: str, outsider: RawConnection) -> None:
    where = ListOffsetsRequestListOffsetsPartition(partition_index=0, timestamp=LATEST)
    offsets = ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsRequestListOffsetsTopic(name=placed, partitions=[where])]
    )
    listed = outsider.call(offsets, 5, ListOffsetsResponse).topics[0].partitions[0]
    assert listed.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    producers = DescribeProducersRequest(
        topics=[DescribeProducersRequestTopicRequest(name=placed, partition_indexes=[0])]
    )
    described = outsider.call(producers, 0, DescribeProducersResponse).topics[0].partitions[0]
    assert described.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    below = DeleteRecordsRequestDeleteRecordsPartition(partition_index=0, offset=0)
    deletion = DeleteRecordsRequest(
        topics=[DeleteRecordsRequestDeleteRecordsTopic(name=placed, partitions=[below])], timeout_ms=5_000
    )
    deleted = outsider.call(deletion, 2, DeleteRecordsResponse).topics[0].partitions[0]
    assert deleted.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_group_has_one_coordinator(cluster: ClusterClient, unique: str) -> None:
    found = find_coordinator(cluster, unique, GROUP)
    assert found.error_code == ErrorCode.NONE
    brokers = cluster.metadata().brokers
    assert (found.host, found.port) in [(broker.host, broker.port) for broker in brokers]
    for broker in brokers:
        with RawConnection(broker.host, broker.port) as connection:
            here = broker.node_id == found.node_id
            # a coordinator that still loads its groups says NONE to any heartbeat (GroupCoordinatorService.heartbeat)
            early = {ErrorCode.NONE, *STARTING} if here else set()
            error = repeat_while(early.__contains__, partial(_heartbeat, connection, unique))
        assert error is (ErrorCode.UNKNOWN_MEMBER_ID if here else ErrorCode.NOT_COORDINATOR)


def _heartbeat(connection: RawConnection, group: str) -> ErrorCode:
    request = HeartbeatRequest(group_id=group, generation_id=1, member_id="nobody")
    return ErrorCode(connection.call(request, 2, HeartbeatResponse).error_code)
