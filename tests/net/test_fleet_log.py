"""Instances announce themselves in a topic of a fake cluster, and find each other there."""

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest
import structlog
import trio

from kproxy.codec._generated.create_topics import CreateTopicsResponse
from kproxy.codec.batch import Record, build_batch
from kproxy.codec.messages import ApiKey, ErrorCode, Message
from kproxy.config import Config
from kproxy.net.announcer import Announcer
from kproxy.net.brokers.cluster import Cluster
from kproxy.net.fleet_log import TOPIC, FleetLog
from kproxy.net.socket_network import SocketNetwork
from kproxy.proxy.announcements import encode_key
from kproxy.proxy.facts import FleetFact
from kproxy.proxy.process_stats import ProcessStats
from kproxy.proxy.routing import ClusterMap, is_own_topic
from kproxy.proxy.upstream_stats import UpstreamStats
from kproxy.testing.fake_broker import Close, Edit, FakeServer, open_fake_cluster
from tests.control.fake_facts import STATUS
from tests.net.txn.log_harness import configured

pytestmark = pytest.mark.idle_clock

PATIENCE = 600
INTERVAL = 60


@dataclass
class Instance:
    """One instance of the fleet, as far as its announcements go."""

    config: Config
    log: FleetLog
    announcer: Announcer
    stats: UpstreamStats
    process: ProcessStats
    scope: trio.CancelScope

    async def sees(self, names: list[str], **facts: Any) -> FleetFact:
        """The fleet as this instance reads it, once these are in it."""
        with trio.fail_after(PATIENCE):
            while True:
                found = await self.log.read()
                if sorted(row.instance_id for row in found.instances) == names:
                    assert {name: getattr(found, name) for name in facts} == facts
                    return found
                await trio.sleep(1)


@asynccontextmanager
async def fleet(brokers: int = 1) -> AsyncIterator[tuple[FakeServer, Callable[..., Awaitable[Instance]]]]:
    """A fake cluster, and what starts an instance on it."""
    async with AsyncExitStack() as stack:
        epoch = time.time() - trio.current_time()
        fake = await stack.enter_async_context(
            open_fake_cluster(brokers, clock=lambda: int((epoch + trio.current_time()) * 1000))
        )
        nursery = await stack.enter_async_context(trio.open_nursery())

        async def start(name: str, interval_ms: int = INTERVAL * 1000) -> Instance:
            config = configured(fake.bootstrap, instance_id=name, fleet_announce_interval_ms=interval_ms)
            stats = UpstreamStats()
            cluster = Cluster(config, stats, ClusterMap(), SocketNetwork())
            process = ProcessStats()
            log = FleetLog(config, cluster, process)
            stack.callback(cluster.close)
            stack.callback(log.close)
            announcer = Announcer(config, cluster, log, lambda: STATUS._replace(instance_id=name), f"host-{name}", "")
            scope = trio.CancelScope()

            async def run() -> None:
                with scope:
                    await announcer.run()

            if interval_ms:
                nursery.start_soon(run)
            return Instance(config, log, announcer, stats, process, scope)

        yield fake, start
        nursery.cancel_scope.cancel()


def produced(fake: FakeServer) -> int:
    """How many records are in the topic."""
    return sum(partition.high_watermark for partition in fake.cluster.topics[TOPIC].partitions)


async def test_instances_find_each_other() -> None:
    async with fleet(2) as (fake, start):
        one = await start("one")
        other = await start("two")
        found = await one.sees(["one", "two"], total=2, ignored=0, announces=True, incomplete=False)
        assert {row.host for row in found.instances} == {"host-one", "host-two"}
        assert found.legacy_clients[0].instances == 2
        assert (await other.sees(["one", "two"])).connections == 2 * STATUS.connections
        settings = fake.cluster.topics[TOPIC].config
        assert settings["cleanup.policy"] == "compact,delete"
        assert settings["message.timestamp.type"] == "LogAppendTime"


def test_clients_may_not_write_it() -> None:
    assert is_own_topic(TOPIC)


async def test_an_instance_that_is_killed_is_in_trouble_and_then_expires() -> None:
    async with fleet() as (_, start):
        one, other = await start("one"), await start("two")
        await one.sees(["one", "two"], in_trouble=0)
        other.scope.cancel()
        await trio.sleep(2 * INTERVAL)
        found = await one.sees(["one", "two"], in_trouble=1)
        assert found.instances[0].instance_id == "two"
        assert found.now_ms - found.instances[0].announced_ms >= INTERVAL * 1000
        with trio.fail_after(900):
            await one.sees(["one"], in_trouble=0)


async def test_an_instance_that_ends_is_not_listed_any_more() -> None:
    async with fleet() as (_, start):
        one, other = await start("one"), await start("two")
        await one.sees(["one", "two"])
        other.scope.cancel()
        await other.announcer.leave()
        await trio.sleep(3)  # what was read a moment ago is shown until then
        assert [row.instance_id for row in (await one.log.read()).instances] == ["one"]


async def test_an_instance_that_never_announced_itself_leaves_nothing() -> None:
    async with fleet() as (fake, start):
        silent = await start("silent", 0)
        await silent.announcer.leave()
        assert TOPIC not in fake.cluster.topics


async def test_one_request_for_each_interval() -> None:
    async with fleet() as (fake, start):
        await start("one")
        await trio.sleep(10)  # the first one comes within this time
        before = produced(fake)
        await trio.sleep(10 * INTERVAL)
        assert (before, produced(fake)) == (1, 11)


async def test_who_does_not_announce_itself_sees_the_others_and_makes_no_topic() -> None:
    async with fleet() as (fake, start):
        silent = await start("silent", 0)
        await silent.sees([], announces=False, total=0)
        assert TOPIC not in fake.cluster.topics
        await start("one")
        await silent.sees(["one"], announces=False)


async def test_several_questions_at_once_are_one_reading() -> None:
    async with fleet() as (_, start):
        one = await start("one")
        await one.sees(["one"])
        found: list[FleetFact] = []

        async def ask() -> None:
            found.append(await one.log.read())

        await trio.sleep(3)
        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(ask)
        assert all(each is found[0] for each in found)


async def test_what_is_no_announcement_is_ignored_and_counted() -> None:
    async with fleet() as (fake, start):
        one = await start("one")
        await one.sees(["one"])
        partition = fake.cluster.topics[TOPIC].partitions[0]
        now = fake.cluster.clock()
        foreign = [Record(0, now, b"x", b"x"), Record(1, now, encode_key("two"), b"\0" * 100_000)]
        assert partition.log.append(memoryview(build_batch(foreign)), partition.leader_epoch, now).error == 0
        fake.cluster.notify()
        await trio.sleep(3)
        await one.sees(["one"], ignored=2)
        assert (one.process.fleet_ignored["damaged"], one.process.fleet_ignored["too_long"]) == (1, 1)


def refuse(response: Message) -> None:
    assert isinstance(response, CreateTopicsResponse)
    for row in response.topics:
        row.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED


async def test_a_refused_topic_is_logged_once() -> None:
    with structlog.testing.capture_logs() as lines:
        async with fleet() as (fake, start):
            fake.cluster.control(ApiKey.CREATE_TOPICS, lambda _: Edit(refuse))
            one = await start("one")
            await trio.sleep(3 * INTERVAL)
            assert (await one.log.read()).announces is False
    [line] = [line for line in lines if line["log_level"] == "warning"]
    assert line["event"].startswith("this instance is not in kproxy fleet, and serves its clients as before")
    assert line["grant"] == f"Create, Describe, DescribeConfigs, Read and Write on topic {TOPIC}, to kproxy's principal"


async def test_an_announcement_that_fails_is_followed_by_the_next() -> None:
    async with fleet() as (fake, start):
        one = await start("one")
        await one.sees(["one"])
        fake.cluster.control(ApiKey.PRODUCE, lambda _: Close(), times=1)
        await trio.sleep(2 * INTERVAL)
        assert one.stats.errors["fleet"] == 1
        await one.sees(["one"])


async def test_a_deleted_topic_is_created_again() -> None:
    async with fleet() as (fake, start):
        one = await start("one")
        await one.sees(["one"])
        fake.cluster.delete_topic(TOPIC)
        await one.sees([])
        await one.sees(["one"])


async def test_a_topic_that_cannot_be_read_is_an_error_with_its_reason() -> None:
    async with fleet() as (fake, start):
        one = await start("one")
        await one.sees(["one"])
        fake.cluster.control(ApiKey.LIST_OFFSETS, lambda _: Close())
        await trio.sleep(3)
        with pytest.raises(OSError, match=f"{TOPIC} cannot be read"):
            await one.log.read()
