"""Guards of the requests that read, write and describe topics (``KafkaApis``)."""

from collections.abc import Iterable
from typing import Any, Final

from kproxy.codec._generated.describe_producers import (
    DescribeProducersResponsePartitionResponse,
    DescribeProducersResponseTopicResponse,
)
from kproxy.codec._generated.describe_topic_partitions import DescribeTopicPartitionsResponseTopic
from kproxy.codec._generated.fetch import (
    FetchRequest,
    FetchResponse,
    FetchResponseFetchableTopicResponse,
    FetchResponsePartitionData,
)
from kproxy.codec._generated.list_offsets import (
    ListOffsetsResponseListOffsetsPartitionResponse,
    ListOffsetsResponseListOffsetsTopicResponse,
)
from kproxy.codec._generated.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from kproxy.codec._generated.offset_for_leader_epoch import (
    OffsetForLeaderEpochResponseEpochEndOffset,
    OffsetForLeaderEpochResponseOffsetForLeaderTopicResult,
)
from kproxy.codec._generated.produce import (
    ProduceRequest,
    ProduceResponse,
    ProduceResponsePartitionProduceResponse,
    ProduceResponseTopicProduceResponse,
)
from kproxy.codec.messages import ErrorCode
from kproxy.proxy.authorization.access import Access
from kproxy.proxy.authorization.acl_rules import Operation, ResourceType
from kproxy.proxy.authorization.guards import on_topic
from kproxy.proxy.screening import PASSED, Amend, Parts, Rows, Screened

_REFUSED: Final = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
_TOPIC: Final = ResourceType.TOPIC
_NO_SESSION: Final = -1

#: One row for each partition of a topic of a Produce request.
_WRITTEN = Rows(
    ProduceResponseTopicProduceResponse,
    ProduceResponsePartitionProduceResponse,
    rows="partition_responses",
    index="index",
    asked="partition_data",
    asked_index="index",
    fields=(("base_offset", -1),),
)
_READ = Rows(
    FetchResponseFetchableTopicResponse,
    FetchResponsePartitionData,
    name="topic",
    asked_index="partition",
    fields=(("high_watermark", -1), ("records", b"")),
)
_ENDS = Rows(
    OffsetForLeaderEpochResponseOffsetForLeaderTopicResult,
    OffsetForLeaderEpochResponseEpochEndOffset,
    name="topic",
    index="partition",
    asked_index="partition",
    fields=(("leader_epoch", -1), ("end_offset", -1)),
)
_TIMES = Rows(ListOffsetsResponseListOffsetsTopicResponse, ListOffsetsResponseListOffsetsPartitionResponse)
_PRODUCERS = Rows(
    DescribeProducersResponseTopicResponse,
    DescribeProducersResponsePartitionResponse,
    asked="partition_indexes",
    asked_index=None,
)

_produce_topics = Parts(on_topic(Operation.WRITE), _WRITTEN, parts=("topic_data",), results="responses")
_fetch_topics = Parts(on_topic(Operation.READ), _READ, results="responses")
_ends = Parts(on_topic(Operation.DESCRIBE), _ENDS)
list_offsets = Parts(on_topic(Operation.DESCRIBE), _TIMES)
describe_producers = Parts(on_topic(Operation.READ), _PRODUCERS)


def produce(access: Access, request: ProduceRequest, version: int) -> Screened:
    """Write on the transactional id, else nothing is written; and Write on each topic."""
    name = request.transactional_id
    if name is not None:
        error = access.error(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, name)
        if error:
            return Screened(answer=ProduceResponse(responses=[_written(topic, error) for topic in request.topic_data]))
    return _produce_topics(access, request, version)


def _written(topic: Any, error: int) -> ProduceResponseTopicProduceResponse:
    row: Any = _WRITTEN(topic, error)
    found: ProduceResponseTopicProduceResponse = row
    return found


def fetch(access: Access, request: FetchRequest, version: int) -> Screened:
    """Read on each topic, without a session (KIP-227): a session keeps the rights of its first request.

    A client that fetches as a replica needs ClusterAction.
    """
    if request.session_id:
        return Screened(answer=FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND))
    is_replica = request.replica_id >= 0 or request.replica_state.replica_id >= 0
    if is_replica and not access.may(Operation.CLUSTER_ACTION, ResourceType.CLUSTER):
        rows: list[Any] = [_READ(topic, _REFUSED) for topic in request.topics]
        return Screened(answer=FetchResponse(responses=rows))
    screened = PASSED if is_replica else _fetch_topics(access, request, version)
    if screened.answer is not None or request.session_epoch == _NO_SESSION:
        return screened
    rest: Any = screened.request or request
    return screened._replace(request=rest.replaced(session_epoch=_NO_SESSION, forgotten_topics_data=[]))


def offset_for_leader_epoch(access: Access, request: Any, version: int) -> Screened:
    """Describe on each topic; a principal with ClusterAction, as replicas have, needs no more."""
    return PASSED if access.sees(Operation.CLUSTER_ACTION, ResourceType.CLUSTER) else _ends(access, request, version)


def metadata(access: Access, request: MetadataRequest, version: int) -> Screened:
    """Describe on each topic; a request for all topics returns those that may be described.

    No topic is created for a client without that right (Create on the topic or on the cluster).
    """
    topics = request.topics
    if topics is None or (version == 0 and not topics):
        return Screened(amend=_describes(access, is_all=True))
    refused: list[MetadataRequestTopic] = []
    kept: list[MetadataRequestTopic] = []
    for topic in topics:
        is_refused = topic.name and not access.may(Operation.DESCRIBE, _TOPIC, topic.name)
        (refused if is_refused else kept).append(topic)
    access.makes_topics = all(_may_make(access, topic.name or "") for topic in kept)
    amend = _describes(access, is_all=False)
    if not refused:
        return Screened(amend=amend)
    rows = [MetadataResponseTopic(_REFUSED, topic.name, topic.topic_id) for topic in refused]

    def change(answer: MetadataResponse) -> None:
        if not kept:
            answer.topics.clear()  # v0 means all topics by none
        amend(answer)
        answer.topics.extend(rows)

    return Screened(request=request.replaced(topics=kept), amend=change)


def _may_make(access: Access, name: str) -> bool:
    return access.sees(Operation.CREATE, ResourceType.CLUSTER) or access.sees(Operation.CREATE, _TOPIC, name)


def _describes(access: Access, *, is_all: bool) -> Amend:
    """Takes out of a response what its client may not see: of all topics, or of those that it named by their ids."""

    def change(answer: MetadataResponse) -> None:
        seen = []
        for topic in answer.topics:
            if topic.name is None or access.sees(Operation.DESCRIBE, _TOPIC, topic.name):
                seen.append(topic)
            elif not is_all:
                access.may(Operation.DESCRIBE, _TOPIC, topic.name)
                seen.append(MetadataResponseTopic(_REFUSED, None, topic.topic_id))
        answer.topics = seen
        _authorize(access, seen)
        bits = answer.cluster_authorized_operations
        answer.cluster_authorized_operations = access.authorized(bits, ResourceType.CLUSTER)

    return change


def _authorize(access: Access, topics: Iterable[Any]) -> None:
    for topic in topics:
        bits = topic.topic_authorized_operations
        topic.topic_authorized_operations = access.authorized(bits, _TOPIC, topic.name or "")


def _partitions_seen(access: Access) -> Amend:
    def sees(name: str | None) -> bool:
        return name is None or access.sees(Operation.DESCRIBE, _TOPIC, name)

    def change(answer: Any) -> None:
        answer.topics = [topic for topic in answer.topics if sees(topic.name)]
        _authorize(access, answer.topics)

    return change


describe_topic_partitions = Parts(
    on_topic(Operation.DESCRIBE),
    lambda topic, error: DescribeTopicPartitionsResponseTopic(error, topic.name),
    amend=_partitions_seen,
)
