"""What admin tools ask about transactions and producers (KIP-664)."""

import re

from kproxy.codec._generated.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeProducersResponsePartitionResponse,
    DescribeProducersResponseProducerState,
    DescribeProducersResponseTopicResponse,
)
from kproxy.codec._generated.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    DescribeTransactionsResponseTopicData,
    DescribeTransactionsResponseTransactionState,
)
from kproxy.codec._generated.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    ListTransactionsResponseTransactionState,
)
from kproxy.codec.messages import ApiKey, ErrorCode
from kproxy.testing.fake_broker.coordination import coordinator_error
from kproxy.testing.fake_broker.fake_api import Call, api
from kproxy.testing.fake_broker.transactional_ids import TxnState

_STATE_NAMES = {
    TxnState.EMPTY: "Empty",
    TxnState.ONGOING: "Ongoing",
    TxnState.PREPARE_COMMIT: "PrepareCommit",
    TxnState.PREPARE_ABORT: "PrepareAbort",
    TxnState.COMPLETE_COMMIT: "CompleteCommit",
    TxnState.COMPLETE_ABORT: "CompleteAbort",
}
_OPEN = (TxnState.ONGOING, TxnState.PREPARE_COMMIT, TxnState.PREPARE_ABORT)


@api(ApiKey.DESCRIBE_PRODUCERS, (0, 0))
async def describe_producers(call: Call) -> DescribeProducersResponse:
    """What a partition remembers of its producers, and of their open transactions.

    Any replica answers, not only the leader (KIP-664), from what it has copied.
    """
    request: DescribeProducersRequest = call.request
    return DescribeProducersResponse(
        topics=[
            DescribeProducersResponseTopicResponse(
                name=topic.name, partitions=[_producers(call, topic.name, index) for index in topic.partition_indexes]
            )
            for topic in request.topics
        ]
    )


def _producers(call: Call, name: str, index: int) -> DescribeProducersResponsePartitionResponse:
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


@api(ApiKey.LIST_TRANSACTIONS, (0, 2))
async def list_transactions(call: Call) -> ListTransactionsResponse:
    """List the ids that this broker coordinates and that pass the filters of state, producer id and pattern."""
    request: ListTransactionsRequest = call.request
    rows = [
        ListTransactionsResponseTransactionState(name, owner.producer_id, _STATE_NAMES[owner.state])
        for name, owner in sorted(call.cluster.transactional_ids.items())
        if coordinator_error(call, name) is ErrorCode.NONE
        and (not request.state_filters or _STATE_NAMES[owner.state] in request.state_filters)
        and (not request.producer_id_filters or owner.producer_id in request.producer_id_filters)
        and (not request.transactional_id_pattern or re.fullmatch(request.transactional_id_pattern, name))
    ]
    unknown = [state for state in request.state_filters if state not in _STATE_NAMES.values()]
    return ListTransactionsResponse(unknown_state_filters=unknown, transaction_states=rows)


@api(ApiKey.DESCRIBE_TRANSACTIONS, (0, 0))
async def describe_transactions(call: Call) -> DescribeTransactionsResponse:
    """What a coordinator knows of transactional ids (KIP-664)."""
    request: DescribeTransactionsRequest = call.request
    return DescribeTransactionsResponse(
        transaction_states=[_transaction(call, name) for name in request.transactional_ids]
    )


def _transaction(call: Call, name: str) -> DescribeTransactionsResponseTransactionState:
    answer = DescribeTransactionsResponseTransactionState(transactional_id=name, transaction_state="")
    error = coordinator_error(call, name)
    owner = call.cluster.transactional_ids.get(name)
    if owner is None or error is not ErrorCode.NONE:
        answer.error_code = error or ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        return answer
    answer.transaction_state = _STATE_NAMES[owner.state]
    answer.transaction_timeout_ms = owner.timeout_ms
    answer.producer_id, answer.producer_epoch = owner.producer_id, owner.epoch
    answer.transaction_start_time_ms = -1
    if owner.state in _OPEN:
        answer.transaction_start_time_ms = owner.began_ms
        for topic, index in sorted(owner.places):
            if not answer.topics or answer.topics[-1].topic != topic:
                answer.topics.append(DescribeTransactionsResponseTopicData(topic))
            answer.topics[-1].partitions.append(index)
    return answer
