"""Readers after data that a lost log knew, through whole kproxies: they wait, all see the same, and continue."""

import uuid
from contextlib import AsyncExitStack
from typing import Any

import pytest
import trio

from kproxy.codec.batch import Record, build_batch
from kproxy.testing.cluster_client import ClusterClient
from kproxy.testing.kafka import RealKafka
from kproxy.txn.procedures.rejects import Rejects
from kproxy.txn.verdict import Verdict
from tests.net.harness import FrameClient, Proxied, eventually, produce, proxied, running
from tests.net.txn.test_reading_whole import OPTIONS, Consumer, end_of, topic_id_of, transact
from tests.net.txn.wire_producer import WireProducer
from tests.txn.bodies import producer

STRAY = producer(900_000_001, 0)


def batch(value: bytes) -> bytearray:
    return build_batch(
        [Record(0, 0, None, value)],
        producer_id=STRAY.producer_id,
        producer_epoch=STRAY.epoch,
        base_sequence=0,
    )


def stray(proxy: Proxied, value: bytes = b"stray") -> int:
    """A batch of a transaction that no log knows; its offset."""
    done = proxy.brokers.topics["t"].partitions[0].log.append(memoryview(batch(value)), 0, 0)
    assert not done.error
    proxy.brokers.notify()
    return done.base_offset


async def look_until_rejected(rejects: Rejects) -> None:
    with trio.fail_after(120):
        while not await rejects.look():  # noqa: ASYNC110  # until the grace has passed
            await trio.sleep(0.01)


async def plain(client: FrameClient, value: bytes, topic: str = "t") -> None:
    answer = await client.call(produce(topic, value), 9)
    assert answer.responses[0].partition_responses[0].error_code == 0


async def test_two_instances_a_restarted_one_and_one_that_loads_a_snapshot_see_the_same() -> None:
    async with proxied(**OPTIONS) as proxy, AsyncExitStack() as stack:
        proxy.brokers.create_topic("t")
        client, reader = [await stack.enter_async_context(await proxy.client(1)) for _ in range(2)]
        ours = WireProducer(client, "ours")
        assert await ours.init() == 0
        await transact(ours, "t", "a", committed=True)
        at = stray(proxy)
        await plain(reader, b"plain")
        other = await stack.enter_async_context(running(proxy.fake.bootstrap, **OPTIONS))
        await eventually(lambda: other.stats.upstream.ready)
        second = await stack.enter_async_context(await other.client())
        consumers = [Consumer(client, 12, "t", bytes(16)) for client in (reader, second)]
        for consumer in consumers:
            assert await consumer.read() == ["a"]
            assert await end_of(consumer.client, "t", 5, 1) == at
        assert not await proxy.transactions.rejects.look()
        assert proxy.stats.transactions.unknown == 1
        await proxy.transactions.control.reject(STRAY.producer_id)
        for consumer in consumers:
            with trio.fail_after(120):
                while consumer.values != ["a", "plain"]:
                    await consumer.poll()
            assert await end_of(consumer.client, "t", 5, 1) == at + 2
        await eventually(lambda: other.transactions.views.is_rejected(STRAY.producer_id))
        for partition in range(2):
            assert await proxy.transactions.snapshots.take(partition)
        late = await stack.enter_async_context(running(proxy.fake.bootstrap, **OPTIONS))
        await eventually(lambda: late.stats.upstream.ready)
        assert late.transactions.views.verdict(*STRAY) is Verdict.ABORTED
        third = await stack.enter_async_context(await late.client())
        assert await Consumer(third, 12, "t", bytes(16)).read() == ["a", "plain"]
        assert await end_of(third, "t", 5, 1) == at + 2


async def test_after_the_grace_readers_continue_by_themselves_though_there_was_no_log() -> None:
    async with proxied(**OPTIONS, transaction_max_timeout_ms=1) as proxy, await proxy.client(1) as client:
        proxy.brokers.create_topic("t")
        stray(proxy)
        await plain(client, b"plain")
        consumer = Consumer(client, 12, "t", bytes(16))
        assert await consumer.read() == []
        await look_until_rejected(proxy.transactions.rejects)
        assert await consumer.read() == ["plain"]
        assert proxy.stats.transactions.rejected == 1


async def test_the_last_stable_offset_is_the_same_for_who_reads_and_who_asks_and_never_falls() -> None:
    async with proxied(**OPTIONS, unknown_producer_ids="wait") as proxy, AsyncExitStack() as stack:
        proxy.brokers.create_topic("t")
        client, other = [await stack.enter_async_context(await proxy.client(1)) for _ in range(2)]
        at = stray(proxy)
        consumer = Consumer(client, 12, "t", bytes(16))
        assert await consumer.read() == []
        ours = WireProducer(other, "ours")
        assert await ours.init() == 0
        stable = 0
        for number in range(4):
            await transact(ours, "t", f"{number}", committed=number % 2 == 0)
            had, stable = stable, await end_of(client, "t", 5, 1)
            assert had <= stable == at
            assert await consumer.read() == []
        assert not await proxy.transactions.rejects.look()
        await proxy.transactions.rejects.reject(STRAY.producer_id)
        assert await end_of(client, "t", 5, 1) == await end_of(client, "t", 5, 0)
        assert await consumer.read() == ["0", "2"]


@pytest.mark.kafka
@pytest.mark.java
async def test_on_a_real_broker(kafka: RealKafka) -> None:
    topic = f"stray-{uuid.uuid4().hex[:12]}"
    with ClusterClient(kafka.bootstrap) as admin:
        admin.create_topic(topic, 1)
    options: dict[str, Any] = {
        **OPTIONS,
        "delivery_timeout_ms": 60_000,
        "upstream_request_timeout_ms": 30_000,
        "unknown_producer_ids": "wait",
    }
    host, _, port = kafka.bootstrap.rpartition(":")
    async with running(kafka.bootstrap, **options) as proxy, AsyncExitStack() as stack:
        await eventually(lambda: proxy.stats.upstream.ready)
        client, reader = [await stack.enter_async_context(await proxy.client()) for _ in range(2)]
        direct = await stack.enter_async_context(FrameClient(await trio.open_tcp_stream(host, int(port)), "stray"))
        ours = WireProducer(client, f"ours-{topic}")
        with trio.fail_after(60):
            while await ours.init():  # noqa: ASYNC110
                await trio.sleep(0.1)
        await transact(ours, topic, "a", committed=True)
        request = produce(topic, b"-")
        request.topic_data[0].partition_data[0].records = bytes(batch(b"stray"))
        answer = await direct.call(request, 7)
        (row,) = answer.responses[0].partition_responses
        assert row.error_code == 0
        await transact(ours, topic, "b", committed=True)
        consumer = Consumer(reader, 12, topic, await topic_id_of(client, topic))
        assert await consumer.read() == ["a"]
        assert await end_of(client, topic, 5, 1) == row.base_offset
        await proxy.transactions.rejects.reject(STRAY.producer_id)
        assert await consumer.read() == ["a", "b"]
        assert await end_of(client, topic, 5, 1) == await end_of(client, topic, 5, 0)
        async with running(kafka.bootstrap, **options) as late:
            await eventually(lambda: late.stats.upstream.ready)
            assert late.transactions.views.verdict(*STRAY) is Verdict.ABORTED
