"""DeleteTopics (20): versions 1-6. Version 6 may name a topic by id. Gone at once, with its groups' offsets."""

from kproxy.codec._generated.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsRequestDeleteTopicState,
    DeleteTopicsResponse,
    DeleteTopicsResponseDeletableTopicResult,
)
from kproxy.codec.messages import ApiKey, ErrorCode
from kproxy.testing.fake_broker.controller import reach_controller
from kproxy.testing.fake_broker.fake_api import Api, Call

_STATES_VERSION = 6


async def handle(call: Call) -> DeleteTopicsResponse:
    """Delete each topic."""
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
    return DeleteTopicsResponse(responses=[_delete(call, topic) for topic in wanted])


def _delete(call: Call, wanted: DeleteTopicsRequestDeleteTopicState) -> DeleteTopicsResponseDeletableTopicResult:
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


API = Api(ApiKey.DELETE_TOPICS, (1, 6), handle)
