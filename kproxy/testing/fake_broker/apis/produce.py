"""Produce (0): versions 3-13, advertised from 0 as Kafka 4 does for librdkafka's sake (0-2: connection closed).

acks=1 is answered at once; acks=all when the high watermark has passed the batch, also if it is a repeat, or with
REQUEST_TIMED_OUT and the offset all the same; with too few replicas in sync nothing is written, a repeat included.
acks=0 gets no response, and a closed connection if anything failed. Version 10 and later name the new leader on
NOT_LEADER_OR_FOLLOWER, version 13 knows topics by id. A transactional batch needs a transactional id, and is checked by
``transactional_writes``.
"""

from functools import partial

from kproxy.codec._generated.produce import (
    ProduceRequest,
    ProduceRequestPartitionProduceData,
    ProduceRequestTopicProduceData,
    ProduceResponse,
    ProduceResponseLeaderIdAndEpoch,
    ProduceResponseNodeEndpoint,
    ProduceResponsePartitionProduceResponse,
    ProduceResponseTopicProduceResponse,
)
from kproxy.codec.messages import ApiKey, ErrorCode
from kproxy.testing.fake_broker.fake_api import Api, Call, CloseConnection
from kproxy.testing.fake_broker.partition import Partition
from kproxy.testing.fake_broker.replicated import Awaited, until_replicated
from kproxy.testing.fake_broker.stored_batches import is_transactional
from kproxy.testing.fake_broker.topics import Topic
from kproxy.testing.fake_broker.transactional_writes import joins, transaction_error

_ALL = -1
_TOPIC_ID_VERSION = 13
_NEW_LEADER_VERSION = 10


async def handle(call: Call) -> ProduceResponse | None:
    """Append every partition's batch and answer with its offset or error."""
    request: ProduceRequest = call.request
    response = ProduceResponse()
    awaited: list[Awaited] = []
    for data in request.topic_data:
        topic = _topic(call, data)
        result = ProduceResponseTopicProduceResponse(name=data.name, topic_id=data.topic_id)
        result.partition_responses = [_answer(call, topic, part, response, awaited) for part in data.partition_data]
        response.responses.append(result)
    call.cluster.notify()
    if request.acks == 0:
        if any(part.error_code for result in response.responses for part in result.partition_responses):
            raise CloseConnection
        return None
    if awaited:
        await until_replicated(call, awaited, request.timeout_ms)
    return response


def _topic(call: Call, data: ProduceRequestTopicProduceData) -> Topic | None:
    if call.version >= _TOPIC_ID_VERSION:
        return call.cluster.topic_by_id(data.topic_id)
    return call.cluster.topics.get(data.name)


def _answer(
    call: Call,
    topic: Topic | None,
    part: ProduceRequestPartitionProduceData,
    response: ProduceResponse,
    awaited: list[Awaited],
) -> ProduceResponsePartitionProduceResponse:
    answer = ProduceResponsePartitionProduceResponse(index=part.index, base_offset=-1)
    records = memoryview(part.records or b"")
    if call.request.acks not in (_ALL, 0, 1):
        answer.error_code = ErrorCode.INVALID_REQUIRED_ACKS
    elif is_transactional(records) and call.request.transactional_id is None:
        answer.error_code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    elif topic is None or not 0 <= part.index < len(topic.partitions):
        by_id = topic is None and call.version >= _TOPIC_ID_VERSION
        answer.error_code = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    elif not call.leads(partition := topic.partitions[part.index]):
        answer.error_code = call.not_leader(partition)
        if call.version >= _NEW_LEADER_VERSION and answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
            answer.current_leader = ProduceResponseLeaderIdAndEpoch(partition.leader, partition.leader_epoch)
            _add_endpoint(call, partition.leader, response)
    elif is_transactional(records) and (error := transaction_error(call, partition, records, topic.name)):
        answer.error_code = error
    elif call.request.acks == _ALL and partition.under_min_isr:
        answer.error_code = ErrorCode.NOT_ENOUGH_REPLICAS
    else:
        _append(call, topic, partition, records, answer, awaited)
    return answer


def _append(
    call: Call,
    topic: Topic,
    partition: Partition,
    records: memoryview,
    answer: ProduceResponsePartitionProduceResponse,
    awaited: list[Awaited],
) -> None:
    done = partition.log.append(records, partition.leader_epoch, call.now, anywhere=not joins(call))
    answer.error_code, answer.base_offset, answer.log_append_time_ms = done.error, done.base_offset, done.append_time
    if done.error is ErrorCode.NONE:
        answer.log_start_offset = partition.log.start_offset
        if call.request.acks == _ALL and partition.high_watermark < done.end_offset:
            awaited.append(Awaited(topic, partition, done.end_offset, partial(_refuse, answer)))


def _refuse(answer: ProduceResponsePartitionProduceResponse, error: ErrorCode) -> None:
    answer.error_code = error


def _add_endpoint(call: Call, node_id: int, response: ProduceResponse) -> None:
    broker = call.cluster.brokers.get(node_id)
    if broker is not None and all(endpoint.node_id != node_id for endpoint in response.node_endpoints):
        endpoint = ProduceResponseNodeEndpoint(node_id=node_id, host=broker.host, port=broker.port)
        response.node_endpoints.append(endpoint)


API = Api(ApiKey.PRODUCE, (3, 13), handle, advertised_from=0)
