"""What a leader asks the coordinator before it appends, where only a fake can be held still."""

import pytest

from kproxy.codec._generated.produce import ProduceRequest
from kproxy.codec.batch import Record, build_batch
from kproxy.codec.messages import ErrorCode
from kproxy.testing.fake_broker.fake_api import Call
from kproxy.testing.fake_broker.transactional_ids import TransactionalId
from kproxy.testing.fake_broker.transactional_writes import joins, transaction_error
from tests.testing.fake_broker.calls import NOW, TOPIC, call_to, two_brokers


def asked(version: int) -> Call:
    """A Produce of the version, to a cluster whose id has an open transaction on the topic."""
    call = call_to(two_brokers(), 1, ProduceRequest(transactional_id="id"))
    owner = call.cluster.transactional_ids["id"] = TransactionalId(7, 0)
    owner.join(NOW, [(TOPIC, 0)])
    return Call(call.cluster, 1, 1, "127.0.0.1", "client", version, call.request, {})


def refused(call: Call) -> ErrorCode:
    rows = [Record(0, 0, None, b"v")]
    data = build_batch(rows, producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    return transaction_error(call, call.cluster.topics[TOPIC].partitions[0], memoryview(data), TOPIC)


@pytest.mark.parametrize(
    ("version", "error"),
    [(9, ErrorCode.NOT_ENOUGH_REPLICAS), (11, ErrorCode.NOT_ENOUGH_REPLICAS), (12, ErrorCode.CONCURRENT_TRANSACTIONS)],
)
def test_while_the_end_is_being_completed_it_has_to_wait(version: int, error: ErrorCode) -> None:
    call = asked(version)
    assert refused(call) is ErrorCode.NONE
    assert call.cluster.transactional_ids["id"].end(7, 0, True) is ErrorCode.NONE
    assert refused(call) is error


def test_where_its_transaction_is_open_nobody_is_asked() -> None:
    call = asked(12)
    call.cluster.topics[TOPIC].partitions[0].log.transactions.began(7, 0, 0)
    assert call.cluster.transactional_ids["id"].end(7, 0, True) is ErrorCode.NONE
    assert refused(call) is ErrorCode.NONE


def test_only_new_requests_of_transactions_join() -> None:
    assert [joins(asked(version)) for version in (11, 12, 13)] == [False, True, True]
    assert not joins(call_to(two_brokers(), 1, ProduceRequest()))


def test_damage_is_reported_first() -> None:
    call = asked(12)
    partition = call.cluster.topics[TOPIC].partitions[0]
    assert transaction_error(call, partition, memoryview(bytes(9)), TOPIC) is ErrorCode.INVALID_RECORD
