"""Sends one batch in a request of its own, to the leader of its partition."""

from typing import Final

from kproxy.codec._generated.produce import (
    ProduceRequest,
    ProduceRequestPartitionProduceData,
    ProduceRequestTopicProduceData,
    ProduceResponse,
    ProduceResponsePartitionProduceResponse,
)
from kproxy.codec.produce_layout import FIRST_TOPIC_ID
from kproxy.dedup.lanes import TrackKey
from kproxy.net.brokers.broker_client import BrokerClient

_BY_NAME: Final = (0, 8)
_BY_ID: Final = (FIRST_TOPIC_ID, FIRST_TOPIC_ID)


async def send_batch(
    client: BrokerClient, key: TrackKey, batch: bytes | memoryview, timeout_ms: int, *, by_id: bool
) -> ProduceResponsePartitionProduceResponse | None:
    """Send a batch with acks=all, and return its partition's row of the response; None: there is none.

    ``by_id``: ``key`` has the topic's id. Raises OSError, RemoteProtocolError.
    """
    ref, index = key
    topic = ProduceRequestTopicProduceData(
        partition_data=[ProduceRequestPartitionProduceData(index=index, records=batch)]
    )
    if by_id:
        topic.topic_id = ref
    else:
        topic.name = ref.decode("utf-8", "replace")
    request = ProduceRequest(acks=-1, timeout_ms=timeout_ms, topic_data=[topic])
    versions = _BY_ID if by_id else _BY_NAME
    response = await client.call(request, ProduceResponse, versions, extra_ms=timeout_ms)
    return next((row for topic in response.responses for row in topic.partition_responses), None)
