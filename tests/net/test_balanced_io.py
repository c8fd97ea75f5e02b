"""Clients through a load balancer that names them (PROXY protocol): who they are, and that nobody else is believed."""

import struct
from pathlib import Path

import pytest
import structlog
import trio
import trio.lowlevel

from kproxy.codec._generated.api_versions import ApiVersionsRequest
from kproxy.codec._generated.produce import ProduceRequest
from kproxy.codec.messages import ApiKey
from kproxy.net.tls_context import TlsFiles, client_context
from kproxy.testing.fake_broker import CloseAfter
from tests.net.certificates import Authority
from tests.net.harness import FrameClient, Proxied, eventually, metadata, proxied, values_in
from tests.net.retrying import batch, end, request

pytestmark = pytest.mark.idle_clock

HOSTS = {"proxy_protocol_hosts": ("localhost",)}
SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"


def line(client: str) -> bytes:
    return f"PROXY TCP4 {client} 198.51.100.9 50123 9092\r\n".encode()


def binary(client: str) -> bytes:
    addresses = bytes(map(int, client.split("."))) + bytes((198, 51, 100, 9)) + struct.pack(">HH", 50_123, 9092)
    return SIGNATURE + struct.pack(">BBH", 0x21, 0x11, len(addresses) + 7) + addresses + b"\x03\0\x04abcd"


async def client_of(proxy: Proxied, header: bytes, port: int | None = None) -> FrameClient:
    stream = await trio.open_tcp_stream("127.0.0.1", port or proxy.port)
    await stream.send_all(header)
    return FrameClient(stream, "test")


async def write(client: FrameClient, what: ProduceRequest) -> int:
    answer = await client.call(what, 3)
    return int(answer.responses[0].partition_responses[0].error_code)


def seen(proxy: Proxied) -> list[tuple[str, str]]:
    return [(each.client.peer_host, each.client.peer) for each in proxy.server.connections]


@pytest.mark.parametrize("header", [line("192.0.2.7"), binary("192.0.2.7")])
async def test_a_client_is_who_the_balancer_says(header: bytes) -> None:
    async with proxied(**HOSTS) as proxy, await client_of(proxy, header) as client:
        proxy.brokers.create_topic("t")
        told = await client.call(metadata("t"), 4)
        assert seen(proxy) == [("192.0.2.7", "192.0.2.7:50123")]
        assert {row.host for row in told.brokers} == {"198.51.100.9"}  # where the client reached the balancer


async def test_a_header_may_come_in_pieces_and_with_the_first_request() -> None:
    async with proxied(**HOSTS) as proxy:
        client = await client_of(proxy, b"")
        async with client:
            for byte in binary("192.0.2.7"):
                await client.stream.send_all(bytes([byte]))
                await trio.lowlevel.checkpoint()
            assert (await client.call(ApiVersionsRequest(), 0)).error_code == 0
        whole = await client_of(proxy, b"")
        async with whole:
            await whole.stream.send_all(line("192.0.2.8") + whole.encode(ApiVersionsRequest(), 0))
            assert (await whole.receive()).error_code == 0


@pytest.mark.parametrize("header", [b"PROXY UNKNOWN\r\n", SIGNATURE + b"\x20\0\0\0"])
async def test_a_balancer_may_speak_for_itself(header: bytes) -> None:
    async with proxied(**HOSTS) as proxy, await client_of(proxy, header) as client:
        assert (await client.call(ApiVersionsRequest(), 0)).error_code == 0
        assert seen(proxy)[0][0] == "127.0.0.1"


@pytest.mark.parametrize("start", [b"\0\0\0\x20\0\x12\0\0\0\0\0\1", b"PROXY TCP9 a b c d\r\n", b"PROXY " + b"x" * 200])
async def test_a_balancer_that_names_nobody_is_refused(start: bytes) -> None:
    with structlog.testing.capture_logs() as lines:
        async with proxied(**HOSTS) as proxy, await client_of(proxy, start) as client:
            assert await client.ended()
            assert proxy.stats.clients.connections_refused == {"proxy_protocol": 1}
            await eventually(lambda: proxy.stats.clients.connections_open == 0)
    assert [each["log_level"] for each in lines if "did not name" in each["event"]] == ["warning"]


async def test_a_header_that_never_ends_is_refused_and_a_health_check_is_not_told() -> None:
    async with proxied(frame_timeout_ms=50, **HOSTS) as proxy:
        async with await client_of(proxy, b"PROXY TCP4 ") as client:
            assert await client.ended()
        assert proxy.stats.clients.connections_refused == {"proxy_protocol": 1}
        await (await trio.open_tcp_stream("127.0.0.1", proxy.port)).aclose()
        await eventually(lambda: proxy.stats.clients.connections_open == 0)
        assert proxy.stats.clients.connections_refused == {"proxy_protocol": 1}


async def test_other_hosts_are_not_believed() -> None:
    async with proxied(proxy_protocol_hosts=("10.*",)) as proxy:
        async with await client_of(proxy, line("192.0.2.7")) as liar:
            assert await liar.ended()
        async with await client_of(proxy, b"") as client:
            assert (await client.call(ApiVersionsRequest(), 0)).error_code == 0
            assert seen(proxy)[0][0] == "127.0.0.1"


async def test_limits_for_an_address_are_those_of_the_client() -> None:
    async with proxied(max_connections_per_ip=1, **HOSTS) as proxy:
        async with await client_of(proxy, line("192.0.2.7")) as one, await client_of(proxy, line("192.0.2.8")) as two:
            for client in (one, two):
                assert (await client.call(ApiVersionsRequest(), 0)).error_code == 0
            async with await client_of(proxy, line("192.0.2.7")) as third:
                assert await third.ended()
        assert proxy.stats.clients.connections_refused == {"max_connections_per_ip": 1}


@pytest.mark.parametrize(
    ("options", "second", "written"),
    [
        (HOSTS, "192.0.2.7", [b"a"]),
        (HOSTS, "192.0.2.8", [b"a", b"a"]),  # another producer, for all that is known
        (HOSTS | {"identity_by": "client.id"}, "192.0.2.8", [b"a"]),
    ],
)
async def test_a_retry_is_recognised_by_the_client_s_address(
    options: dict[str, object], second: str, written: list[bytes]
) -> None:
    async with proxied(**options) as proxy:
        proxy.brokers.create_topic("t")
        proxy.brokers.control(ApiKey.PRODUCE, lambda _: CloseAfter(), times=1)
        async with await client_of(proxy, line("192.0.2.7"), proxy.cluster.map.brokers[1].port) as client:
            await client.send(request(batch(b"a")), 3)
            await eventually(lambda: values_in(proxy.brokers, "t") == [b"a"])
            await end(client, reset=True)
        async with await client_of(proxy, line(second), proxy.cluster.map.brokers[1].port) as client:
            assert await write(client, request(batch(b"a"))) == 0
        assert values_in(proxy.brokers, "t") == written


async def test_the_header_comes_before_tls(tmp_path: Path) -> None:
    files: TlsFiles = Authority(tmp_path).issue("localhost")
    options = {"ssl_certificate_location": files.certificate, "ssl_key_location": files.key}
    async with proxied(**HOSTS, **options) as proxy:
        plain = await trio.open_tcp_stream("127.0.0.1", proxy.port)
        await plain.send_all(binary("192.0.2.7"))
        context = client_context(files, checks_name=True)
        stream = trio.SSLStream(plain, context, server_hostname="localhost", https_compatible=True)
        async with FrameClient(stream, "test") as client:
            assert (await client.call(ApiVersionsRequest(), 0)).error_code == 0
            assert seen(proxy) == [("192.0.2.7", "192.0.2.7:50123")]
