"""CreateTopics (19): versions 2-7. Any broker takes it, as in KRaft; manual assignments set the replicas."""

from kproxy.codec._generated.create_topics import (
    CreateTopicsRequest,
    CreateTopicsRequestCreatableTopic,
    CreateTopicsResponse,
    CreateTopicsResponseCreatableTopicConfigs,
    CreateTopicsResponseCreatableTopicResult,
)
from kproxy.codec.messages import ApiKey, ErrorCode
from kproxy.testing.fake_broker.configs import DYNAMIC_TOPIC_CONFIG, config_error
from kproxy.testing.fake_broker.controller import excessive, reach_controller
from kproxy.testing.fake_broker.fake_api import Api, Call


async def handle(call: Call) -> CreateTopicsResponse:
    """Create each topic; one failure does not touch the others."""
    request: CreateTopicsRequest = call.request
    error = await reach_controller(call) or excessive(_partitions(topic) for topic in request.topics)
    if error is not ErrorCode.NONE:
        refused = [
            CreateTopicsResponseCreatableTopicResult(name=topic.name, error_code=error) for topic in request.topics
        ]
        return CreateTopicsResponse(topics=refused)
    return CreateTopicsResponse(topics=[_create(call, topic) for topic in request.topics])


def _partitions(topic: CreateTopicsRequestCreatableTopic) -> int:
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


API = Api(ApiKey.CREATE_TOPICS, (2, 7), handle)
