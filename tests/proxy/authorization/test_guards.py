"""What is refused of requests that ask for something allowed and for something that is not."""

import pytest

from kproxy.budget import Share, unbounded
from kproxy.codec._generated.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnRequestAddPartitionsToTxnTopic,
)
from kproxy.codec._generated.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupDescribeResponseAssignment,
    ConsumerGroupDescribeResponseDescribedGroup,
    ConsumerGroupDescribeResponseMember,
    ConsumerGroupDescribeResponseTopicPartitions,
)
from kproxy.codec._generated.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kproxy.codec._generated.create_topics import (
    CreateTopicsRequest,
    CreateTopicsRequestCreatableTopic,
    CreateTopicsResponse,
    CreateTopicsResponseCreatableTopicResult,
)
from kproxy.codec._generated.delete_topics import DeleteTopicsRequest, DeleteTopicsRequestDeleteTopicState
from kproxy.codec._generated.describe_groups import (
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    DescribeGroupsResponseDescribedGroup,
)
from kproxy.codec._generated.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    DescribeTransactionsResponseTopicData,
    DescribeTransactionsResponseTransactionState,
)
from kproxy.codec._generated.fetch import (
    FetchRequest,
    FetchRequestFetchPartition,
    FetchRequestFetchTopic,
    FetchResponse,
)
from kproxy.codec._generated.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from kproxy.codec._generated.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestAlterConfigsResource,
)
from kproxy.codec._generated.init_producer_id import InitProducerIdRequest
from kproxy.codec._generated.list_groups import ListGroupsRequest, ListGroupsResponse, ListGroupsResponseListedGroup
from kproxy.codec._generated.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
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
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from kproxy.codec._generated.produce import (
    ProduceRequest,
    ProduceRequestPartitionProduceData,
    ProduceRequestTopicProduceData,
    ProduceResponse,
)
from kproxy.codec._generated.streams_group_describe import (
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
    StreamsGroupDescribeResponseDescribedGroup,
    StreamsGroupDescribeResponseSubtopology,
    StreamsGroupDescribeResponseTopicInfo,
    StreamsGroupDescribeResponseTopology,
)
from kproxy.codec._generated.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatRequestSubtopology,
    StreamsGroupHeartbeatRequestTopicInfo,
    StreamsGroupHeartbeatRequestTopology,
)
from kproxy.codec._generated.streams_group_topology_description_update import (
    StreamsGroupTopologyDescriptionUpdateRequest,
)
from kproxy.codec.messages import ErrorCode
from kproxy.errors import RemoteProtocolError
from kproxy.proxy.authorization.screen import screen
from kproxy.proxy.context import Policy as Limits
from tests.proxy.authorization.screening import Screened, allow

TOPIC = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
GROUP = int(ErrorCode.GROUP_AUTHORIZATION_FAILED)
TXN = int(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
CLUSTER = int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
A_ID, B_ID, NEW_ID = (bytes([n]) * 16 for n in (1, 2, 3))
NAMES = {A_ID: "a", B_ID: "b"}


def produce(*topics: str | bytes, transactional_id: str | None = None, acks: int = -1) -> ProduceRequest:
    data = []
    for each in topics:
        parts = [ProduceRequestPartitionProduceData(index, b"x") for index in (0, 1)]
        named = {"topic_id": each} if isinstance(each, bytes) else {"name": each}
        data.append(ProduceRequestTopicProduceData(partition_data=parts, **named))
    return ProduceRequest(transactional_id, acks, 500, data)


def produced(response: ProduceResponse) -> dict[str | bytes, list[int]]:
    return {
        topic.name or topic.topic_id: [row.error_code for row in topic.partition_responses]
        for topic in response.responses
    }


# -- Produce


@pytest.mark.parametrize("version", [0, 2, 3, 8, 9, 12])
def test_the_partitions_that_may_be_written_are_and_the_others_told(version: int) -> None:
    screened = Screened("Write t:a")
    asked, told = screened.passed(produce("a", "b"), version, ProduceResponse())
    assert [topic.name for topic in asked.topic_data] == ["a"]
    assert produced(told) == {"b": [TOPIC, TOPIC]}
    assert screened.names() == [("Write", "b")]


def test_topics_by_their_ids_are_known_by_name_and_a_new_one_is_to_be_asked_for() -> None:
    screened = Screened("Write t:a", names=NAMES)
    asked, told = screened.passed(produce(A_ID, B_ID, NEW_ID), 13, ProduceResponse())
    assert [topic.topic_id for topic in asked.topic_data] == [A_ID]
    unknown = int(ErrorCode.UNKNOWN_TOPIC_ID)
    assert produced(told) == {B_ID: [TOPIC, TOPIC], NEW_ID: [unknown, unknown]}


def test_without_its_transactional_id_a_producer_writes_nothing() -> None:
    screened = Screened("Write t:a", "Write x:mine")
    assert produced(screened.refused(produce("a", transactional_id="others"), 9)) == {"a": [TXN, TXN]}
    screened.passed(produce("a", transactional_id="mine"), 9)


def test_who_waits_for_no_answer_has_none() -> None:
    screening, _ = Screened().screen(produce("a", acks=0), 8)
    assert (screening.frame, screening.answer) == (None, None)


# -- Fetch


def fetch(*topics: str, session: tuple[int, int] = (0, -1), replica: int = -1) -> FetchRequest:
    rows = [FetchRequestFetchTopic(topic=name, partitions=[FetchRequestFetchPartition(3)]) for name in topics]
    return FetchRequest(replica_id=replica, session_id=session[0], session_epoch=session[1], topics=rows)


def fetched(response: FetchResponse) -> dict[str, list[tuple[int, int]]]:
    return {
        each.topic: [(row.partition_index, row.error_code) for row in each.partitions] for each in response.responses
    }


@pytest.mark.parametrize("version", [0, 4, 11, 12])
def test_what_may_be_read_is(version: int) -> None:
    asked, told = Screened("Read t:a").passed(fetch("a", "b"), version, FetchResponse())
    assert [topic.topic for topic in asked.topics] == ["a"]
    assert fetched(told) == {"b": [(3, TOPIC)]}
    assert fetched(Screened("Write t:a").refused(fetch("a"), version)) == {"a": [(3, TOPIC)]}


def test_no_fetch_has_a_session() -> None:
    screened = Screened("Read t:a")
    asked, _ = screened.passed(fetch("a", session=(0, 0)), 11)
    assert (asked.session_id, asked.session_epoch) == (0, -1)
    gone = int(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    assert screened.refused(fetch(session=(17, 1)), 11).error_code == gone


def test_a_fetch_that_is_allowed_is_not_touched() -> None:
    screening, frame = Screened("Read t:a").screen(fetch("a"), 11)
    assert screening.frame is frame
    assert screening.finish is None


def test_replicas_need_the_cluster() -> None:
    assert fetched(Screened("Read t:").refused(fetch("a", replica=2), 11)) == {"a": [(3, TOPIC)]}
    Screened("ClusterAction c:").passed(fetch("a", replica=2), 11)


# -- Metadata


def metadata(*names: str, ids: tuple[bytes, ...] = (), makes: bool = True) -> MetadataRequest:
    topics = [MetadataRequestTopic(name=name) for name in names]
    topics += [MetadataRequestTopic(topic_id=topic_id, name=None) for topic_id in ids]
    return MetadataRequest(topics, makes)


def described(*names: str, **ids: bytes) -> MetadataResponse:
    topics = [MetadataResponseTopic(name=name) for name in names]
    topics += [MetadataResponseTopic(name=name, topic_id=topic_id) for name, topic_id in ids.items()]
    return MetadataResponse(topics=topics)


def seen(response: MetadataResponse) -> list[tuple[str | None, int]]:
    return [(topic.name, topic.error_code) for topic in response.topics]


@pytest.mark.parametrize("version", [0, 1, 4, 9, 12])
def test_of_all_topics_those_are_returned_that_may_be_described(version: int) -> None:
    everything = MetadataRequest([] if version == 0 else None)
    screened = Screened("Read t:a")
    _, told = screened.passed(everything, version, described("a", "b", "ab"))
    assert seen(told) == [("a", 0), ("ab", 0)]
    assert screened.told == []


@pytest.mark.parametrize("version", [0, 1, 4, 9, 12])
def test_named_topics_are_refused_by_name_and_the_brokers_told(version: int) -> None:
    screened = Screened("Describe t:a")
    asked, told = screened.passed(metadata("a", "b"), version, described("a"))
    assert [topic.name for topic in asked.topics] == ["a"]
    assert seen(told) == [("a", 0), ("b", TOPIC)]
    _, told = screened.passed(metadata("b"), version, described("x", "y") if version == 0 else described())
    assert seen(told) == [("b", TOPIC)]


def test_the_name_after_an_id_is_not_told() -> None:
    screened = Screened("Describe t:a")
    _, told = screened.passed(metadata(ids=(A_ID, B_ID)), 12, described(a=A_ID, b=B_ID))
    assert seen(told) == [("a", 0), (None, TOPIC)]
    assert [topic.topic_id for topic in told.topics] == [A_ID, B_ID]


@pytest.mark.parametrize(
    ("grants", "makes"),
    [(["Write t:"], False), (["Write t:", "Create t:a"], True), (["Describe t:", "Create c:"], True)],
)
def test_no_topic_is_made_for_who_may_not(grants: list[str], makes: bool) -> None:
    screened = Screened(*grants)
    screened.passed(metadata("a"), 4)
    assert screened.access.makes_topics is makes


def test_operations_are_those_of_the_client() -> None:
    answer = described("a")
    answer.topics[0].topic_authorized_operations = (1 << 3) | (1 << 4) | (1 << 8)
    _, told = Screened("Read t:a").passed(metadata("a"), 8, answer)
    assert told.topics[0].topic_authorized_operations == (1 << 3) | (1 << 8)


# -- groups


def commit(*topics: str) -> OffsetCommitRequest:
    rows = [OffsetCommitRequestTopic(name=name, partitions=[OffsetCommitRequestPartition(1)]) for name in topics]
    return OffsetCommitRequest("g", topics=rows)


@pytest.mark.parametrize("version", [0, 2, 7, 9])
def test_offsets_need_the_group_and_each_topic(version: int) -> None:
    asked, _ = Screened("Read g:g", "Read t:a").passed(commit("a", "b"), version)
    assert [topic.name for topic in asked.topics] == ["a"]
    refused = Screened("Read t:a").refused(commit("a"), version)
    assert [row.error_code for topic in refused.topics for row in topic.partitions] == [GROUP]
    refused = Screened("Read g:g").refused(commit("a"), version)
    assert [row.error_code for topic in refused.topics for row in topic.partitions] == [TOPIC]


def test_offsets_of_all_topics_are_those_that_may_be_described() -> None:
    screened = Screened("Describe g:g", "Describe t:a")
    answer = OffsetFetchResponse(topics=[OffsetFetchResponseTopic("a"), OffsetFetchResponseTopic("b")])
    _, told = screened.passed(OffsetFetchRequest("g", None), 7, answer)
    assert [topic.name for topic in told.topics] == ["a"]
    named = OffsetFetchRequest("g", [OffsetFetchRequestTopic(name, [0]) for name in "ab"])
    asked, told = screened.passed(named, 7, OffsetFetchResponse())
    assert [topic.name for topic in asked.topics] == ["a"]
    assert [(topic.name, topic.partitions[0].error_code) for topic in told.topics] == [("b", TOPIC)]


@pytest.mark.parametrize("version", [8, 9, 10])
def test_offsets_of_many_groups_are_refused_one_by_one(version: int) -> None:
    screened = Screened("Describe g:g", "Describe t:a", names=NAMES)
    by_id = version == 10
    topics = [
        OffsetFetchRequestTopics("" if by_id else name, key if by_id else bytes(16), [0]) for key, name in NAMES.items()
    ]
    groups = [
        OffsetFetchRequestGroup("g1", topics=topics),
        OffsetFetchRequestGroup("g2", topics=None),
        OffsetFetchRequestGroup("other", topics=topics),
    ]
    rows = [OffsetFetchResponseTopics("", key) if by_id else OffsetFetchResponseTopics(NAMES[key]) for key in NAMES]
    answer = OffsetFetchResponse(groups=[OffsetFetchResponseGroup("g1"), OffsetFetchResponseGroup("g2", rows)])
    asked, told = screened.passed(OffsetFetchRequest(groups=groups), version, answer)
    assert [group.group_id for group in asked.groups] == ["g1", "g2"]
    assert len(asked.groups[0].topics) == 1
    found = {group.group_id: group for group in told.groups}
    assert [topic.partitions[0].error_code for topic in found["g1"].topics] == [TOPIC]
    assert [topic.topic_id if by_id else topic.name for topic in found["g2"].topics] == [A_ID if by_id else "a"]
    assert found["other"].error_code == GROUP


@pytest.mark.parametrize("all_first", [True, False])
def test_a_group_that_is_named_twice_shows_no_hidden_topic(all_first: bool) -> None:
    screened = Screened("Describe g:g", "Describe t:a")
    named = [OffsetFetchRequestTopics("a", partition_indexes=[0]), OffsetFetchRequestTopics("b", partition_indexes=[0])]
    groups = [OffsetFetchRequestGroup("g", topics=None), OffsetFetchRequestGroup("g", topics=named)]
    rows = [OffsetFetchResponseTopics("a"), OffsetFetchResponseTopics("b")]
    answers = [OffsetFetchResponseGroup("g", rows), OffsetFetchResponseGroup("g", [OffsetFetchResponseTopics("a")])]
    if not all_first:
        groups.reverse()
        answers.reverse()
    asked, told = screened.passed(OffsetFetchRequest(groups=groups), 8, OffsetFetchResponse(groups=answers))
    assert sorted(len(group.topics or ()) for group in asked.groups) == [0, 1]
    shown = [(topic.name, [row.error_code for row in topic.partitions]) for row in told.groups for topic in row.topics]
    assert sorted(shown) == [("a", []), ("a", []), ("b", [TOPIC])]


def test_groups_are_described_and_listed_as_far_as_they_may_be() -> None:
    screened = Screened("Read g:g")
    described_ = DescribeGroupsResponse(groups=[DescribeGroupsResponseDescribedGroup(group_id="g1")])
    asked, told = screened.passed(DescribeGroupsRequest(["g1", "x"]), 5, described_)
    assert asked.groups == ["g1"]
    assert [(group.group_id, group.error_code) for group in told.groups] == [("g1", 0), ("x", GROUP)]
    listed = ListGroupsResponse(groups=[ListGroupsResponseListedGroup(name) for name in ("g1", "x")])
    _, told = screened.passed(ListGroupsRequest(), 4, listed)
    assert [group.group_id for group in told.groups] == ["g1"]
    _, told = Screened("Describe c:").passed(ListGroupsRequest(), 4, listed)
    assert [group.group_id for group in told.groups] == ["g1", "x"]


def test_a_new_consumer_subscribes_to_what_it_may_see() -> None:
    request = ConsumerGroupHeartbeatRequest("g", subscribed_topic_names=["a", "b"])
    assert Screened("Read g:").refused(request, 0).error_code == TOPIC
    assert Screened("Read t:").refused(request, 0).error_code == GROUP
    Screened("Read g:", "Read t:").passed(request, 0)


def test_a_group_is_described_if_its_topics_may_be() -> None:
    rows = []
    for name in ("a", "b"):
        topics = [ConsumerGroupDescribeResponseTopicPartitions(A_ID, name, [0])]
        one = ConsumerGroupDescribeResponseMember("m", assignment=ConsumerGroupDescribeResponseAssignment(topics))
        rows.append(ConsumerGroupDescribeResponseDescribedGroup(group_id=f"g{name}", members=[one]))
    screened = Screened("Describe g:g", "Describe t:a")
    request = ConsumerGroupDescribeRequest(["ga", "gb", "x"])
    _, told = screened.passed(request, 0, ConsumerGroupDescribeResponse(groups=rows))
    found = [(group.group_id, group.error_code, len(group.members)) for group in told.groups]
    assert found == [("ga", 0, 1), ("gb", TOPIC, 0), ("x", GROUP, 0)]


@pytest.mark.parametrize("version", [0, 1])
def test_a_streams_group_is_described_if_its_topics_may_be(version: int) -> None:
    rows = []
    for name in ("a", "b"):
        part = StreamsGroupDescribeResponseSubtopology("0", ["a"], ["a"])
        part.state_changelog_topics = [StreamsGroupDescribeResponseTopicInfo(name)]
        topology = StreamsGroupDescribeResponseTopology(1, [part])
        rows.append(StreamsGroupDescribeResponseDescribedGroup(group_id=f"g{name}", topology=topology))
    rows.append(StreamsGroupDescribeResponseDescribedGroup(group_id="gc"))
    screened = Screened("Describe g:g", "Describe t:a")
    request = StreamsGroupDescribeRequest(["ga", "gb", "gc", "x"])
    _, told = screened.passed(request, version, StreamsGroupDescribeResponse(groups=rows))
    found = [(group.group_id, group.error_code, group.topology is None) for group in told.groups]
    assert found == [("ga", 0, False), ("gb", TOPIC, True), ("gc", 0, True), ("x", GROUP, True)]


def test_a_member_of_a_streams_group_describes_its_topology_with_read_on_the_group() -> None:
    request = StreamsGroupTopologyDescriptionUpdateRequest("g", "m", 1)
    assert Screened("Read g:other").refused(request, 0).error_code == GROUP
    Screened("Read g:g").passed(request, 0)


def test_a_broker_makes_topics_only_for_who_may() -> None:
    made = StreamsGroupHeartbeatRequestTopicInfo("log")
    part = StreamsGroupHeartbeatRequestSubtopology("0", ["in"], state_changelog_topics=[made])
    request = StreamsGroupHeartbeatRequest("g", topology=StreamsGroupHeartbeatRequestTopology(1, [part]))
    assert Screened("Read g:", "Read t:in").refused(request, 0).error_code == TOPIC
    assert Screened("Read g:", "Read t:").refused(request, 0).error_code == TOPIC
    Screened("Read g:", "Read t:", "Create t:log").passed(request, 0)
    Screened("Read g:", "Read t:", "Create c:").passed(request, 0)
    Screened("Read g:").passed(StreamsGroupHeartbeatRequest("g"), 0)


@pytest.mark.parametrize(("key_type", "error"), [(0, GROUP), (1, TXN), (2, GROUP)])
def test_coordinators(key_type: int, error: int) -> None:
    assert Screened().refused(FindCoordinatorRequest("k", key_type), 3).error_code == error
    screened = Screened("Describe g:k", "Describe x:k")
    request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=["k", "other"])
    asked, told = screened.passed(request, 4, FindCoordinatorResponse())
    assert asked.coordinator_keys == ["k"]
    assert [(row.key, row.error_code, row.node_id) for row in told.coordinators] == [("other", error, -1)]


# -- transactions


def test_partitions_are_added_all_or_none() -> None:
    topics = [AddPartitionsToTxnRequestAddPartitionsToTxnTopic(name, [0]) for name in "ab"]
    request = AddPartitionsToTxnRequest(v3_and_below_transactional_id="x", v3_and_below_topics=topics)
    told = Screened("Write x:x", "Write t:a").refused(request, 3)
    errors = {
        topic.name: topic.results_by_partition[0].partition_error_code for topic in told.results_by_topic_v3_and_below
    }
    assert errors == {"a": ErrorCode.OPERATION_NOT_ATTEMPTED, "b": TOPIC}
    Screened("Write x:x", "Write t:").passed(request, 3)


def test_idempotence_needs_some_topic_or_the_cluster() -> None:
    request = InitProducerIdRequest(None)
    assert Screened("Read t:").refused(request, 4).error_code == CLUSTER
    Screened("Write t:a").passed(request, 4)
    Screened("IdempotentWrite c:").passed(request, 4)
    assert Screened("Write t:a").refused(InitProducerIdRequest("x"), 4).error_code == TXN


def test_transactions_are_described_without_topics_that_may_not_be_seen() -> None:
    topics = [DescribeTransactionsResponseTopicData(name, [0]) for name in "ab"]
    answer = DescribeTransactionsResponse(
        transaction_states=[DescribeTransactionsResponseTransactionState(transactional_id="x1", topics=topics)]
    )
    screened = Screened("Describe x:x", "Read t:a")
    _, told = screened.passed(DescribeTransactionsRequest(["x1", "y"]), 0, answer)
    assert [topic.topic for topic in told.transaction_states[0].topics] == ["a"]
    assert [row.error_code for row in told.transaction_states] == [0, TXN]


# -- admin


def test_topics_are_made_by_right_on_them_or_on_the_cluster() -> None:
    request = CreateTopicsRequest([CreateTopicsRequestCreatableTopic(name) for name in "ab"])
    made = CreateTopicsResponse(topics=[CreateTopicsResponseCreatableTopicResult("a", num_partitions=3)])
    asked, told = Screened("Create t:a").passed(request, 7, made)
    assert [topic.name for topic in asked.topics] == ["a"]
    assert [(row.name, row.error_code) for row in told.topics] == [("a", 0), ("b", TOPIC)]
    assert (told.topics[0].topic_config_error_code, told.topics[0].num_partitions) == (TOPIC, -1)
    made.topics[0].num_partitions = 3
    _, told = Screened("Create c:", "DescribeConfigs t:").passed(request, 7, made)
    assert told.topics[0].num_partitions == 3


def test_topics_are_deleted_by_name_and_by_id() -> None:
    screened = Screened("Delete t:a", names=NAMES)
    asked, _ = screened.passed(DeleteTopicsRequest(topic_names=["a", "b"]), 5)
    assert asked.topic_names == ["a"]
    by_id = DeleteTopicsRequest([DeleteTopicsRequestDeleteTopicState(None, key) for key in (A_ID, B_ID)])
    asked, _ = screened.passed(by_id, 6)
    assert [topic.topic_id for topic in asked.topics] == [A_ID]


def test_configurations_belong_to_topics_groups_and_the_cluster() -> None:
    kinds = {2: TOPIC, 4: CLUSTER, 8: CLUSTER, 16: CLUSTER, 32: GROUP}
    rows = [IncrementalAlterConfigsRequestAlterConfigsResource(kind, "n") for kind in kinds]
    told = Screened().refused(IncrementalAlterConfigsRequest(rows), 1)
    assert {row.resource_type: row.error_code for row in told.responses} == kinds
    asked, _ = Screened("AlterConfigs c:").passed(IncrementalAlterConfigsRequest(rows), 1)
    assert [row.resource_type for row in asked.resources] == [4, 8, 16]


# -- what is remembered, and what is answered


def test_new_rules_hold_at_once() -> None:
    screened = Screened("Write t:a")
    screened.passed(produce("a"), 9)
    screened.policy.use(type(screened.policy.rules)(allow("Read t:a")))
    assert screened.access.renew("User:a", "client")
    assert produced(screened.refused(produce("a"), 9)) == {"a": [TOPIC, TOPIC]}
    assert not screened.access.renew("User:a", "client")


def test_a_refusal_is_logged_with_who_what_and_why() -> None:
    screened = Screened("Write t:a")
    screened.policy.use(type(screened.policy.rules)([*allow("Write t:"), *allow("All t:a", allows=False)]))
    screened.access.renew("User:b", "client")
    screened.refused(produce("a"), 9)
    ((subject, refusal),) = screened.told
    assert subject == ("User:b", "10.0.0.1", "client")
    assert (refusal.api_key, refusal.operation, refusal.name) == (0, "Write", "a")
    assert refusal.rule is not None
    assert not refusal.rule.allows


def test_an_api_without_a_guard_is_not_served() -> None:
    frame = bytearray(b"\0\0\0\x0a\x03\xe7\0\0\0\0\0\x07\xff\xff")
    with pytest.raises(RemoteProtocolError, match="API key 999 is not served"):
        screen(Screened("All c:").access, frame, Share(Limits()), unbounded())
