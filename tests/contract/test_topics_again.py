"""A topic deleted and made again is another one; a partition that was added begins empty."""

from kproxy.codec._generated.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsRequestCreatePartitionsTopic,
    CreatePartitionsResponse,
)
from kproxy.codec._generated.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from kproxy.codec._generated.produce import (
    ProduceRequest,
    ProduceRequestPartitionProduceData,
    ProduceRequestTopicProduceData,
    ProduceResponse,
)
from kproxy.codec.messages import ErrorCode
from kproxy.testing.cluster_client import ClusterClient
from tests.contract.batches import batch
from tests.contract.questions import producers, send
from tests.support.patience import eventually, repeat_while

PID = 2**61 + 45


def _topic_id(client: ClusterClient, name: str) -> bytes:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
    return client.any_broker().call(request, 12, MetadataResponse).topics[0].topic_id


def _send_by_id(client: ClusterClient, topic_id: bytes, data: bytearray) -> tuple[ErrorCode, int]:
    part = ProduceRequestPartitionProduceData(index=0, records=bytes(data))
    wanted = ProduceRequestTopicProduceData(topic_id=topic_id, partition_data=[part])
    request = ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[wanted])
    answer = client.any_broker().call(request, 13, ProduceResponse).responses[0].partition_responses[0]
    return ErrorCode(answer.error_code), answer.base_offset


def test_a_topic_made_again_knows_nothing_of_the_former_one(client: ClusterClient, topic: str) -> None:
    former = _topic_id(client, topic)
    for sequence in (0, 1):
        send(client.any_broker(), topic, batch(b"a", pid=PID, epoch=4, seq=sequence))
    client.delete_topic(topic)
    data = batch(b"a")
    eventually(lambda: send(client.any_broker(), topic, data) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1))
    assert _send_by_id(client, former, data) == (ErrorCode.UNKNOWN_TOPIC_ID, -1)
    client.create_topic(topic)
    assert _topic_id(client, topic) != former
    assert producers(client.any_broker(), topic) == {}
    assert _send_by_id(client, former, data) == (ErrorCode.UNKNOWN_TOPIC_ID, -1)
    assert send(client.any_broker(), topic, batch(b"a", pid=PID, epoch=3, seq=9)) == (ErrorCode.NONE, 0)


def test_an_added_partition_begins_empty_and_the_old_ones_keep_their_producers(
    client: ClusterClient, topic: str
) -> None:
    assert send(client.any_broker(), topic, batch(b"a", pid=PID, epoch=0, seq=0)) == (ErrorCode.NONE, 0)
    wanted = CreatePartitionsRequestCreatePartitionsTopic(name=topic, count=3, assignments=None)
    request = CreatePartitionsRequest(topics=[wanted], timeout_ms=30_000)
    grown = client.any_broker().call(request, 2, CreatePartitionsResponse).results[0]
    assert grown.error_code == ErrorCode.NONE
    added = batch(b"b", pid=PID, epoch=0, seq=77)
    answer = repeat_while(  # the broker is still to hear of it
        lambda answer: ErrorCode(answer.error_code).retriable, lambda: client.produce(topic, 2, added)
    )
    assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, 0)
    assert producers(client.any_broker(), topic) == {PID: (0, 0)}
