"""Listeners: which ports brokers get, who may connect, and how serving ends."""

import socket
from contextlib import ExitStack, closing

import pytest
import trio

from kproxy.codec._generated.api_versions import ApiVersionsRequest
from kproxy.codec._generated.find_coordinator import FindCoordinatorRequest
from kproxy.codec.messages import ApiKey, ErrorCode
from kproxy.config import Address, Config, ExitCode, StartupError
from kproxy.net.brokers.cluster import Cluster
from kproxy.net.server import Server
from kproxy.net.socket_network import SocketNetwork
from kproxy.proxy.client_stats import ClientStats
from kproxy.proxy.routing import ClusterMap
from kproxy.proxy.stats import Stats
from kproxy.proxy.upstream_stats import UpstreamStats
from kproxy.testing.fake_broker import Delay
from kproxy.testing.ports import free_ports
from tests.net.harness import FrameClient, errors_of, eventually, fetch, metadata, produce, proxied, values_in


async def test_a_broker_has_the_port_that_its_id_decides() -> None:
    ports = free_ports(5)
    async with proxied(2, broker_ports=ports) as proxy:
        assert {node: broker.port for node, broker in proxy.cluster.map.brokers.items()} == {
            1: ports[1],
            2: ports[2],
        }


async def test_a_port_in_use_is_skipped() -> None:
    ports = free_ports(3)
    with closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", ports[1]))
        taken.listen()
        async with proxied(1, broker_ports=ports) as proxy:
            assert proxy.cluster.map.brokers[1].port == ports[2]
            async with await proxy.client(1) as client:
                assert (await client.call(ApiVersionsRequest(), 0)).error_code == 0


async def test_a_client_that_means_another_broker_than_its_ports_has_to_bootstrap_again() -> None:
    """KIP-1242: ids are the brokers' own through kproxy, and each port stands for one broker."""
    async with proxied(2) as proxy:
        for node_id in (1, 2):
            async with await proxy.client(node_id) as client:
                cluster_id = (await client.call(metadata(), 4)).cluster_id
                for meant, error in (
                    ((cluster_id, node_id), ErrorCode.NONE),
                    ((cluster_id, 3 - node_id), ErrorCode.REBOOTSTRAP_REQUIRED),
                    (("another", node_id), ErrorCode.REBOOTSTRAP_REQUIRED),
                    ((cluster_id, -1), ErrorCode.INVALID_REQUEST),
                ):
                    told = await client.call(ApiVersionsRequest("kproxy", "1", *meant), 5)
                    assert (told.error_code, bool(told.api_keys)) == (error, not error)


async def test_a_broker_without_a_port_is_left_out_and_others_are_served() -> None:
    async with proxied(3, broker_ports=free_ports(2)) as proxy:
        proxy.brokers.create_topic("t", 3)
        async with await proxy.client() as client:
            for _ in range(3):
                response = await client.call(metadata("t"), 4)
                assert {row.node_id for row in response.brokers} == {1, 2}
                assert {row.port for row in response.brokers} <= {b.port for b in proxy.cluster.map.brokers.values()}
            groups = [f"group {number}" for number in range(20)]
            answers = [await client.call(FindCoordinatorRequest(key=group), 2) for group in groups]
        served = {(row.error_code, row.node_id) for row in answers}
        assert served == {(0, 1), (0, 2), (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1)}


async def test_a_new_broker_gets_a_port_before_a_client_hears_of_it() -> None:
    async with proxied(2) as proxy:
        del proxy.cluster.map.brokers[2]
        async with await proxy.client(1) as client:
            told = {row.node_id: row.port for row in (await client.call(metadata(), 1)).brokers}
        assert told == {node: broker.port for node, broker in proxy.cluster.map.brokers.items()}
        assert set(told) == {1, 2}


async def test_connections_beyond_the_limit_are_closed_at_once_and_room_is_found_again() -> None:
    async with proxied(max_connections=2) as proxy:
        async with await proxy.client() as one, await proxy.client() as two:
            for client in (one, two):
                assert (await client.call(ApiVersionsRequest(), 0)).error_code == 0
            async with await proxy.client(1) as third:
                assert await third.ended()
            assert proxy.stats.clients.connections_refused == {"max_connections": 1}
        await eventually(lambda: proxy.stats.clients.connections_open == 0)
        async with await proxy.client() as client:
            assert (await client.call(ApiVersionsRequest(), 0)).error_code == 0


async def test_of_many_that_come_at_once_no_more_than_the_limit_are_taken() -> None:
    async with proxied(max_connections=2) as proxy:
        for turn in range(1, 11):
            with ExitStack() as open_ones:
                # The system takes them before the listener's task runs at all.
                for _ in range(6):
                    open_ones.enter_context(closing(socket.create_connection(("127.0.0.1", proxy.port))))
                clients = proxy.stats.clients
                await eventually(lambda: seen(clients) == 6 * turn)  # noqa: B023
                assert clients.connections_refused == {"max_connections": 4 * turn}
            await eventually(lambda: proxy.stats.clients.connections_open == 0)


async def test_clients_that_are_there_have_files_for_their_brokers(monkeypatch: pytest.MonkeyPatch) -> None:
    async with proxied() as proxy, await proxy.client() as first:
        assert (await first.call(ApiVersionsRequest(), 0)).error_code == 0
        monkeypatch.setattr("kproxy.net.server.clients_for_files", lambda: 2)
        async with await proxy.client() as second, await proxy.client() as third:
            assert (await second.call(ApiVersionsRequest(), 0)).error_code == 0
            assert await third.ended()
        assert proxy.stats.clients.connections_refused == {"files": 1}
        assert proxy.stats.clients.connections_limit == 2


async def test_at_the_limit_on_files_a_connection_is_closed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async with proxied() as proxy, await proxy.client() as first:
        assert (await first.call(ApiVersionsRequest(), 0)).error_code == 0
        with monkeypatch.context() as short:
            short.setattr("kproxy.net.socket_network.may_open", lambda: 3)
            for _ in range(3):
                async with await proxy.client() as other:
                    assert await other.ended()
        assert proxy.stats.clients.connections_refused == {"files": 3}
        async with await proxy.client() as later:
            assert (await later.call(ApiVersionsRequest(), 0)).error_code == 0


def seen(stats: ClientStats) -> int:
    return stats.connections_accepted.get("bootstrap", 0) + sum(stats.connections_refused.values())


async def test_connections_are_counted_by_listener_and_by_software() -> None:
    async with proxied(2) as proxy:
        stats = proxy.stats
        async with await proxy.client() as one, await proxy.client(2) as two:
            await one.call(ApiVersionsRequest(), 0)
            await two.call(ApiVersionsRequest(client_software_name="sarama", client_software_version="1.45"), 3)
            assert stats.clients.connections == {"bootstrap": 1, "2": 1}
            assert stats.clients.software.open == {("unknown", ""): 1, ("sarama", "1.45"): 1}
        await eventually(lambda: not stats.clients.connections_open)
        assert stats.clients.connections_accepted == {"bootstrap": 1, "2": 1}
        assert not stats.clients.software.open


async def test_bytes_of_requests_and_answers_are_counted_by_api() -> None:
    async with proxied() as proxy, await proxy.client() as client:
        await client.call(ApiVersionsRequest(), 0)
        counted = proxy.stats.apis.requests[ApiKey.API_VERSIONS, 0]
        assert counted.bytes_in == proxy.stats.clients.bytes_in
        assert counted.bytes_out == proxy.stats.clients.bytes_out


async def test_the_delay_of_the_event_loop_is_measured() -> None:
    async with proxied() as proxy:
        await eventually(lambda: proxy.stats.process.loop_delays.count > 1)


async def test_one_address_may_hold_only_so_many_connections() -> None:
    async with proxied(max_connections_per_ip=2) as proxy:
        async with await proxy.client() as one, await proxy.client() as two:
            for client in (one, two):
                assert (await client.call(ApiVersionsRequest(), 0)).error_code == 0
            async with await proxy.client() as third:
                assert await third.ended()
            other = socket.create_connection(("127.0.0.1", proxy.port), source_address=("127.0.0.2", 0))
            async with FrameClient(trio.SocketStream(trio.socket.from_stdlib_socket(other)), "other") as neighbour:
                assert (await neighbour.call(ApiVersionsRequest(), 0)).error_code == 0
        await eventually(lambda: proxy.stats.clients.connections_open == 0)
        assert proxy.stats.clients.connections_refused == {"max_connections_per_ip": 1}
        async with await proxy.client() as client:
            assert (await client.call(ApiVersionsRequest(), 0)).error_code == 0


async def test_the_bootstrap_port_passes_over_a_broker_that_is_down() -> None:
    async with proxied(3) as proxy:
        proxy.fake.cluster.brokers[2].alive = True
        await proxy.fake.stop_broker(2)
        for _ in range(4):
            async with await proxy.client() as client:
                assert (await client.call(ApiVersionsRequest(), 0)).error_code == 0


async def test_a_bootstrap_port_in_use_is_reported() -> None:
    with closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        listen = Address("127.0.0.1", taken.getsockname()[1])
        config = Config(bootstrap_servers=(Address("127.0.0.1", 1),), listen=listen)
        async with trio.open_nursery() as nursery:
            cluster = Cluster(config, UpstreamStats(), ClusterMap(), SocketNetwork())
            with pytest.raises(StartupError) as error:
                await Server(config, Stats(), cluster, nursery).listen()
        assert error.value.exit_code == ExitCode.CANNOT_BIND
        assert str(listen.port) in str(error.value)


async def test_the_end_waits_for_what_was_taken_and_no_longer() -> None:
    async with proxied() as proxy:
        proxy.brokers.create_topic("t")
        proxy.brokers.control(ApiKey.PRODUCE, lambda _: Delay(before=0.1))
        async with await proxy.client(1) as client, await proxy.client(1) as reader, await proxy.client() as idle:
            assert (await idle.call(ApiVersionsRequest(), 0)).error_code == 0
            await reader.send(fetch("t", max_wait_ms=250), 11)
            await client.stream.send_all(b"".join(client.encode(produce("t", b"%d" % n), 8) for n in range(3)))
            await eventually(lambda: proxy.stats.clients.bytes_in > 400)
            with trio.fail_after(120):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(proxy.server.drain)
                    assert await idle.ended()
                    for _ in range(3):
                        assert errors_of(await client.receive()) == [0]
                    assert (await reader.receive()).error_code == 0
                    assert await client.ended()
                    assert await reader.ended()
            with pytest.raises(OSError):
                await proxy.client()
        assert values_in(proxy.brokers, "t") == [b"0", b"1", b"2"]
