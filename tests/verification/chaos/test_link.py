import pytest
import trio

from kproxy.codec._generated.metadata import MetadataRequest, MetadataResponse
from kproxy.codec.messages import ApiKey
from kproxy.testing.fake_broker.controls import Close, Drop
from kproxy.testing.fake_broker.fake_cluster import ClusterConfig
from kproxy.testing.fake_broker.fake_server import FakeServer, open_fake_cluster
from kproxy.testing.ports import free_ports
from verification.chaos.link import Address, Link, LinkLost, find_leaders


def address(server: FakeServer) -> Address:
    host, _, port = server.bootstrap.split(",")[0].rpartition(":")
    return host, int(port)


async def test_leaders_are_found_for_every_partition_and_none_for_a_topic_that_is_only_being_made() -> None:
    async with open_fake_cluster(2, config=ClusterConfig(num_partitions=3)) as server:
        assert await find_leaders(address(server), "c", ["t"], 5) == {}
        leaders = await find_leaders(address(server), "c", ["t"], 5)
        ports = {(broker.host, broker.port) for broker in server.cluster.brokers.values()}
    assert set(leaders) == {("t", 0), ("t", 1), ("t", 2)}
    assert set(leaders.values()) <= ports


async def test_a_connection_that_ends_is_lost() -> None:
    async with open_fake_cluster() as server:
        server.cluster.control(ApiKey.METADATA, lambda _: Close())
        async with await Link.open(address(server), "c") as link:
            with pytest.raises(LinkLost, match="closed"):
                await link.call(MetadataRequest(), 0, MetadataResponse, 5)


async def test_an_answer_that_does_not_come_in_time_makes_the_link_lost() -> None:
    async with open_fake_cluster() as server:
        server.cluster.control(ApiKey.METADATA, lambda _: Drop())
        async with await Link.open(address(server), "c") as link:
            with pytest.raises(LinkLost, match="in time"):
                await link.call(MetadataRequest(), 0, MetadataResponse, 0.05)


async def test_nobody_there_is_a_lost_link() -> None:
    [port] = free_ports(1)
    with pytest.raises(LinkLost, match=f"port {port}"):
        await Link.open(("127.0.0.1", port), "c")


async def test_links_that_are_closed_twice_do_not_mind() -> None:
    async with open_fake_cluster() as server:
        link = await Link.open(address(server), "c")
        link.close()
        link.close()
        with pytest.raises(LinkLost):
            await link.send(MetadataRequest(), 0, 5)
    await trio.lowlevel.checkpoint()


def test_no_port_is_given_twice() -> None:
    first, second = free_ports(4), free_ports(4)
    assert len(first) == len(second) == 4
    assert not set(first) & set(second)
