"""Committed data alone, through a whole kproxy: its own transactions and the broker's in one topic."""

import random
import uuid
from contextlib import AsyncExitStack
from typing import Any

import pytest
import trio

from kproxy.codec._generated.api_versions import ApiVersionsRequest
from kproxy.codec._generated.fetch import FetchRequest, FetchRequestFetchPartition, FetchRequestFetchTopic
from kproxy.codec._generated.list_offsets import (
    ListOffsetsRequest,
    ListOffsetsRequestListOffsetsPartition,
    ListOffsetsRequestListOffsetsTopic,
)
from kproxy.codec.batch import iter_records, read_header
from kproxy.codec.messages import ErrorCode
from kproxy.config.values import IsolationRule
from kproxy.net.txn.service import Transactions
from kproxy.proxy.coordinator_rules import Home, HomeRule
from kproxy.testing.cluster_client import ClusterClient
from kproxy.testing.kafka import RealKafka
from kproxy.txn.visibility import entries
from tests.net.harness import FrameClient, eventually, metadata, produce, proxied, running
from tests.net.txn.wire_producer import WireProducer

OPTIONS: dict[str, Any] = {
    "coordinator": Transactions,
    "transactions_home": (HomeRule("theirs*", Home.BROKER), HomeRule("*", Home.KPROXY)),
    "transaction_state_log_num_partitions": 2,
    "isolation_level_overrides": (IsolationRule("sees-all", "read_uncommitted"),),
}
FIRST_ID = 13
VERSIONS = [0, 2, 4, 7, 10, 11, 12, 13, 17]


class Consumer:
    """Reads partition 0 of a topic from its beginning."""

    def __init__(self, client: FrameClient, version: int, topic: str, topic_id: bytes, *, isolation: int = 1) -> None:
        self.client, self.version, self.isolation = client, version, isolation
        self.topic = FetchRequestFetchTopic(topic="" if version >= FIRST_ID else topic, topic_id=topic_id)
        self.position = 0
        self.values: list[str] = []

    async def poll(self, max_wait_ms: int = 200) -> bool:
        """One Fetch; whether it brought anything."""
        part = FetchRequestFetchPartition(partition=0, fetch_offset=self.position, partition_max_bytes=1 << 16)
        self.topic.partitions = [part]
        request = FetchRequest(
            max_wait_ms=max_wait_ms, min_bytes=1, max_bytes=1 << 20, isolation_level=self.isolation, topics=[self.topic]
        )
        answer = await self.client.call(request, self.version)
        (row,) = answer.responses[0].partitions
        assert row.error_code == ErrorCode.NONE
        data = row.records or b""
        for record in iter_records(data, max_decompressed_bytes=1 << 20):
            if record.offset >= self.position:
                self.values.append((record.value or b"").decode())
                self.position = record.offset + 1
        for entry in entries(data):
            if entry[16] == 2:
                header = read_header(entry)
                self.position = max(self.position, header.base_offset + header.last_offset_delta + 1)
        return bool(data)

    async def read(self) -> list[str]:
        """All that can be read now."""
        while await self.poll():
            pass
        return self.values


async def transact(producer: WireProducer, topic: str, *values: str, committed: bool | None) -> None:
    """A transaction with a batch for each value, ended or left open (None)."""
    with trio.fail_after(120):
        while (await producer.add((topic, 0))) != [0]:  # noqa: ASYNC110
            await trio.sleep(0.05)  # the broker may still be busy with the end of the last one
    for value in values:
        assert await producer.produce(value, (topic, 0)) == [0]
    if committed is not None:
        assert await producer.end(committed=committed) == 0


async def topic_id_of(client: FrameClient, topic: str) -> bytes:
    answer = await client.call(metadata(topic), 12)
    topic_id: bytes = answer.topics[0].topic_id
    return topic_id


async def end_of(client: FrameClient, topic: str, version: int, isolation: int) -> int:
    row = ListOffsetsRequestListOffsetsPartition(partition_index=0, timestamp=-1)
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation if version > 1 else 0,
        topics=[ListOffsetsRequestListOffsetsTopic(name=topic, partitions=[row])],
    )
    answer = await client.call(request, version)
    (told,) = answer.topics[0].partitions
    assert told.error_code == ErrorCode.NONE
    return int(told.offset)


@pytest.mark.parametrize("version", VERSIONS)
async def test_readers_of_every_version(version: int) -> None:
    async with proxied(**OPTIONS) as proxy, AsyncExitStack() as stack:
        proxy.brokers.create_topic("t")
        clients = [await stack.enter_async_context(await proxy.client(1)) for _ in range(3)]
        ours, other = WireProducer(clients[0], "ours"), WireProducer(clients[0], "other")
        for each in (ours, other):
            assert await each.init() == 0
        await transact(ours, "t", "a", "b", committed=True)
        await transact(ours, "t", *"cdefgh", committed=False)
        await clients[1].call(produce("t", b"plain"), 9)
        await transact(other, "t", "i", committed=None)
        await transact(ours, "t", "j", committed=True)
        consumer = Consumer(clients[2], version, "t", await topic_id_of(clients[1], "t"))
        assert await consumer.read() == ["a", "b", "plain"]
        assert await other.end() == 0
        assert await consumer.read() == ["a", "b", "plain", "i", "j"]


async def test_a_commit_wakes_a_reader_that_waits() -> None:
    async with proxied(**OPTIONS) as proxy, await proxy.client(1) as one, await proxy.client(1) as two:
        proxy.brokers.create_topic("t")
        ours = WireProducer(one, "ours")
        assert await ours.init() == 0
        await transact(ours, "t", "a", committed=None)
        consumer = Consumer(two, 12, "t", bytes(16))
        async with trio.open_nursery() as nursery:
            with trio.fail_after(120):
                nursery.start_soon(consumer.poll, 60_000)
                assert await ours.end() == 0
        assert consumer.values == ["a"]


async def test_an_instance_that_joins_later_shows_the_same() -> None:
    """The log's topic was not there when it began."""
    async with proxied(**OPTIONS) as proxy, await proxy.client(1) as client:
        proxy.brokers.create_topic("t")
        async with running(proxy.fake.bootstrap, **OPTIONS) as other:
            await eventually(lambda: other.stats.upstream.ready)
            ours = WireProducer(client, "ours")
            assert await ours.init() == 0
            await transact(ours, "t", "a", committed=True)
            await transact(ours, "t", "b", committed=None)
            async with await other.client() as reader:
                consumer = Consumer(reader, 12, "t", bytes(16))
                with trio.fail_after(120):
                    while not consumer.values:
                        await consumer.poll()
                assert consumer.values == ["a"]


async def test_the_last_stable_offset_of_an_instance_that_joins_later() -> None:
    async with proxied(**OPTIONS) as proxy, await proxy.client(1) as client:
        proxy.brokers.create_topic("t")
        async with running(proxy.fake.bootstrap, **OPTIONS, instance_id="other") as other:
            await eventually(lambda: other.stats.upstream.ready)
            async with await other.client() as reader:
                assert await end_of(reader, "t", 5, 1) == 0
                ours = WireProducer(client, "ours")
                assert await ours.init() == 0
                await transact(ours, "t", "a", committed=True)
                await transact(ours, "t", "b", committed=None)
                assert await end_of(reader, "t", 5, 1) == 1
                assert await end_of(reader, "t", 5, 0) == 2


class _Writer:
    """A producer that does one random thing at a time; knows what it committed."""

    def __init__(self, producer: WireProducer, rng: random.Random) -> None:
        self.producer, self._rng = producer, rng
        self._open: list[str] = []
        self._count = 0
        self.committed: list[str] = []

    async def step(self) -> None:
        if self._open and self._rng.random() < 0.4:
            committed = self._rng.random() < 0.6
            assert await self.producer.end(committed=committed) == 0
            self.committed += self._open if committed else []
            self._open = []
            return
        if not self._open:
            assert await self.producer.add(("t", 0)) == [0]
        self._count += 1
        self._open.append(f"{self.producer.transactional_id}/{self._count}")
        assert await self.producer.produce(self._open[-1], ("t", 0)) == [0]


@pytest.mark.parametrize("seed", range(4))
async def test_the_last_stable_offset_never_falls_and_can_be_reached(seed: int) -> None:
    rng = random.Random(seed)
    async with proxied(**OPTIONS) as proxy, AsyncExitStack() as stack:
        proxy.brokers.create_topic("t")
        clients = [await stack.enter_async_context(await proxy.client(1)) for _ in range(5)]
        writers = [_Writer(WireProducer(client, name), rng) for client, name in zip(clients, "abc", strict=False)]
        for writer in writers:
            assert await writer.producer.init() == 0
        # one that skips control batches: others stay before what is hidden at the end
        await clients[3].call(ApiVersionsRequest(client_software_name="apache-kafka-java"), 3)
        consumer = Consumer(clients[3], 12, "t", bytes(16))
        stable = 0
        for _ in range(60):
            await rng.choice(writers).step()
            had, stable = stable, await end_of(clients[4], "t", rng.choice([1, 2, 5]), 1)
            assert had <= stable <= await end_of(clients[4], "t", 5, 0)
            if rng.random() < 0.4:
                with trio.fail_after(120):
                    while consumer.position < stable:
                        await consumer.poll(20)
                assert consumer.position == stable
                told = {value for writer in writers for value in writer.committed}
                assert set(consumer.values) <= told
        for writer in writers:
            while writer._open:
                await writer.step()
        await consumer.read()
        for writer in writers:
            name = writer.producer.transactional_id
            assert [value for value in consumer.values if value.startswith(name)] == writer.committed
        assert consumer.position == await end_of(clients[4], "t", 5, 0)


async def _mix(client: FrameClient, topic: str) -> WireProducer:
    """Both kinds of transactions, committed and aborted; in the end one of ours is open."""
    ours, theirs = WireProducer(client, f"ours-{topic}"), WireProducer(client, f"theirs-{topic}")
    with trio.fail_after(60):
        await theirs.find()  # makes the broker's own topic
        while await theirs.init() or await ours.init():  # noqa: ASYNC110
            await trio.sleep(0.1)
    for number in range(3):
        await transact(theirs, topic, f"theirs {number}", f"theirs {number}", committed=True)
        await transact(theirs, topic, f"no {number}", committed=False)
        await transact(ours, topic, f"ours {number}", f"ours {number}", committed=True)
        await transact(ours, topic, f"no {number}", f"no {number}", committed=False)
    await transact(ours, topic, "late", committed=None)
    await transact(theirs, topic, "later", committed=True)
    return ours


@pytest.mark.kafka
@pytest.mark.java
async def test_both_kinds_of_transactions_on_a_real_broker(kafka: RealKafka) -> None:
    topic = f"mixed-{uuid.uuid4().hex[:12]}"
    with ClusterClient(kafka.bootstrap) as admin:
        admin.create_topic(topic, 1)
    wanted = [value for n in range(3) for value in (f"theirs {n}", f"theirs {n}", f"ours {n}", f"ours {n}")]
    options = {**OPTIONS, "delivery_timeout_ms": 60_000, "upstream_request_timeout_ms": 30_000}
    async with running(kafka.bootstrap, **options) as proxy, AsyncExitStack() as stack:
        await eventually(lambda: proxy.stats.upstream.ready)
        client = await stack.enter_async_context(await proxy.client())
        ours = await _mix(client, topic)
        topic_id = await topic_id_of(client, topic)
        consumers = [
            Consumer(await stack.enter_async_context(await proxy.client()), version, topic, topic_id)
            for version in VERSIONS
        ]
        for consumer in consumers:
            assert await consumer.read() == wanted
        stable = await end_of(client, topic, 5, 1)
        assert stable == await end_of(client, topic, 1, 0) < await end_of(client, topic, 5, 0)
        everything = await stack.enter_async_context(await proxy.client(client_id="sees-all"))
        assert len(await Consumer(everything, 11, topic, topic_id).read()) == 3 * 7 + 2
        assert await ours.end() == 0
        for consumer in consumers:
            assert await consumer.read() == [*wanted, "late", "later"]
        assert stable < await end_of(client, topic, 5, 1) == await end_of(client, topic, 5, 0)
