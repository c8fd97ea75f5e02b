"""Topics, their settings, and the brokers that have them."""

from kproxy.codec._generated.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsRequestCreatePartitionsTopic,
    CreatePartitionsResponse,
    CreatePartitionsResponseCreatePartitionsTopicResult,
)
from kproxy.codec._generated.create_topics import (
    CreateTopicsRequest,
    CreateTopicsRequestCreatableTopic,
    CreateTopicsResponse,
    CreateTopicsResponseCreatableTopicConfigs,
    CreateTopicsResponseCreatableTopicResult,
)
from kproxy.codec._generated.delete_records import (
    DeleteRecordsRequest,
    DeleteRecordsRequestDeleteRecordsPartition,
    DeleteRecordsResponse,
    DeleteRecordsResponseDeleteRecordsPartitionResult,
    DeleteRecordsResponseDeleteRecordsTopicResult,
)
from kproxy.codec._generated.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsRequestDeleteTopicState,
    DeleteTopicsResponse,
    DeleteTopicsResponseDeletableTopicResult,
)
from kproxy.codec._generated.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeClusterResponseDescribeClusterBroker,
)
from kproxy.codec._generated.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsRequestDescribeConfigsResource,
    DescribeConfigsResponse,
    DescribeConfigsResponseDescribeConfigsResourceResult,
    DescribeConfigsResponseDescribeConfigsResult,
)
from kproxy.codec._generated.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kproxy.codec.messages import ApiKey, ErrorCode
from kproxy.codec.topic_names import is_legal_topic
from kproxy.testing.fake_broker.configs import (
    BROKER_DEFAULTS,
    DEFAULT_CONFIG,
    DYNAMIC_TOPIC_CONFIG,
    TOPIC_DEFAULTS,
    config_error,
)
from kproxy.testing.fake_broker.controller import excessive, reach_controller
from kproxy.testing.fake_broker.fake_api import Call, api
from kproxy.testing.fake_broker.partition import INTERNAL_TOPICS, NO_LEADER, Partition, Topic

_ASK_BY_ID_VERSION = 12
_NO_ID = bytes(16)
_STATES_VERSION = 6
_TO_THE_END = -1
_TOPIC_RESOURCE = 2
_BROKER_RESOURCE = 4
_BROKER_ENDPOINTS = 1


@api(ApiKey.METADATA, (0, 13))
async def metadata(call: Call) -> MetadataResponse:
    """Describe the live brokers and the topics asked for.

    Version 0 asks for all topics with an empty list, later ones with null. An unknown topic is created if the broker
    and (from version 4) the request allow it; the response still says UNKNOWN_TOPIC_OR_PARTITION, since creation takes
    a moment in KRaft, and the client's next question finds it. Versions 10 and later carry ids, 12 and later may ask by
    id.
    """
    request: MetadataRequest = call.request
    response = MetadataResponse(cluster_id=call.cluster.config.cluster_id)
    live = [broker for broker in call.cluster.brokers.values() if broker.listed]
    response.brokers = [MetadataResponseBroker(node_id=b.node_id, host=b.host, port=b.port) for b in live]
    response.controller_id = live[0].node_id if live else -1
    if request.topics is None or (call.version == 0 and not request.topics):
        response.topics = [_topic_row(call, topic) for topic in call.cluster.topics.values()]
    else:
        response.topics = [_topic_asked_for(call, wanted) for wanted in request.topics]
    return response


def _topic_asked_for(call: Call, wanted: MetadataRequestTopic) -> MetadataResponseTopic:
    if wanted.topic_id != _NO_ID and call.version >= _ASK_BY_ID_VERSION:
        by_id = call.cluster.topic_by_id(wanted.topic_id)
        if by_id is not None:
            return _topic_row(call, by_id)
        return MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=wanted.topic_id)
    name = wanted.name or ""
    topic = call.cluster.topics.get(name)
    if topic is not None:
        return _topic_row(call, topic)
    if not is_legal_topic(name):
        return MetadataResponseTopic(error_code=ErrorCode.INVALID_TOPIC_EXCEPTION, name=name)
    wanted_by_all = call.cluster.config.auto_create_topics and call.request.allow_auto_topic_creation
    if wanted_by_all and call.cluster.controller_alive:
        call.cluster.create_topic(name)
    return MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name=name)


def _topic_row(call: Call, topic: Topic) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=[_partition_row(call, partition) for partition in topic.partitions],
    )


def _partition_row(call: Call, partition: Partition) -> MetadataResponsePartition:
    brokers = call.cluster.brokers
    return MetadataResponsePartition(
        error_code=ErrorCode.LEADER_NOT_AVAILABLE if partition.leader == NO_LEADER else ErrorCode.NONE,
        partition_index=partition.index,
        leader_id=partition.leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=list(partition.isr),
        offline_replicas=[node for node in partition.replicas if not brokers[node].listed or brokers[node].failed],
    )


@api(ApiKey.CREATE_TOPICS, (2, 7))
async def create_topics(call: Call) -> CreateTopicsResponse:
    """Create each topic; one failure does not touch the others.

    Any broker takes it, as in KRaft; manual assignments set the replicas.
    """
    request: CreateTopicsRequest = call.request
    error = await reach_controller(call) or excessive(_partitions_of(topic) for topic in request.topics)
    if error is not ErrorCode.NONE:
        refused = [
            CreateTopicsResponseCreatableTopicResult(name=topic.name, error_code=error) for topic in request.topics
        ]
        return CreateTopicsResponse(topics=refused)
    return CreateTopicsResponse(topics=[_create(call, topic) for topic in request.topics])


def _partitions_of(topic: CreateTopicsRequestCreatableTopic) -> int:
    return len(topic.assignments) or max(topic.num_partitions, 1)


def _create(call: Call, wanted: CreateTopicsRequestCreatableTopic) -> CreateTopicsResponseCreatableTopicResult:
    result = CreateTopicsResponseCreatableTopicResult(name=wanted.name)
    fault = config_error({entry.name: entry.value for entry in wanted.configs})
    if fault is not None:
        result.error_code, result.error_message = ErrorCode.INVALID_CONFIG, fault
        return result
    config = {entry.name: entry.value or "" for entry in wanted.configs}
    placed = [entry.broker_ids for entry in sorted(wanted.assignments, key=lambda entry: entry.partition_index)]
    partitions = len(placed) if placed else wanted.num_partitions
    replication = len(placed[0]) if placed else wanted.replication_factor
    result.error_code = call.cluster.create_topic(
        wanted.name, partitions, replication, config, placed=placed, validate_only=call.request.validate_only
    )
    topic = call.cluster.topics.get(wanted.name)
    if result.error_code == ErrorCode.NONE and topic is not None:
        result.topic_id = topic.topic_id
        result.num_partitions = len(topic.partitions)
        result.replication_factor = len(topic.partitions[0].replicas)
        result.configs = [
            CreateTopicsResponseCreatableTopicConfigs(name=name, value=value, config_source=DYNAMIC_TOPIC_CONFIG)
            for name, value in sorted(config.items())
        ]
    return result


@api(ApiKey.CREATE_PARTITIONS, (0, 3))
async def create_partitions(call: Call) -> CreatePartitionsResponse:
    """Grow each topic; manual assignments set the replicas of the new partitions."""
    request: CreatePartitionsRequest = call.request
    error = await reach_controller(call) or excessive(_partitions_added(call, topic) for topic in request.topics)
    return CreatePartitionsResponse(
        results=[
            CreatePartitionsResponseCreatePartitionsTopicResult(name=topic.name, error_code=error or _grow(call, topic))
            for topic in request.topics
        ]
    )


def _partitions_added(call: Call, wanted: CreatePartitionsRequestCreatePartitionsTopic) -> int:
    topic = call.cluster.topics.get(wanted.name)
    return 0 if topic is None else max(wanted.count - len(topic.partitions), 0)


def _grow(call: Call, wanted: CreatePartitionsRequestCreatePartitionsTopic) -> ErrorCode:
    topic = call.cluster.topics.get(wanted.name)
    if topic is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    before = len(topic.partitions)
    if wanted.count <= before:
        return ErrorCode.INVALID_PARTITIONS
    placed = [assignment.broker_ids for assignment in wanted.assignments or ()]
    replication = len(topic.partitions[0].replicas)
    if placed and not call.cluster.can_place(placed, wanted.count - before, replication):
        return ErrorCode.INVALID_REPLICA_ASSIGNMENT
    if not call.cluster.can_replicate(replication):
        return ErrorCode.INVALID_REPLICATION_FACTOR
    if not call.request.validate_only:
        call.cluster.add_partitions(topic, wanted.count - before, replication, placed)
    return ErrorCode.NONE


@api(ApiKey.DELETE_TOPICS, (1, 6))
async def delete_topics(call: Call) -> DeleteTopicsResponse:
    """Version 6 may name a topic by id. Gone at once, with its groups' offsets."""
    request: DeleteTopicsRequest = call.request
    wanted = request.topics
    if call.version < _STATES_VERSION:
        wanted = [DeleteTopicsRequestDeleteTopicState(name=name) for name in request.topic_names]
    error = await reach_controller(call)
    if error is not ErrorCode.NONE:
        refused = [
            DeleteTopicsResponseDeletableTopicResult(name=topic.name, topic_id=topic.topic_id, error_code=error)
            for topic in wanted
        ]
        return DeleteTopicsResponse(responses=refused)
    return DeleteTopicsResponse(responses=[_delete_topic(call, topic) for topic in wanted])


def _delete_topic(call: Call, wanted: DeleteTopicsRequestDeleteTopicState) -> DeleteTopicsResponseDeletableTopicResult:
    by_id = call.cluster.topic_by_id(wanted.topic_id) if wanted.name is None else None
    if wanted.name is None and by_id is None:
        return DeleteTopicsResponseDeletableTopicResult(
            name=None, topic_id=wanted.topic_id, error_code=ErrorCode.UNKNOWN_TOPIC_ID
        )
    topic = by_id or call.cluster.topics.get(wanted.name or "")
    if topic is None:
        return DeleteTopicsResponseDeletableTopicResult(
            name=wanted.name, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        )
    call.cluster.delete_topic(topic.name)
    return DeleteTopicsResponseDeletableTopicResult(name=topic.name, topic_id=topic.topic_id)


@api(ApiKey.DELETE_RECORDS, (0, 2))
async def delete_records(call: Call) -> DeleteRecordsResponse:
    """Move a partition's start; offset -1 means its high watermark."""
    request: DeleteRecordsRequest = call.request
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsResponseDeleteRecordsTopicResult(
                name=topic.name, partitions=[_delete_before(call, topic.name, part) for part in topic.partitions]
            )
            for topic in request.topics
        ]
    )


def _delete_before(
    call: Call, name: str, part: DeleteRecordsRequestDeleteRecordsPartition
) -> DeleteRecordsResponseDeleteRecordsPartitionResult:
    answer = DeleteRecordsResponseDeleteRecordsPartitionResult(partition_index=part.partition_index, low_watermark=-1)
    found = call.find(name, part.partition_index)
    if found is None:
        answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    elif not call.leads(found[1]):
        answer.error_code = call.not_leader(found[1])
    else:
        log, end = found[1].log, found[1].high_watermark
        offset = end if part.offset == _TO_THE_END else part.offset
        if not 0 <= offset <= end:
            answer.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
        else:
            log.delete_before(offset)
            answer.low_watermark = log.start_offset
    return answer


@api(ApiKey.DESCRIBE_CONFIGS, (1, 4))
async def describe_configs(call: Call) -> DescribeConfigsResponse:
    """Topics (type 2) and brokers (4), with the few settings that the fake knows."""
    request: DescribeConfigsRequest = call.request
    return DescribeConfigsResponse(results=[_settings(call, resource) for resource in request.resources])


def _settings(
    call: Call, wanted: DescribeConfigsRequestDescribeConfigsResource
) -> DescribeConfigsResponseDescribeConfigsResult:
    answer = DescribeConfigsResponseDescribeConfigsResult(
        resource_type=wanted.resource_type, resource_name=wanted.resource_name, error_message=None
    )
    settings: dict[str, str] = {}
    defaults = TOPIC_DEFAULTS
    if wanted.resource_type == _TOPIC_RESOURCE and wanted.resource_name in call.cluster.topics:
        settings = call.cluster.topics[wanted.resource_name].config
    elif wanted.resource_type == _TOPIC_RESOURCE:
        answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return answer
    elif wanted.resource_type == _BROKER_RESOURCE:
        defaults = BROKER_DEFAULTS | {"transaction.max.timeout.ms": str(call.cluster.config.transaction_max_timeout_ms)}
    else:
        answer.error_code = ErrorCode.INVALID_REQUEST
        return answer
    for name, value in sorted({**defaults, **settings}.items()):
        if wanted.configuration_keys is None or name in wanted.configuration_keys:
            source = DYNAMIC_TOPIC_CONFIG if name in settings else DEFAULT_CONFIG
            answer.configs.append(
                DescribeConfigsResponseDescribeConfigsResourceResult(
                    name=name, value=value, config_source=source, documentation=None
                )
            )
    return answer


@api(ApiKey.DESCRIBE_CLUSTER, (0, 2))
async def describe_cluster(call: Call) -> DescribeClusterResponse:
    """List the brokers; those that are down only when version 2 asks for fenced ones.

    Brokers only; a question for controllers (1 and later) is refused.
    """
    request: DescribeClusterRequest = call.request
    if request.endpoint_type != _BROKER_ENDPOINTS:
        return DescribeClusterResponse(
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE,
            endpoint_type=request.endpoint_type,
            cluster_id=call.cluster.config.cluster_id,
        )
    shown = [b for b in call.cluster.brokers.values() if b.listed or request.include_fenced_brokers]
    return DescribeClusterResponse(
        cluster_id=call.cluster.config.cluster_id,
        controller_id=next((broker.node_id for broker in shown if broker.listed), -1),
        brokers=[
            DescribeClusterResponseDescribeClusterBroker(
                broker_id=b.node_id, host=b.host, port=b.port, is_fenced=not b.listed
            )
            for b in shown
        ],
    )
