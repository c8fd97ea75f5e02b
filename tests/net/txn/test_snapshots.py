"""Snapshots on a fake cluster: whatever happens on the way, who loads the log knows what the log said."""

import uuid
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from typing import Any

import pytest
import trio
import trio.testing

from kproxy.codec._generated.produce import (
    ProduceResponse,
    ProduceResponsePartitionProduceResponse,
    ProduceResponseTopicProduceResponse,
)
from kproxy.codec.messages import ApiKey, ErrorCode, Message
from kproxy.net.brokers.cluster import Cluster
from kproxy.net.own_topic import OwnTopic
from kproxy.net.socket_network import SocketNetwork
from kproxy.net.txn.log_appender import LogAppender
from kproxy.net.txn.log_follower import LogFollower
from kproxy.net.txn.log_topic import TOPIC, transaction_plan
from kproxy.net.txn.snapshots import Snapshots
from kproxy.net.txn.transaction_log import ViewSink
from kproxy.proxy.routing import ClusterMap
from kproxy.proxy.upstream_stats import UpstreamStats
from kproxy.testing.fake_broker import Answer, Close, Drop, Edit, FakeServer, open_fake_cluster
from kproxy.testing.kafka import RealKafka
from kproxy.txn.log_records import Entry, encode
from kproxy.txn.view import IdView
from kproxy.txn.views import Views
from tests.net.txn.log_harness import PATIENCE, configured
from tests.txn.bodies import claim, decision, nonce, partitions, producer

P0, P1 = producer(100, 0), producer(100, 1)
PLACE = ("t", 0)
#: Bounds what a test waits for, on a machine that does other things, too.
WAIT_S = 60.0


@dataclass
class Instance:
    """One that follows the log, and may take snapshots of it."""

    views: Views
    follower: LogFollower
    appender: LogAppender
    snapshots: Snapshots
    offsets: Iterator[int] = field(default_factory=count)

    async def write(self, name: str, *bodies: Message) -> None:
        for body in bodies:
            await self.appender.append_unfenced(0, [encode(Entry(name, body))])
        await self.at_end()

    async def at_end(self) -> dict[str, IdView]:
        with trio.fail_after(WAIT_S):
            await self.follower.read_to_end(0)
        return {view.transactional_id: view for view in self.views.all()}

    async def fill(self, transactions: int = 20, name: str = "a") -> dict[str, IdView]:
        """A claim and transactions, of which the last is open."""
        number = next(self.offsets) + 1
        first = producer(1000 * number + len(name), 0)
        await self.write(name, claim(number, first, epochs=transactions + 1))
        for epoch in range(transactions):
            await self.write(name, decision(number, first._replace(epoch=epoch), epoch % 2 == 0))
        await self.write(name, partitions(number, first._replace(epoch=transactions), {PLACE: 7}))
        return await self.at_end()


@asynccontextmanager
async def instance(
    cluster_of: FakeServer | RealKafka, number: int = 1, deadline_s: float = PATIENCE, topic: str = TOPIC
) -> AsyncIterator[Instance]:
    config = configured(cluster_of.bootstrap)
    views = Views()
    cluster = Cluster(config, UpstreamStats(), ClusterMap(), SocketNetwork())
    plan = replace(transaction_plan(config), name=topic)
    follower = LogFollower(cluster, config, OwnTopic(cluster, plan), ViewSink(views))
    appender = LogAppender(cluster, config, topic, deadline_s)
    numbers = count(1000 * number)
    async with trio.open_nursery() as nursery:
        try:
            nursery.start_soon(follower.run)
            with trio.fail_after(WAIT_S):
                await follower.loaded()
            snapshots = Snapshots(views, follower, appender, lambda: nonce(next(numbers)))
            yield Instance(views, follower, appender, snapshots)
        finally:
            nursery.cancel_scope.cancel()
            appender.close()
            cluster.close()


@pytest.fixture
async def fake() -> AsyncIterator[FakeServer]:
    async with open_fake_cluster(1) as fake:
        yield fake


def start_of(fake: FakeServer) -> int:
    return fake.cluster.topics[TOPIC].partitions[0].log.start_offset


def deleted(fake: FakeServer) -> trio.Event:
    """Set when records are deleted for the first time."""
    done = trio.Event()
    fake.cluster.control(ApiKey.DELETE_RECORDS, lambda _: Edit(lambda _: done.set()))
    return done


async def loaded(cluster_of: FakeServer | RealKafka, topic: str = TOPIC) -> dict[str, IdView]:
    """What an instance knows that comes now."""
    async with instance(cluster_of, 9, topic=topic) as late:
        views = await late.at_end()
        assert late.views.knows(0)
        return views


async def test_what_comes_later_loads_the_snapshot(fake: FakeServer) -> None:
    async with instance(fake) as one:
        truth = await one.fill()
        end = one.follower.position(0)
        assert await one.snapshots.take(0, chunk_bytes=100)
        assert start_of(fake) == end
        assert await one.at_end() == truth
        assert await loaded(fake) == truth
        await one.write("b", claim(5, producer(500, 0)), decision(5, producer(500, 0), True))
        assert await loaded(fake) == await one.at_end() != truth


async def test_a_crash_before_the_deletion_costs_nothing(fake: FakeServer) -> None:
    async with instance(fake) as one:
        truth = await one.fill()
        stuck = trio.Event()

        def crash(_: Any) -> Drop:
            stuck.set()
            return Drop(apply=False)

        fake.cluster.control(ApiKey.DELETE_RECORDS, crash, times=1)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(one.snapshots.take, 0)
            with trio.fail_after(WAIT_S):
                await stuck.wait()
            nursery.cancel_scope.cancel()
        assert start_of(fake) == 0
        assert await loaded(fake) == truth
    async with instance(fake, 2) as two:
        await two.at_end()
        end = two.follower.position(0)
        assert await two.snapshots.take(0)
        assert start_of(fake) == end
        assert await loaded(fake) == truth


async def test_two_writers_at_a_time_and_a_deletion_that_comes_late(fake: FakeServer) -> None:
    async with instance(fake) as one, instance(fake, 2) as two:
        await one.fill()
        first_end = one.follower.position(0)
        await one.fill(name="b")
        truth = await two.at_end()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(one.snapshots.take, 0, 50)
            nursery.start_soon(two.snapshots.take, 0, 70)
        assert await loaded(fake) == truth
        begins = start_of(fake)
        assert begins > first_end
        await two.appender.delete_records(0, first_end)
        assert start_of(fake) == begins
        assert await loaded(fake) == await one.at_end() == truth


async def test_readers_load_while_records_are_deleted(fake: FakeServer) -> None:
    async with instance(fake) as one, trio.open_nursery() as nursery:

        async def load_again_and_again() -> None:
            while True:
                async with instance(fake, 3) as reader:
                    await reader.at_end()
                    assert reader.views.knows(0)

        nursery.start_soon(load_again_and_again)
        for name in "abcde":
            truth = await one.fill(5, name)
            assert await one.snapshots.take(0, chunk_bytes=200)
        assert await loaded(fake) == truth
        nursery.cancel_scope.cancel()


def refused(_: Any) -> Answer:
    part = ProduceResponsePartitionProduceResponse(error_code=ErrorCode.MESSAGE_TOO_LARGE, base_offset=-1)
    return Answer(
        ProduceResponse(responses=[ProduceResponseTopicProduceResponse(name=TOPIC, partition_responses=[part])])
    )


async def test_nothing_is_deleted_unless_all_chunks_are_acknowledged(fake: FakeServer) -> None:
    async with instance(fake) as one:
        truth = await one.fill()
        done = deleted(fake)
        written = one.follower.position(0)
        chunks = count()
        fake.cluster.control(ApiKey.PRODUCE, lambda call: refused(call) if next(chunks) else None)
        assert not await one.snapshots.take(0, chunk_bytes=100)
        await one.at_end()
        assert one.follower.position(0) == written + 1
        assert not done.is_set()
        assert start_of(fake) == 0
        assert await loaded(fake) == await one.at_end() == truth


@pytest.mark.idle_clock
async def test_a_deletion_that_fails_is_reported_and_made_up_for(fake: FakeServer) -> None:
    async with instance(fake, deadline_s=0.5) as one:
        truth = await one.fill(3)
        fake.cluster.control(ApiKey.DELETE_RECORDS, lambda _: Close())
        assert not await one.snapshots.take(0)
        assert start_of(fake) == 0
        assert await loaded(fake) == truth


async def test_none_is_taken_of_what_is_not_understood(fake: FakeServer) -> None:
    async with instance(fake) as one:
        await one.fill(3)
        await one.appender.append_unfenced(0, [(b"\0\1newer", b"?")])
        await one.at_end()
        assert one.views.foreign == {0}
        assert not await one.snapshots.take(0)
        end = one.follower.position(0)
        await one.at_end()
        assert one.follower.position(0) == end


async def test_what_is_due_is_taken_by_one_of_them(fake: FakeServer) -> None:
    async with instance(fake) as one, instance(fake, 2) as two, trio.open_nursery() as nursery:
        truth = await one.fill()
        await two.at_end()
        done = deleted(fake)
        for each in (one, two):
            run = partial(each.snapshots.run, look_s=0.01, within_s=0.1, is_due=lambda x: x.records > 10)
            nursery.start_soon(run)
        with trio.fail_after(WAIT_S):
            await done.wait()
        assert start_of(fake) > 0
        assert await one.at_end() == await two.at_end() == truth
        nursery.cancel_scope.cancel()
    assert await loaded(fake) == truth


class Scripted:
    """What a snapshot is taken of, and where it is written, as a test says it; what happened."""

    partitions = 2

    def __init__(self, *, known: bool = True, acknowledged: int = 12, readings: Sequence[int] = (1,)) -> None:
        self.known, self.acknowledged = known, acknowledged
        self._readings = list(readings)
        self.done: list[object] = []

    def knows(self, partition: int) -> bool:
        return self.known and not partition

    def loader(self, partition: int) -> None:
        assert not partition

    def of_partition(self, _: int) -> list[IdView]:
        return []

    rejected = of_partition

    def position(self, _: int) -> int:
        return 10

    def readings(self, _: int) -> int:
        return self._readings.pop(0) if self._readings[1:] else self._readings[0]

    async def append_unfenced(self, _: int, records: Any) -> int:
        await trio.lowlevel.checkpoint()
        self.done.append("append")
        return self.acknowledged

    async def read_to_end(self, _: int) -> None:
        await trio.lowlevel.checkpoint()
        self.done.append("read")

    async def delete_records(self, _: int, before: int) -> None:
        await trio.lowlevel.checkpoint()
        self.done.append(before)

    def snapshots(self, chance: int = 0) -> Snapshots:
        """``chance`` decides when those that are due are taken: of 256."""
        own: Any = self
        return Snapshots(own, own, own, lambda: bytes([chance]) + bytes(15))


@pytest.mark.parametrize(
    ("acknowledged", "readings", "deletes"),
    [(12, (1,), True), (10, (1,), True), (9, (1,), False), (12, (1, 2), False), (12, (2, 1), False)],
    ids=["after it", "at its end", "before what it states", "read again meanwhile", "another log"],
)
async def test_records_are_deleted_only_from_the_log_that_was_read(
    acknowledged: int, readings: Sequence[int], deletes: bool
) -> None:
    """A log that was truncated or recreated holds something else at these offsets; the follower finds it at the end."""
    log = Scripted(acknowledged=acknowledged, readings=readings)
    assert await log.snapshots().take(0) == deletes
    assert log.done == ["append", "read", *([10] if deletes else [])]


@pytest.mark.parametrize(("chance", "after"), [(0, 10), (32, 30), (128, 70), (255, 130)])
async def test_one_that_is_due_is_taken_at_a_random_time_within_two_minutes(
    chance: int, after: int, autojump_clock: trio.testing.MockClock
) -> None:
    log = Scripted()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(log.snapshots(chance).run, is_due=lambda _: True))
        await trio.sleep(after - 1)
        assert not log.done
        await trio.sleep(2)
        assert log.done == ["append", "read", 10]
        await trio.sleep(10)  # the next one has a time of its own
        assert len(log.done) == (6 if not chance else 3)
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("known", [False, True], ids=["not-read", "taken-by-another"])
async def test_what_is_not_due_any_more_is_not_taken(known: bool, autojump_clock: trio.testing.MockClock) -> None:
    """When it is due again, a new time is chosen."""
    log = Scripted()
    due = True
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(log.snapshots(64).run, is_due=lambda _: due))
        await trio.sleep(25)  # seen at 10, for 40
        log.known, due = known, False
        await trio.sleep(30)
        assert not log.done
        log.known, due = True, True
        await trio.sleep(30)  # seen at 60, for 90
        assert not log.done
        await trio.sleep(10)
        assert log.done
        nursery.cancel_scope.cancel()


@pytest.mark.kafka
@pytest.mark.java
async def test_on_a_real_broker(kafka: RealKafka) -> None:
    topic = f"snapshots-{uuid.uuid4().hex}"
    with trio.fail_after(120):
        async with instance(kafka, topic=topic) as one, instance(kafka, 2, topic=topic) as two:
            await one.fill(30)
            await two.at_end()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(one.snapshots.take, 0, 300)
                nursery.start_soon(two.snapshots.take, 0, 500)
            truth = await one.fill(5, "b")
            assert await two.at_end() == truth
            late = await loaded(kafka, topic)
            assert late == truth
            assert await one.snapshots.take(0)
            assert await loaded(kafka, topic) == truth
            assert await one.appender.delete_records(0, 1) > 30  # late, and of no effect
            assert await loaded(kafka, topic) == truth
