"""CreatePartitions (37): versions 0-3. Grows a topic; manual assignments set the replicas of the new partitions."""

from kproxy.codec._generated.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsRequestCreatePartitionsTopic,
    CreatePartitionsResponse,
    CreatePartitionsResponseCreatePartitionsTopicResult,
)
from kproxy.codec.messages import ApiKey, ErrorCode
from kproxy.testing.fake_broker.controller import excessive, reach_controller
from kproxy.testing.fake_broker.fake_api import Api, Call


async def handle(call: Call) -> CreatePartitionsResponse:
    """Grow each topic to the count asked for."""
    request: CreatePartitionsRequest = call.request
    error = await reach_controller(call) or excessive(_added(call, topic) for topic in request.topics)
    return CreatePartitionsResponse(
        results=[
            CreatePartitionsResponseCreatePartitionsTopicResult(name=topic.name, error_code=error or _grow(call, topic))
            for topic in request.topics
        ]
    )


def _added(call: Call, wanted: CreatePartitionsRequestCreatePartitionsTopic) -> int:
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


API = Api(ApiKey.CREATE_PARTITIONS, (0, 3), handle)
