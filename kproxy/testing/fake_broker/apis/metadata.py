"""Metadata (3): versions 0-13.

Version 0 asks for all topics with an empty list, later ones with null. An unknown topic is created if the broker and
(from version 4) the request allow it; the response still says UNKNOWN_TOPIC_OR_PARTITION, since creation takes a moment
in KRaft, and the client's next question finds it. Versions 10 and later carry ids, 12 and later may ask by id.
"""

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
from kproxy.testing.fake_broker.fake_api import Api, Call
from kproxy.testing.fake_broker.fake_cluster import CLUSTER_ID
from kproxy.testing.fake_broker.partition import NO_LEADER, Partition
from kproxy.testing.fake_broker.topics import INTERNAL_TOPICS, Topic

_ASK_BY_ID_VERSION = 12
_NO_ID = bytes(16)


async def handle(call: Call) -> MetadataResponse:
    """Describe the live brokers and the topics asked for."""
    request: MetadataRequest = call.request
    response = MetadataResponse(cluster_id=CLUSTER_ID)
    live = [broker for broker in call.cluster.brokers.values() if broker.listed]
    response.brokers = [MetadataResponseBroker(node_id=b.node_id, host=b.host, port=b.port) for b in live]
    response.controller_id = live[0].node_id if live else -1
    if request.topics is None or (call.version == 0 and not request.topics):
        response.topics = [_describe(call, topic) for topic in call.cluster.topics.values()]
    else:
        response.topics = [_answer(call, wanted) for wanted in request.topics]
    return response


def _answer(call: Call, wanted: MetadataRequestTopic) -> MetadataResponseTopic:
    if wanted.topic_id != _NO_ID and call.version >= _ASK_BY_ID_VERSION:
        by_id = call.cluster.topic_by_id(wanted.topic_id)
        if by_id is not None:
            return _describe(call, by_id)
        return MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=wanted.topic_id)
    name = wanted.name or ""
    topic = call.cluster.topics.get(name)
    if topic is not None:
        return _describe(call, topic)
    if not is_legal_topic(name):
        return MetadataResponseTopic(error_code=ErrorCode.INVALID_TOPIC_EXCEPTION, name=name)
    wanted_by_all = call.cluster.config.auto_create_topics and call.request.allow_auto_topic_creation
    if wanted_by_all and call.cluster.controller_alive:
        call.cluster.create_topic(name)
    return MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name=name)


def _describe(call: Call, topic: Topic) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=[_describe_partition(call, partition) for partition in topic.partitions],
    )


def _describe_partition(call: Call, partition: Partition) -> MetadataResponsePartition:
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


API = Api(ApiKey.METADATA, (0, 13), handle)
