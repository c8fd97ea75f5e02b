"""Groups' offsets in kproxy's transactions on a real broker: consume, transform, produce, and rebalances meanwhile."""

import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest
import trio

from kproxy.codec._generated.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from kproxy.codec._generated.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatRequestSubtopology,
    StreamsGroupHeartbeatRequestTopology,
    StreamsGroupHeartbeatResponse,
)
from kproxy.codec._generated.transaction_offsets import TransactionOffsets
from kproxy.codec._generated.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from kproxy.codec.messages import ErrorCode
from kproxy.net.txn import offset_mirror
from kproxy.net.txn.group_checks import check_member
from kproxy.net.txn.service import Transactions
from kproxy.proxy.coordinator_rules import Home, HomeRule
from kproxy.testing.cluster_client import ClusterClient
from kproxy.testing.kafka import RealKafka
from tests.contract.coordinators import GROUP, STARTING, find_coordinator
from tests.contract.test_groups import Consumer
from tests.net import harness
from tests.net.harness import FrameClient, Proxied, eventually, running
from tests.net.txn.group_client import commit, fetched
from tests.net.txn.wire_producer import TV1, TV2, WireProducer

pytestmark = [pytest.mark.kafka, pytest.mark.java]
UNSTABLE = ErrorCode.UNSTABLE_OFFSET_COMMIT
OPTIONS: dict[str, Any] = {
    "coordinator": Transactions,
    "transactions_home": (HomeRule("*", Home.KPROXY),),
    "transaction_state_log_num_partitions": 4,
    "upstream_request_timeout_ms": 20_000,
    "delivery_timeout_ms": 60_000,
}


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(harness, "PATIENCE", 60.0)


@dataclass
class Scene:
    """A producer at one kproxy, consumers' requests at another and at the broker itself."""

    name: str
    bootstrap: str
    proxies: tuple[Proxied, Proxied]
    producer: WireProducer
    reader: FrameClient
    direct: FrameClient
    #: Whether the group has to be added first.
    adds: bool

    async def member(self) -> Consumer:
        """A member of the group that has joined, alone."""

        def join() -> Consumer:
            one = Consumer(self.bootstrap, self.name)
            assert one.join().error_code == ErrorCode.NONE
            assert one.sync().error_code == ErrorCode.NONE
            return one

        return await trio.to_thread.run_sync(join)

    async def offsets(self, offset: int, generation: int = -1, member: str = "") -> int:
        """TxnOffsetCommit of a member, after AddOffsetsToTxn where the first protocol asks for that."""
        if self.adds:
            assert await self.producer.add_offsets(self.name) == 0
        rows = [
            TxnOffsetCommitRequestTopic(self.name, partitions=[TxnOffsetCommitRequestPartition(0, offset, -1, "m")])
        ]
        who = (self.producer.transactional_id, self.name, *self.producer.producer)
        answer = await self.producer.call(TxnOffsetCommitRequest(*who, generation, member, None, rows))
        return int(answer.topics[0].partitions[0].error_code)

    async def told(self, version: int = 7) -> tuple[int, int]:
        """Offset and error code by the other kproxy."""
        (row,) = await fetched(self.reader, self.name, version, (self.name, 0))
        return row

    async def broker_has(self, offset: int) -> None:
        """Waits until the broker tells this offset, and the log's is not needed any more."""
        views = [one.transactions.views for one in self.proxies]
        await eventually(lambda: not any(list(view.unmirrored_offsets(self.name)) for view in views), 30)
        assert await fetched(self.direct, self.name, 7, (self.name, 0)) == [(offset, 0)]


@asynccontextmanager
async def scene(kafka: RealKafka, versions: Any = TV1) -> AsyncIterator[Scene]:
    """A fresh topic and a fresh group, both of the scene's name."""
    name = f"group-offsets-{uuid.uuid4().hex[:12]}"
    host, _, port = kafka.bootstrap.partition(":")

    def prepare() -> None:
        with ClusterClient(kafka.bootstrap) as client:
            client.create_topic(name, 2)
            find_coordinator(client, name, GROUP)

    with trio.fail_after(180):
        await trio.to_thread.run_sync(prepare)
        async with (
            running(kafka.bootstrap, instance_id=f"{name}-a", **OPTIONS) as one,
            running(kafka.bootstrap, instance_id=f"{name}-b", **OPTIONS) as two,
        ):
            await eventually(lambda: one.stats.upstream.ready and two.stats.upstream.ready)
            async with (
                await one.client() as writes,
                await two.client() as reads,
                FrameClient(await trio.open_tcp_stream(host, int(port)), "direct") as direct,
            ):
                producer = WireProducer(writes, f"{name}-id", versions)
                while (error := await producer.init()) in STARTING:  # noqa: ASYNC110 - the broker comes up
                    await trio.sleep(0.1)
                assert error == 0
                yield Scene(name, kafka.bootstrap, (one, two), producer, reads, direct, versions is TV1)


@pytest.mark.parametrize("versions", [TV1, TV2], ids=["TV1", "TV2"])
async def test_offsets_move_with_the_data_and_are_returned_at_once(kafka: RealKafka, versions: Any) -> None:
    async with scene(kafka, versions) as at:
        for offset, committed, after in ((5, True, 5), (9, False, 5), (7, True, 7)):
            place = (at.name, 1)
            if versions is TV1:
                assert await at.producer.add(place) == [0]
            assert await at.producer.produce(str(offset), place) == [0]
            assert await at.offsets(offset) == 0
            assert await at.told() == (-1, UNSTABLE)
            assert await at.producer.end(committed=committed) == 0
            assert await at.told() == (after, 0)
        await at.broker_has(7)
        assert await at.told(5) == (7, 0)


async def test_a_rebalance_in_the_middle_aborts_the_zombie(kafka: RealKafka) -> None:
    async with scene(kafka) as at:
        member = await at.member()
        assert await at.offsets(5, member.generation, member.member_id) == 0
        assert await at.producer.end() == 0
        assert await at.told() == (5, 0)
        await at.broker_has(5)  # a live group takes it
        assert await at.offsets(9, member.generation, member.member_id) == 0
        was = member.generation
        await trio.to_thread.run_sync(lambda: (member.join(), member.sync()))
        assert member.generation == was + 1
        assert await at.producer.end() != 0
        assert await at.told() == (5, 0)
        assert await at.producer.end(committed=False) == 0
        assert await at.offsets(9, was, member.member_id) == ErrorCode.ILLEGAL_GENERATION
        assert await at.offsets(9, member.generation, "nobody") == ErrorCode.UNKNOWN_MEMBER_ID
        assert await at.offsets(6, member.generation, member.member_id) == 0
        assert await at.producer.end() == 0
        assert await at.told() == (6, 0)
        member.connection.close()


async def test_a_later_plain_commit_wins(kafka: RealKafka, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offset_mirror, "_LINGER_SECONDS", 1000.0)
    async with scene(kafka) as at:
        for offset in range(10, 15):
            assert await at.offsets(offset) == 0
            assert await at.producer.end() == 0
            assert await at.told() == (offset, 0)
            assert await commit(at.reader, at.name, 3, topic=at.name) == 0
            assert await at.told() == (3, 0)
            assert await fetched(at.direct, at.name, 7, (at.name, 0)) == [(3, 0)]


async def test_members_of_the_newer_protocol(kafka: RealKafka) -> None:
    async with scene(kafka) as at:
        member = str(uuid.uuid4())

        async def beat(epoch: int, **more: Any) -> ConsumerGroupHeartbeatResponse:
            request = ConsumerGroupHeartbeatRequest(at.name, member, epoch, **more)
            answer: ConsumerGroupHeartbeatResponse = await at.direct.call(request, 1)
            assert answer.error_code == ErrorCode.NONE, answer.error_message
            return answer

        first: dict[str, Any] = {"rebalance_timeout_ms": 60_000, "topic_partitions": []}
        epoch = (await beat(0, subscribed_topic_names=[at.name], **first)).member_epoch
        cluster = at.proxies[0].cluster

        async def check(generation: int, who: str = member) -> int:
            return await check_member(cluster, TransactionOffsets(bytes(16), 0, 0, at.name, generation, who))

        assert await check(epoch) == ErrorCode.NONE
        assert await check(epoch + 1) == ErrorCode.STALE_MEMBER_EPOCH
        assert await check(epoch, "nobody") == ErrorCode.UNKNOWN_MEMBER_ID
        assert await at.offsets(5, epoch, member) == 0
        assert await at.producer.end() == 0
        assert await at.told() == (5, 0)
        await at.broker_has(5)
        assert await at.offsets(6, epoch, member) == 0
        answer = await beat(epoch, subscribed_topic_names=[at.name, "another"])  # the group's epoch rises
        with trio.fail_after(120):
            while answer.member_epoch == epoch:
                answer = await beat(epoch)
                await trio.sleep(0.1)
        assert await at.producer.end() != 0
        assert await at.told() == (5, 0)


async def test_members_of_streams_groups(kafka: RealKafka) -> None:
    async with scene(kafka) as at:
        member, other = str(uuid.uuid4()), str(uuid.uuid4())
        topology = StreamsGroupHeartbeatRequestTopology(0, [StreamsGroupHeartbeatRequestSubtopology("0", [at.name])])

        async def beat(epoch: int, who: str = member) -> int:
            more: dict[str, Any] = {"active_tasks": [], "standby_tasks": [], "warmup_tasks": []}
            if not epoch:
                more |= {"rebalance_timeout_ms": 60_000, "topology": topology, "process_id": who, "client_tags": []}
            request = StreamsGroupHeartbeatRequest(at.name, who, epoch, **more)
            answer: StreamsGroupHeartbeatResponse = await at.direct.call(request, 0)
            assert answer.error_code == ErrorCode.NONE, answer.error_message
            return answer.member_epoch

        epoch = await beat(0)
        assert await at.offsets(5, epoch, "nobody") == ErrorCode.UNKNOWN_MEMBER_ID
        assert await at.offsets(5, epoch + 1, member) == ErrorCode.ILLEGAL_GENERATION
        assert await at.offsets(5, epoch, member) == 0
        assert await at.producer.end() == 0
        assert await at.told() == (5, 0)
        await at.broker_has(5)
        assert await at.offsets(6, epoch, member) == 0
        await beat(0, other)
        with trio.fail_after(120):
            while await beat(epoch) == epoch:  # noqa: ASYNC110 - the member learns it by its next heartbeat
                await trio.sleep(0.1)
        assert await at.producer.end() != 0
        assert await at.told() == (5, 0)
