"""DescribeTransactions (65): version 0. What a coordinator knows of transactional ids (KIP-664)."""

from kproxy.codec._generated.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    DescribeTransactionsResponseTopicData,
    DescribeTransactionsResponseTransactionState,
)
from kproxy.codec.messages import ApiKey, ErrorCode
from kproxy.testing.fake_broker.coordination import coordinator_error
from kproxy.testing.fake_broker.fake_api import Api, Call
from kproxy.testing.fake_broker.transactional_ids import TxnState

NAMES = {
    TxnState.EMPTY: "Empty",
    TxnState.ONGOING: "Ongoing",
    TxnState.PREPARE_COMMIT: "PrepareCommit",
    TxnState.PREPARE_ABORT: "PrepareAbort",
    TxnState.COMPLETE_COMMIT: "CompleteCommit",
    TxnState.COMPLETE_ABORT: "CompleteAbort",
}
_OPEN = (TxnState.ONGOING, TxnState.PREPARE_COMMIT, TxnState.PREPARE_ABORT)


async def handle(call: Call) -> DescribeTransactionsResponse:
    """Describe each id."""
    request: DescribeTransactionsRequest = call.request
    return DescribeTransactionsResponse(
        transaction_states=[_describe(call, name) for name in request.transactional_ids]
    )


def _describe(call: Call, name: str) -> DescribeTransactionsResponseTransactionState:
    answer = DescribeTransactionsResponseTransactionState(transactional_id=name, transaction_state="")
    error = coordinator_error(call, name)
    owner = call.cluster.transactional_ids.get(name)
    if owner is None or error is not ErrorCode.NONE:
        answer.error_code = error or ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        return answer
    answer.transaction_state = NAMES[owner.state]
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


API = Api(ApiKey.DESCRIBE_TRANSACTIONS, (0, 0), handle)
