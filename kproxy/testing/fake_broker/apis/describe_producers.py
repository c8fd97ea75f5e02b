"""DescribeProducers (61): version 0. What a partition remembers of its producers, and of their open transactions.

Any replica answers, not only the leader (KIP-664), from what it has copied.
"""

from kproxy.codec._generated.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeProducersResponsePartitionResponse,
    DescribeProducersResponseProducerState,
    DescribeProducersResponseTopicResponse,
)
from kproxy.codec.messages import ApiKey, ErrorCode
from kproxy.testing.fake_broker.fake_api import Api, Call


async def handle(call: Call) -> DescribeProducersResponse:
    """Describe the producers of each partition."""
    request: DescribeProducersRequest = call.request
    return DescribeProducersResponse(
        topics=[
            DescribeProducersResponseTopicResponse(
                name=topic.name, partitions=[_describe(call, topic.name, index) for index in topic.partition_indexes]
            )
            for topic in request.topics
        ]
    )


def _describe(call: Call, name: str, index: int) -> DescribeProducersResponsePartitionResponse:
    answer = DescribeProducersResponsePartitionResponse(partition_index=index)
    found = call.find(name, index)
    if found is None:
        answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return answer
    partition = found[1]
    if call.broker_id not in partition.replicas or call.is_offline(partition):
        answer.error_code = call.not_leader(partition)
        return answer
    partition.log.producers.expire(call.now)
    known = partition.log.producers
    if partition.holds(call.broker_id):
        known = partition.log.producers_before(partition.log_end(call.broker_id))
    answer.active_producers = [
        DescribeProducersResponseProducerState(
            producer_id=producer_id,
            producer_epoch=entry.epoch,
            last_sequence=entry.last_sequence,
            last_timestamp=entry.last_timestamp,
            coordinator_epoch=entry.coordinator_epoch,
            current_txn_start_offset=partition.log.transactions.first_offset(producer_id),
        )
        for producer_id, entry in known.items()
    ]
    return answer


API = Api(ApiKey.DESCRIBE_PRODUCERS, (0, 0), handle)
