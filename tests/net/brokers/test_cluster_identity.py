"""Another cluster at a broker's address is refused, whatever asks it, until the first one is back."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
import structlog
import trio

from kproxy.codec.messages import ApiKey, ErrorCode
from kproxy.net.brokers.cluster_identity import AnotherCluster, ClusterIdentity
from kproxy.proxy.routing import Address
from kproxy.testing.fake_broker import Edit, FakeServer, open_fake_cluster
from kproxy.testing.fake_broker.fake_cluster import ClusterConfig
from tests.net.harness import PATIENCE, Proxied, errors_of, eventually, produce, proxied, values_in

AT = Address("broker", 9092)


class TestTheIdentity:
    def test_is_that_of_the_cluster_that_was_reached_first(self) -> None:
        counted: list[str] = []
        identity = ClusterIdentity(counted.append)
        for cluster_id in (None, "one", None, "one"):
            identity.check(cluster_id, AT)
        assert (identity.cluster_id, counted) == ("one", [])
        with pytest.raises(AnotherCluster, match="broker:9092 belongs to cluster two, not to one, which kproxy serves"):
            identity.check("two", AT)
        identity.check("one", AT)
        assert (identity.cluster_id, counted) == ("one", ["another_cluster"])

    def test_is_logged_once_for_each_other_cluster(self) -> None:
        identity = ClusterIdentity(lambda _: None)
        identity.check("one", AT)
        with structlog.testing.capture_logs() as logged:
            for cluster_id in ("two", "two", "three"):
                with suppress(AnotherCluster):
                    identity.check(cluster_id, AT)
        assert [(row["log_level"], row["cluster_id"], row["served"]) for row in logged] == [
            ("error", "two", "one"),
            ("error", "three", "one"),
        ]


@asynccontextmanager
async def other_cluster(proxy: Proxied, **config: Any) -> AsyncIterator[FakeServer]:
    """Another cluster takes the place of the broker; at the end the first one is back."""
    await proxy.fake.stop_broker(1)
    port = proxy.brokers.brokers[1].port
    async with open_fake_cluster(config=ClusterConfig(cluster_id="another", **config), port=port) as other:
        other.cluster.create_topic("t", 1)
        yield other
    await proxy.fake.start_broker(1)


async def _produce(proxy: Proxied, value: bytes) -> list[int] | None:
    """The error codes; None if the connection was closed."""
    with suppress(OSError, EOFError, trio.BrokenResourceError, trio.ClosedResourceError):
        async with await proxy.client() as client:
            return errors_of(await client.call(produce("t", value), 7))
    return None


async def test_nothing_is_written_to_another_cluster() -> None:
    async with proxied() as proxy:
        proxy.brokers.create_topic("t", 1)
        assert await _produce(proxy, b"1") == [0]
        async with other_cluster(proxy) as other:
            for _ in range(3):
                answer = await _produce(proxy, b"no")
                assert answer is None or answer[0] not in (0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            assert values_in(other.cluster, "t") == []
            await eventually(lambda: proxy.stats.upstream.errors.get("another_cluster", 0) >= 1)
        with trio.fail_after(PATIENCE):
            while await _produce(proxy, b"2") != [0]:  # noqa: ASYNC110
                await trio.sleep(0.02)
        assert [value for value in values_in(proxy.brokers, "t") if value != b"no"] == [b"1", b"2"]


async def test_a_connection_of_a_client_that_waits_does_not_continue_at_another_cluster() -> None:
    async with proxied() as proxy:
        proxy.brokers.create_topic("t", 1)
        async with await proxy.client() as client:
            assert errors_of(await client.call(produce("t", b"1"), 7)) == [0]
            async with other_cluster(proxy) as other:
                await client.send(produce("t", b"2"), 7)
                await eventually(lambda: proxy.stats.upstream.errors.get("another_cluster", 0) >= 1)
                assert values_in(other.cluster, "t") == []


async def test_kproxys_own_requests_do_not_go_there_either() -> None:
    async with proxied() as proxy:
        await proxy.cluster.new_producer_id()
        async with other_cluster(proxy):
            for _ in range(2):
                with pytest.raises((OSError, AnotherCluster)):
                    await proxy.cluster.new_producer_id()
                with pytest.raises((OSError, AnotherCluster)):
                    await proxy.cluster.refresh()
        await proxy.cluster.refresh()


async def test_a_broker_that_restarts_is_asked_again_and_used() -> None:
    async with proxied() as proxy:
        proxy.brokers.create_topic("t", 1)
        assert await _produce(proxy, b"1") == [0]
        await proxy.fake.stop_broker(1)
        await proxy.fake.start_broker(1)
        with trio.fail_after(PATIENCE):
            while await _produce(proxy, b"2") != [0]:  # noqa: ASYNC110
                await trio.sleep(0.02)
        assert proxy.stats.upstream.errors.get("another_cluster", 0) == 0


async def test_brokers_that_have_no_id_are_used() -> None:
    def without(answer: Any) -> None:
        answer.cluster_id = None

    async with proxied() as proxy:
        proxy.brokers.control(ApiKey.METADATA, lambda _: Edit(without))
        proxy.brokers.create_topic("t", 1)
        assert await _produce(proxy, b"1") == [0]
