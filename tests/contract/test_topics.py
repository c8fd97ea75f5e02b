"""Topics: creation by request and by metadata, deletion, growth, settings; and the cluster's own description."""

import pytest

from kproxy.codec._generated.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsRequestCreatePartitionsAssignment,
    CreatePartitionsRequestCreatePartitionsTopic,
    CreatePartitionsResponse,
)
from kproxy.codec._generated.create_topics import (
    CreateTopicsRequest,
    CreateTopicsRequestCreatableReplicaAssignment,
    CreateTopicsRequestCreatableTopic,
    CreateTopicsRequestCreatableTopicConfig,
    CreateTopicsResponse,
)
from kproxy.codec._generated.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsRequestDeleteTopicState,
    DeleteTopicsResponse,
)
from kproxy.codec._generated.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from kproxy.codec._generated.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsRequestDescribeConfigsResource,
    DescribeConfigsResponse,
)
from kproxy.codec._generated.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from kproxy.codec.messages import ErrorCode
from kproxy.testing.cluster_client import ClusterClient
from tests.support.patience import eventually


def _ask(client: ClusterClient, name: str, version: int, create: bool = True) -> MetadataResponseTopic:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=create)
    return client.any_broker().call(request, version, MetadataResponse).topics[0]


@pytest.mark.parametrize("version", range(14))
def test_metadata_describes_a_topic(client: ClusterClient, topic: str, version: int) -> None:
    found = _ask(client, topic, version)
    assert (found.error_code, found.name, found.is_internal) == (ErrorCode.NONE, topic, False)
    assert [part.partition_index for part in sorted(found.partitions, key=lambda p: p.partition_index)] == [0, 1]
    assert all(part.leader_id == 1 and part.replica_nodes == part.isr_nodes == [1] for part in found.partitions)
    assert (found.topic_id != bytes(16)) == (version >= 10)
    assert all(part.leader_epoch == (0 if version >= 7 else -1) for part in found.partitions)


@pytest.mark.parametrize("version", [0, 1, 9, 12])
def test_metadata_of_all_topics(client: ClusterClient, topic: str, version: int) -> None:
    request = MetadataRequest(topics=None if version else [])
    answer = client.any_broker().call(request, version, MetadataResponse)
    assert topic in [found.name for found in answer.topics]
    assert len(answer.brokers) == 1
    if version:
        assert client.any_broker().call(MetadataRequest(topics=[]), version, MetadataResponse).topics == []
        assert answer.controller_id == 1


@pytest.mark.parametrize("version", [0, 1, 4, 12])
def test_metadata_creates_a_missing_topic(client: ClusterClient, unique: str, version: int) -> None:
    first = _ask(client, unique, version)
    assert (first.error_code, first.partitions) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, [])
    eventually(lambda: not _ask(client, unique, 9, create=False).error_code)
    assert len(_ask(client, unique, 9, create=False).partitions) == 1


def test_metadata_creates_nothing_when_told_not_to(client: ClusterClient, unique: str) -> None:
    for _ in range(2):
        assert _ask(client, unique, 4, create=False).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "x" * 250])
def test_illegal_names(client: ClusterClient, name: str) -> None:
    assert _ask(client, name, 9).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    request = CreateTopicsRequest(
        topics=[CreateTopicsRequestCreatableTopic(name=name, num_partitions=1, replication_factor=1)]
    )
    answer = client.any_broker().call(request, 5, CreateTopicsResponse).topics[0]
    assert answer.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_metadata_by_id(client: ClusterClient, topic: str) -> None:
    topic_id = _ask(client, topic, 12).topic_id
    request = MetadataRequest(topics=[MetadataRequestTopic(topic_id=topic_id, name=None)])
    assert client.any_broker().call(request, 12, MetadataResponse).topics[0].name == topic
    request = MetadataRequest(topics=[MetadataRequestTopic(topic_id=b"\x01" * 16, name=None)])
    answer = client.any_broker().call(request, 12, MetadataResponse).topics[0]
    assert (answer.error_code, answer.name) == (ErrorCode.UNKNOWN_TOPIC_ID, None)


@pytest.mark.parametrize("version", range(2, 8))
def test_create_topics(client: ClusterClient, unique: str, version: int) -> None:
    wanted = CreateTopicsRequestCreatableTopic(name=unique, num_partitions=3, replication_factor=1)
    dry = CreateTopicsRequest(topics=[wanted], timeout_ms=30_000, validate_only=True)
    assert client.any_broker().call(dry, version, CreateTopicsResponse).topics[0].error_code == ErrorCode.NONE
    assert _ask(client, unique, 9, create=False).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    request = CreateTopicsRequest(topics=[wanted], timeout_ms=30_000)
    answer = client.any_broker().call(request, version, CreateTopicsResponse).topics[0]
    assert answer.error_code == ErrorCode.NONE
    if version >= 5:
        assert (answer.num_partitions, answer.replication_factor) == (3, 1)
    again = client.any_broker().call(request, version, CreateTopicsResponse).topics[0]
    assert again.error_code == ErrorCode.TOPIC_ALREADY_EXISTS


@pytest.mark.parametrize(
    ("partitions", "replication", "error"),
    [
        (-1, -1, ErrorCode.NONE),
        (0, 1, ErrorCode.INVALID_PARTITIONS),
        (-2, 1, ErrorCode.INVALID_PARTITIONS),
        (1, 0, ErrorCode.INVALID_REPLICATION_FACTOR),
        (1, 2, ErrorCode.INVALID_REPLICATION_FACTOR),
    ],
)
def test_create_topics_checks_its_numbers(
    client: ClusterClient, unique: str, partitions: int, replication: int, error: ErrorCode
) -> None:
    wanted = CreateTopicsRequestCreatableTopic(name=unique, num_partitions=partitions, replication_factor=replication)
    request = CreateTopicsRequest(topics=[wanted], timeout_ms=30_000)
    assert client.any_broker().call(request, 5, CreateTopicsResponse).topics[0].error_code == error


def test_create_topics_with_assignments_and_bad_settings(client: ClusterClient, unique: str) -> None:
    placed = [CreateTopicsRequestCreatableReplicaAssignment(partition_index=i, broker_ids=[1]) for i in (0, 1)]
    bad = [CreateTopicsRequestCreatableTopicConfig(name="no.such.setting", value="1")]
    wanted = [
        CreateTopicsRequestCreatableTopic(name=unique, num_partitions=-1, replication_factor=-1, assignments=placed),
        CreateTopicsRequestCreatableTopic(name=f"{unique}-b", num_partitions=1, replication_factor=1, configs=bad),
    ]
    answer = client.any_broker().call(CreateTopicsRequest(topics=wanted, timeout_ms=30_000), 5, CreateTopicsResponse)
    errors = {found.name: found.error_code for found in answer.topics}
    assert errors == {unique: ErrorCode.NONE, f"{unique}-b": ErrorCode.INVALID_CONFIG}


@pytest.mark.parametrize(
    "placed", [[[]], [[], []], [[1], []], [[1, 1]], [[99]]], ids=["none", "none twice", "uneven", "twice", "unknown"]
)
def test_assignments_that_place_no_replicas_are_refused(
    client: ClusterClient, unique: str, topic: str, placed: list[list[int]]
) -> None:
    rows = [CreateTopicsRequestCreatableReplicaAssignment(index, brokers) for index, brokers in enumerate(placed)]
    name = f"{unique}-placed"
    wanted = CreateTopicsRequestCreatableTopic(name=name, num_partitions=-1, replication_factor=-1, assignments=rows)
    request = CreateTopicsRequest(topics=[wanted], timeout_ms=30_000)
    answer = client.any_broker().call(request, 5, CreateTopicsResponse).topics[0]
    assert ErrorCode(answer.error_code) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    more = [CreatePartitionsRequestCreatePartitionsAssignment(broker_ids=brokers) for brokers in placed]
    before = len(_ask(client, topic, 9).partitions)
    grown = CreatePartitionsRequestCreatePartitionsTopic(name=topic, count=before + len(more), assignments=more)
    refused = client.any_broker().call(
        CreatePartitionsRequest(topics=[grown], timeout_ms=30_000), 2, CreatePartitionsResponse
    )
    assert ErrorCode(refused.results[0].error_code) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert len(_ask(client, topic, 9).partitions) == before


@pytest.mark.parametrize("version", range(1, 7))
def test_delete_topics(client: ClusterClient, topic: str, version: int) -> None:
    request = DeleteTopicsRequest(topic_names=[topic, "contract-no-such-topic"], timeout_ms=30_000)
    if version >= 6:
        states = [DeleteTopicsRequestDeleteTopicState(name=name) for name in request.topic_names]
        request = DeleteTopicsRequest(topics=states, timeout_ms=30_000)
    answer = client.any_broker().call(request, version, DeleteTopicsResponse)
    errors = {found.name: found.error_code for found in answer.responses}
    assert errors == {topic: ErrorCode.NONE, "contract-no-such-topic": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    eventually(lambda: _ask(client, topic, 9, create=False).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def test_delete_topics_by_id(client: ClusterClient, topic: str) -> None:
    ids = [_ask(client, topic, 12).topic_id, b"\x01" * 16]
    states = [DeleteTopicsRequestDeleteTopicState(name=None, topic_id=topic_id) for topic_id in ids]
    request = DeleteTopicsRequest(topics=states, timeout_ms=30_000)
    answer = client.any_broker().call(request, 6, DeleteTopicsResponse)
    assert {found.topic_id: (found.name, found.error_code) for found in answer.responses} == {
        ids[0]: (topic, ErrorCode.NONE),
        ids[1]: (None, ErrorCode.UNKNOWN_TOPIC_ID),
    }


def test_create_partitions(client: ClusterClient, topic: str) -> None:
    for name, count, error in (
        (topic, 2, ErrorCode.INVALID_PARTITIONS),
        (topic, 5, ErrorCode.NONE),
        ("contract-no-such-topic", 5, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ):
        wanted = CreatePartitionsRequestCreatePartitionsTopic(name=name, count=count, assignments=None)
        request = CreatePartitionsRequest(topics=[wanted], timeout_ms=30_000)
        answer = client.any_broker().call(request, 2, CreatePartitionsResponse).results[0]
        assert ErrorCode(answer.error_code) is error
    eventually(lambda: len(_ask(client, topic, 9).partitions) == 5)


@pytest.mark.parametrize("version", range(1, 5))
def test_describe_configs(client: ClusterClient, unique: str, version: int) -> None:
    client.create_topic(unique, config={"message.timestamp.type": "LogAppendTime"})
    keys = ["message.timestamp.type", "cleanup.policy"]
    resources = [
        DescribeConfigsRequestDescribeConfigsResource(resource_type=2, resource_name=name, configuration_keys=keys)
        for name in (unique, "contract-no-such-topic")
    ]
    answer = client.any_broker().call(DescribeConfigsRequest(resources=resources), version, DescribeConfigsResponse)
    results = {found.resource_name: found for found in answer.results}
    told = {config.name: (config.value, config.config_source) for config in results[unique].configs}
    assert told == {"message.timestamp.type": ("LogAppendTime", 1), "cleanup.policy": ("delete", 5)}
    assert results["contract-no-such-topic"].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("version", range(3))
def test_describe_cluster(client: ClusterClient, version: int) -> None:
    answer = client.any_broker().call(DescribeClusterRequest(), version, DescribeClusterResponse)
    metadata = client.metadata()
    assert [(b.broker_id, b.host, b.port) for b in answer.brokers] == [
        (b.node_id, b.host, b.port) for b in metadata.brokers
    ]
    assert answer.cluster_id == metadata.cluster_id
