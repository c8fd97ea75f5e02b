"""acks=all: what ends the waiting."""

from collections.abc import Callable

import pytest
import trio
import trio.testing

from kproxy.codec._generated.produce import (
    ProduceRequest,
    ProduceRequestPartitionProduceData,
    ProduceRequestTopicProduceData,
    ProduceResponse,
)
from kproxy.codec.batch import Record, build_batch
from kproxy.codec.messages import ErrorCode
from kproxy.testing.fake_broker.apis.record_apis import produce
from kproxy.testing.fake_broker.fake_cluster import FakeCluster
from tests.testing.fake_broker.calls import call_to, two_brokers

TOPIC = "both"


@pytest.fixture
def cluster() -> FakeCluster:
    """Two brokers, a topic on both, and the second replica has stopped."""
    made = two_brokers()
    made.create_topic(TOPIC, replication=2, config={"min.insync.replicas": "2"})
    made.pause_replication(2)
    return made


def _request(timeout_ms: int) -> ProduceRequest:
    part = ProduceRequestPartitionProduceData(index=0, records=bytes(build_batch([Record(0, 1, b"k", b"v")])))
    data = ProduceRequestTopicProduceData(name=TOPIC, partition_data=[part])
    return ProduceRequest(acks=-1, timeout_ms=timeout_ms, topic_data=[data])


async def _answer(cluster: FakeCluster, meanwhile: Callable[[], None], timeout_ms: int = 1000) -> tuple[ErrorCode, int]:
    """Produce, let something happen after half a second, and return the response."""
    call = call_to(cluster, 1, _request(timeout_ms))
    object.__setattr__(call, "version", 9)
    answers: list[ProduceResponse | None] = []

    async def ask() -> None:
        answers.append(await produce.handle(call))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        await trio.sleep(0.5)
        assert not answers
        meanwhile()
    assert answers[0] is not None
    answer = answers[0].responses[0].partition_responses[0]
    return ErrorCode(answer.error_code), answer.base_offset


@pytest.mark.parametrize(
    ("meanwhile", "error"),
    [
        (lambda cluster: None, ErrorCode.REQUEST_TIMED_OUT),
        (lambda cluster: cluster.shrink_isr(2), ErrorCode.REQUEST_TIMED_OUT),
        (lambda cluster: cluster.resume_replication(2), ErrorCode.NONE),
        (lambda cluster: cluster.move_leader(TOPIC, 0, 2), ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (lambda cluster: cluster.disk_full(1), ErrorCode.KAFKA_STORAGE_ERROR),
        (lambda cluster: cluster.delete_topic(TOPIC), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
async def test_an_append_waits_for_the_high_watermark(
    autojump_clock: trio.testing.MockClock,
    cluster: FakeCluster,
    meanwhile: Callable[[FakeCluster], None],
    error: ErrorCode,
) -> None:
    assert await _answer(cluster, lambda: meanwhile(cluster)) == (error, 0)
    assert trio.current_time() == (1 if error is ErrorCode.REQUEST_TIMED_OUT else 0.5)


async def test_replicas_that_go_after_they_had_it_are_too_few(
    autojump_clock: trio.testing.MockClock, cluster: FakeCluster
) -> None:
    def copy_and_go() -> None:
        cluster.resume_replication(2)
        cluster.pause_replication(2)
        cluster.shrink_isr(2)

    assert await _answer(cluster, copy_and_go) == (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, 0)
