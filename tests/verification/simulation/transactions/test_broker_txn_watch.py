"""kproxy's requests to coordinators are in the trace; an InitProducerId that may be late is noted."""

import pytest
import trio
import trio.testing

from kproxy.codec._generated.end_txn import EndTxnRequest
from kproxy.codec._generated.init_producer_id import InitProducerIdRequest
from kproxy.codec.messages import ApiKey, Message
from kproxy.testing.fake_broker.fake_cluster import FakeCluster
from kproxy.testing.fake_broker.transactional_ids import TransactionalId
from tests.testing.fake_broker.calls import NOW, call_to, two_brokers
from verification.simulation.transactions.broker_txn_watch import watch_coordinators
from verification.simulation.transactions.history import TransactionHistory


async def told(cluster: FakeCluster, request: Message) -> None:
    assert await cluster.controls.fault_for(ApiKey(request.API_KEY), call_to(cluster, 1, request)) is None


async def test_each_request_is_traced(autojump_clock: trio.testing.MockClock) -> None:
    cluster, history = two_brokers(), TransactionHistory()
    watch_coordinators(cluster, history, is_harmed=True)
    await told(cluster, EndTxnRequest("id", 7, 3, True))
    await told(cluster, InitProducerIdRequest("id", 1000))
    assert [line.split(maxsplit=1)[1] for line in history.trace] == [
        "broker 1 is asked EndTxn of id as 3 committed=True",
        "broker 1 is asked InitProducerId of id as -1",
    ]


@pytest.mark.parametrize("is_harmed", [False, True])
async def test_one_that_ends_what_is_open_may_be_late_where_requests_are(is_harmed: bool) -> None:
    cluster, history = two_brokers(), TransactionHistory()
    watch_coordinators(cluster, history, is_harmed=is_harmed)
    owner = cluster.transactional_ids["id"] = TransactionalId(7, 0)
    await told(cluster, InitProducerIdRequest("id", 1000))
    assert "id" not in history.asked
    owner.join(NOW, [("t", 0)])
    await told(cluster, InitProducerIdRequest("id", 1000))
    assert ("id" in history.asked) is is_harmed
