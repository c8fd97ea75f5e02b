"""AddPartitionsToTxn (24): versions 0-5. Partitions join the transaction of a transactional id.

All of them or none: where one is unknown, the others are OPERATION_NOT_ATTEMPTED. From version 4 on brokers ask for
several transactions, or only whether the partitions have joined (KIP-890).
"""

from kproxy.codec._generated.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnRequestAddPartitionsToTxnTransaction,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResponseAddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponseAddPartitionsToTxnResult,
    AddPartitionsToTxnResponseAddPartitionsToTxnTopicResult,
)
from kproxy.codec.messages import ApiKey, ErrorCode
from kproxy.codec.topic_partition import TopicPartition
from kproxy.testing.fake_broker.coordination import coordinator_error, unless_new
from kproxy.testing.fake_broker.fake_api import Api, Call

_FENCED_VERSION = 2
_MANY_VERSION = 4


async def handle(call: Call) -> AddPartitionsToTxnResponse:
    """Note the partitions."""
    request: AddPartitionsToTxnRequest = call.request
    if call.version >= _MANY_VERSION:
        return AddPartitionsToTxnResponse(
            results_by_transaction=[
                AddPartitionsToTxnResponseAddPartitionsToTxnResult(one.transactional_id, _answers(call, one))
                for one in request.transactions
            ]
        )
    one = AddPartitionsToTxnRequestAddPartitionsToTxnTransaction(
        request.v3_and_below_transactional_id,
        request.v3_and_below_producer_id,
        request.v3_and_below_producer_epoch,
        topics=request.v3_and_below_topics,
    )
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=_answers(call, one))


def _answers(
    call: Call, one: AddPartitionsToTxnRequestAddPartitionsToTxnTransaction
) -> list[AddPartitionsToTxnResponseAddPartitionsToTxnTopicResult]:
    places = [(topic.name, index) for topic in one.topics for index in topic.partitions]
    errors = dict.fromkeys(places, ErrorCode.OPERATION_NOT_ATTEMPTED)
    unknown = [place for place in places if call.find(*place) is None]
    errors.update(dict.fromkeys(unknown, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    if not unknown:
        errors = dict.fromkeys(places, _join(call, one, places))
    return [
        AddPartitionsToTxnResponseAddPartitionsToTxnTopicResult(
            topic.name,
            [
                AddPartitionsToTxnResponseAddPartitionsToTxnPartitionResult(index, errors[topic.name, index])
                for index in topic.partitions
            ],
        )
        for topic in one.topics
    ]


def _join(
    call: Call, one: AddPartitionsToTxnRequestAddPartitionsToTxnTransaction, places: list[TopicPartition]
) -> ErrorCode:
    if (error := coordinator_error(call, one.transactional_id)) is not ErrorCode.NONE:
        return error
    owner = call.cluster.transactional_ids.get(one.transactional_id)
    if owner is None:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    error = unless_new(owner.check(one.producer_id, one.producer_epoch), call.version, _FENCED_VERSION)
    if error is not ErrorCode.NONE:
        return error
    if one.verify_only and not owner.prepared:
        return ErrorCode.NONE if owner.places.issuperset(places) else ErrorCode.TRANSACTION_ABORTABLE
    return owner.join(call.now, places)


API = Api(ApiKey.ADD_PARTITIONS_TO_TXN, (0, 5), handle)
