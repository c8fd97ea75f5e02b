"""Clients can't make, change, empty or delete kproxy's own topics, in any version, by name or by id."""

from collections.abc import Callable
from typing import Any

import pytest

from kproxy.budget import unbounded
from kproxy.codec._generated.alter_configs import AlterConfigsRequest, AlterConfigsRequestAlterConfigsResource
from kproxy.codec._generated.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsRequestReassignablePartition,
    AlterPartitionReassignmentsRequestReassignableTopic,
)
from kproxy.codec._generated.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsRequestCreatePartitionsTopic,
)
from kproxy.codec._generated.create_topics import CreateTopicsRequest, CreateTopicsRequestCreatableTopic
from kproxy.codec._generated.delete_records import (
    DeleteRecordsRequest,
    DeleteRecordsRequestDeleteRecordsPartition,
    DeleteRecordsRequestDeleteRecordsTopic,
)
from kproxy.codec._generated.delete_topics import DeleteTopicsRequest, DeleteTopicsRequestDeleteTopicState
from kproxy.codec._generated.elect_leaders import ElectLeadersRequest, ElectLeadersRequestTopicPartitions
from kproxy.codec._generated.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestAlterConfigsResource,
)
from kproxy.codec._generated.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from kproxy.codec.messages import ApiKey, ErrorCode, Message, request_class, response_class
from tests.proxy.playbook import KAFKA_44, Play

OWN = "__kproxy_producer_state"
OWN_ID = bytes(range(16))
SERVED = {**KAFKA_44, **{key: (0, request_class(key).MAX_VERSION) for key in (20, 21, 33, 37, 43, 44, 45)}}


def create_topics(*names: str) -> Message:
    topics = [CreateTopicsRequestCreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in names]
    return CreateTopicsRequest(topics=topics)


def create_partitions(*names: str) -> Message:
    topics = [CreatePartitionsRequestCreatePartitionsTopic(name=name, count=9, assignments=None) for name in names]
    return CreatePartitionsRequest(topics=topics)


def delete_records(*names: str) -> Message:
    rows = [DeleteRecordsRequestDeleteRecordsPartition(partition_index=3, offset=7)]
    topics = [DeleteRecordsRequestDeleteRecordsTopic(name=name, partitions=rows) for name in names]
    return DeleteRecordsRequest(topics=topics)


def delete_topics(*names: str) -> Message:
    return DeleteTopicsRequest(topic_names=list(names))


def delete_topics_v6(*names: str) -> Message:
    return DeleteTopicsRequest(topics=[DeleteTopicsRequestDeleteTopicState(name=name) for name in names])


def alter_configs(*names: str) -> Message:
    resources = [AlterConfigsRequestAlterConfigsResource(resource_type=2, resource_name=name) for name in names]
    return AlterConfigsRequest(resources=resources)


def incremental_alter_configs(*names: str) -> Message:
    resources = [
        IncrementalAlterConfigsRequestAlterConfigsResource(resource_type=2, resource_name=name) for name in names
    ]
    return IncrementalAlterConfigsRequest(resources=resources)


def elect_leaders(*names: str) -> Message:
    topics = [ElectLeadersRequestTopicPartitions(topic=name, partitions=[0, 1]) for name in names]
    return ElectLeadersRequest(topic_partitions=topics)


def reassign(*names: str) -> Message:
    rows = [AlterPartitionReassignmentsRequestReassignablePartition(partition_index=0, replicas=[2])]
    topics = [AlterPartitionReassignmentsRequestReassignableTopic(name=name, partitions=rows) for name in names]
    return AlterPartitionReassignmentsRequest(topics=topics)


ALL: list[tuple[Callable[..., Message], int]] = [
    (make, version)
    for make, key, first, last in (
        (create_topics, ApiKey.CREATE_TOPICS, 0, 7),
        (create_partitions, ApiKey.CREATE_PARTITIONS, 0, 3),
        (delete_records, ApiKey.DELETE_RECORDS, 0, 2),
        (delete_topics, ApiKey.DELETE_TOPICS, 0, 5),
        (delete_topics_v6, ApiKey.DELETE_TOPICS, 6, 6),
        (alter_configs, ApiKey.ALTER_CONFIGS, 0, 2),
        (incremental_alter_configs, ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, 1),
        (elect_leaders, ApiKey.ELECT_LEADERS, 0, 2),
        (reassign, ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, 1),
    )
    for version in range(max(first, request_class(key).MIN_VERSION), last + 1)
]


def told(answer: Any) -> dict[str, int]:
    """The error code by topic, whatever the API."""
    lists = ("topics", "results", "responses", "replica_election_results")
    rows = next(getattr(answer, name) for name in lists if hasattr(answer, name))
    found = {}
    for row in rows:
        parts = getattr(row, "partitions", getattr(row, "partition_result", [row]))
        name = next(getattr(row, each) for each in ("resource_name", "topic", "name") if hasattr(row, each))
        found[name] = parts[0].error_code
    return found


@pytest.mark.parametrize(("make", "version"), ALL)
def test_a_request_on_them_alone_is_refused_and_not_sent(make: Callable[..., Message], version: int) -> None:
    play = Play(served=SERVED)
    play.ask(make(OWN, "__kproxy_other"), version)
    assert play.upstream() == []
    refused = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert told(play.answer()) == {OWN: refused, "__kproxy_other": refused}


@pytest.mark.parametrize(("make", "version"), ALL)
def test_what_else_a_request_names_is_done(make: Callable[..., Message], version: int) -> None:
    play = Play(served=SERVED)
    play.ask(make(OWN, "t", "not__kproxy_"), version)
    asked, correlation_id, request = play.sent()
    assert request == type(request).decode(bytes(make("t", "not__kproxy_").encode(asked)), asked, unbounded())
    play.reply(response_class(request.API_KEY)(), asked, correlation_id)
    assert told(play.answer()) == {OWN: ErrorCode.TOPIC_AUTHORIZATION_FAILED}


@pytest.mark.parametrize(("make", "version"), [(make, version) for make, version in ALL if version > 1])
def test_a_request_on_others_passes_to_the_byte(make: Callable[..., Message], version: int) -> None:
    play = Play(served=SERVED)
    frame = play.frame(make("t"), version)
    sent = bytes(frame)
    play.session.request(frame, 1.0)
    assert [bytes(each) for each in play.session.to_upstream] == [sent]


def test_a_topic_is_not_deleted_by_an_id_that_a_client_received() -> None:
    play = Play(served=SERVED)
    play.ask(MetadataRequest(topics=None), 12)
    asked, correlation_id, _ = play.sent()
    play.reply(MetadataResponse(topics=[MetadataResponseTopic(name=OWN, topic_id=OWN_ID)]), asked, correlation_id)
    play.answer()
    play.ask(DeleteTopicsRequest(topics=[DeleteTopicsRequestDeleteTopicState(topic_id=OWN_ID)]), 6)
    assert play.upstream() == []
    (row,) = play.answer().responses
    assert (row.topic_id, row.error_code) == (OWN_ID, ErrorCode.TOPIC_AUTHORIZATION_FAILED)


@pytest.mark.parametrize(("election_type", "passes"), [(0, True), (1, False)])
def test_an_unclean_election_of_all_partitions_is_refused(election_type: int, passes: bool) -> None:
    play = Play(served=SERVED)
    play.ask(ElectLeadersRequest(election_type=election_type, topic_partitions=None), 2)
    assert bool(play.upstream()) is passes
    if not passes:
        assert play.answer().error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def test_configs_of_a_broker_that_is_called_so_are_its_owners_business() -> None:
    play = Play(served=SERVED)
    resource = AlterConfigsRequestAlterConfigsResource(resource_type=4, resource_name=OWN)
    play.ask(AlterConfigsRequest(resources=[resource]), 2)
    assert len(play.upstream()) == 1


@pytest.mark.parametrize("version", range(14))
def test_no_topic_is_made_because_a_client_asks_for_one_of_these_names(version: int) -> None:
    play = Play()
    play.ask(MetadataRequest(topics=[MetadataRequestTopic(name="t"), MetadataRequestTopic(name=OWN)]), version)
    asked, correlation_id, request = play.sent()
    assert (asked, request.allow_auto_topic_creation) == (max(version, 4), False)
    play.reply(MetadataResponse(topics=[MetadataResponseTopic(error_code=3, name=OWN)]), asked, correlation_id)
    assert [(topic.name, topic.error_code) for topic in play.answer().topics] == [(OWN, 3)]


@pytest.mark.parametrize("version", range(14))
def test_a_topic_of_another_name_may_still_be_made(version: int) -> None:
    play = Play()
    play.ask(MetadataRequest(topics=[MetadataRequestTopic(name="t")]), version)
    asked, _, request = play.sent()
    assert (asked, request.allow_auto_topic_creation) == (version, True)
