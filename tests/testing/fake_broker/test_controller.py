"""Requests for the controller while there is none."""

import trio
import trio.testing

from kproxy.codec._generated.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsRequestCreatePartitionsTopic,
)
from kproxy.codec._generated.create_topics import CreateTopicsRequest, CreateTopicsRequestCreatableTopic
from kproxy.codec._generated.delete_topics import DeleteTopicsRequest, DeleteTopicsRequestDeleteTopicState
from kproxy.codec._generated.init_producer_id import InitProducerIdRequest
from kproxy.codec.messages import ErrorCode
from kproxy.testing.fake_broker.apis.topic_apis import create_partitions, create_topics, delete_topics
from kproxy.testing.fake_broker.apis.transaction_apis import init_producer_id
from tests.testing.fake_broker.calls import TOPIC, call_to, two_brokers

NEW = CreateTopicsRequest(
    topics=[CreateTopicsRequestCreatableTopic(name="new", num_partitions=1, replication_factor=1)], timeout_ms=1
)


async def test_they_time_out_after_a_minute_whatever_the_client_says(autojump_clock: trio.testing.MockClock) -> None:
    cluster = two_brokers()
    cluster.controller_down()
    gone = DeleteTopicsRequest(topics=[DeleteTopicsRequestDeleteTopicState(name=TOPIC)], timeout_ms=1)
    wanted = CreatePartitionsRequestCreatePartitionsTopic(name=TOPIC, count=3, assignments=None)
    grown = CreatePartitionsRequest(topics=[wanted], timeout_ms=1)
    errors = [
        (await create_topics.handle(call_to(cluster, 1, NEW))).topics[0].error_code,
        (await delete_topics.handle(call_to(cluster, 1, gone))).responses[0].error_code,
        (await create_partitions.handle(call_to(cluster, 1, grown))).results[0].error_code,
    ]
    assert errors == [ErrorCode.REQUEST_TIMED_OUT] * 3
    assert trio.current_time() == 180
    assert list(cluster.topics) == [TOPIC]
    assert len(cluster.topics[TOPIC].partitions) == 1


async def test_they_are_done_when_the_controller_returns_in_time(autojump_clock: trio.testing.MockClock) -> None:
    cluster = two_brokers()
    cluster.controller_down()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(create_topics.handle, call_to(cluster, 1, NEW))
        await trio.sleep(59)
        assert "new" not in cluster.topics
        cluster.controller_up()
    assert "new" in cluster.topics


async def test_a_broker_hands_out_the_producer_ids_that_it_has() -> None:
    cluster = two_brokers()
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
    assert (await init_producer_id.handle(call_to(cluster, 1, request))).producer_id == 0
    cluster.controller_down()
    errors = [(await init_producer_id.handle(call_to(cluster, 1, request))).error_code for _ in range(1000)]
    assert errors == [ErrorCode.NONE] * 999 + [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
    assert (await init_producer_id.handle(call_to(cluster, 2, request))).producer_id == -1
    cluster.controller_up()
    assert (await init_producer_id.handle(call_to(cluster, 1, request))).producer_id == 1000


def test_leaders_stay_where_they_were_until_it_returns() -> None:
    cluster = two_brokers()
    cluster.create_topic("both", replication=2)
    (partition,) = cluster.topics["both"].partitions
    cluster.controller_down()
    cluster.broker_down(partition.leader)
    assert (partition.leader, partition.isr, cluster.brokers[1].listed) == (1, [1, 2], True)
    cluster.controller_up()
    assert (partition.leader, partition.isr, cluster.brokers[1].listed) == (2, [2], False)
