"""Guards of the requests of transactions (KIP-98's ProducerTransactionalId, ``KafkaApis``)."""

from typing import Any, Final

from kproxy.codec._generated.add_partitions_to_txn import AddPartitionsToTxnRequest
from kproxy.codec._generated.describe_transactions import DescribeTransactionsResponseTransactionState
from kproxy.codec._generated.init_producer_id import InitProducerIdRequest
from kproxy.codec._generated.txn_offset_commit import TxnOffsetCommitResponsePartition, TxnOffsetCommitResponseTopic
from kproxy.proxy.authorization.access import Access
from kproxy.proxy.authorization.acl_rules import Operation, ResourceType
from kproxy.proxy.authorization.guards import Asked, Whole, on_name, on_topic
from kproxy.proxy.screening import PASSED, Amend, Parts, Rows, Screened
from kproxy.proxy.transaction_messages import failed, partitions_added, places_of

_ID: Final = ResourceType.TRANSACTIONAL_ID
_WRITES = Asked(Operation.WRITE, _ID, "transactional_id")
_READS_GROUP = Asked(Operation.READ, ResourceType.GROUP, "group_id")
#: From here on AddPartitionsToTxn is between brokers, and refused to all clients.
_FIRST_OF_BROKERS: Final = 4

end_txn = Whole(_WRITES, refusal=failed)
add_offsets = Whole(_WRITES, _READS_GROUP, refusal=failed)
txn_offset_commit = Whole(
    _WRITES,
    _READS_GROUP,
    refusal=failed,
    rest=Parts(on_topic(Operation.READ), Rows(TxnOffsetCommitResponseTopic, TxnOffsetCommitResponsePartition)),
)
_writes_id = Whole(_WRITES, refusal=failed)


def init_producer_id(access: Access, request: InitProducerIdRequest, version: int) -> Screened:
    """Write on the transactional id; without one IdempotentWrite on the cluster, or Write on some topic (KIP-679)."""
    if request.transactional_id is not None:
        return _writes_id(access, request, version)
    if access.sees_any(Operation.WRITE, ResourceType.TOPIC):
        return PASSED
    error = access.error(Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER)
    return Screened(answer=failed(request, version, error)) if error else PASSED


def add_partitions(access: Access, request: AddPartitionsToTxnRequest, version: int) -> Screened:
    """Write on the transactional id and on each topic: all of them, or none is added."""
    if version >= _FIRST_OF_BROKERS:
        return PASSED
    error = access.error(Operation.WRITE, _ID, request.v3_and_below_transactional_id)
    if error:
        return Screened(answer=failed(request, version, error))
    errors = {place: access.error(Operation.WRITE, ResourceType.TOPIC, place[0]) for place in places_of(request)}
    refused = {place: error for place, error in errors.items() if error}
    return Screened(answer=partitions_added(request, version, refused)) if refused else PASSED


def list_transactions(access: Access, request: object, version: int) -> Screened:
    """Those that may be described."""

    def change(answer: Any) -> None:
        rows = answer.transaction_states
        answer.transaction_states = [row for row in rows if access.sees(Operation.DESCRIBE, _ID, row.transactional_id)]

    return Screened(amend=change)


def _topics_seen(access: Access) -> Amend:
    def change(answer: Any) -> None:
        for row in answer.transaction_states:
            row.topics = [
                each for each in row.topics if access.sees(Operation.DESCRIBE, ResourceType.TOPIC, each.topic)
            ]

    return change


describe_transactions = Parts(
    on_name(Operation.DESCRIBE, _ID),
    lambda name, error: DescribeTransactionsResponseTransactionState(error_code=error, transactional_id=name),
    parts=("transactional_ids",),
    results="transaction_states",
    amend=_topics_seen,
)
