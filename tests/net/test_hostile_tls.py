"""Whatever comes to a TLS port in place of TLS: that connection ends, it is counted, and others are served."""

import random
import ssl
import warnings
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

import pytest
import trio
from structlog.testing import capture_logs

from kproxy.codec._generated.api_versions import ApiVersionsRequest
from kproxy.net.tls_context import silence_unreadable_names
from tests.net.certificates import Authority
from tests.net.harness import FrameClient, Proxied, eventually, proxied
from tests.net.test_tls_network import listening, tls_client

pytestmark = pytest.mark.idle_clock

_MUTATIONS = 60


def client_hello(version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3) -> bytes:
    """The first bytes of a client that speaks this version."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_ciphers("ALL:@SECLEVEL=0")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # 1.0 and 1.1 are what is wanted
        context.minimum_version = context.maximum_version = version
    out = ssl.MemoryBIO()
    with suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), out, server_hostname="localhost").do_handshake()
    return out.read()


def record(kind: int, body: bytes, claimed: int | None = None) -> bytes:
    """One TLS record, which may lie about its length."""
    return bytes([kind, 3, 3]) + (len(body) if claimed is None else claimed).to_bytes(2, "big") + body


HELLO = client_hello()
NO_TLS = {
    "HTTP": b"POST /v1/transactions HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "SSH": b"SSH-2.0-OpenSSH_9.6\r\n",
    "Kafka in the clear": b"\0\0\0\x0a\0\x12\0\0\0\0\0\1\xff\xff",
    "SSL 2": bytes.fromhex("802e0100020015000000100100800200800300800400800500800600400700c0") + bytes(16),
    "a record that is too long": record(22, bytes(1000), 0xFFFF) + bytes(70_000),
    "data before the handshake": record(23, bytes(64)),
    "an alert": record(21, bytes([2, 40])),
    "a heartbeat": record(24, b"\1\x40\0" + bytes(16)),
    "no record type": record(99, bytes(64)),
    "a hello of no length": record(22, b"\1\0\0\0"),
    "a hello that claims 16 MB": record(22, b"\1\xff\xff\xff" + bytes(1000)) * 70,
    "an answer in place of a question": record(22, b"\2" + HELLO[6:]),
    "two hellos": HELLO + HELLO,
    "zeros": bytes(4096),
}


@asynccontextmanager
async def secured(
    directory: Path, max_idle_ms: int = 600_000, **options: int
) -> AsyncIterator[tuple[Proxied, Authority]]:
    """A kproxy with TLS; at the end it still serves others."""
    authority = Authority(directory)
    files = authority.issue("localhost")
    with silence_unreadable_names():
        async with proxied(**listening(files), connections_max_idle_ms=max_idle_ms, **options) as proxy:
            yield proxy, authority
            await eventually(lambda: not proxy.server.connections)
            async with await tls_client(proxy.port, files) as client:
                assert (await client.call(ApiVersionsRequest(), 0)).error_code == 0


async def sent(proxy: Proxied, data: bytes) -> FrameClient:
    client = await proxy.client()
    with suppress(trio.BrokenResourceError):  # ended before all was read
        await client.stream.send_all(data)
    return client


async def answered_to_the_end(client: FrameClient) -> bytes:
    """All that kproxy said before it ended the connection."""
    said = b""
    with suppress(trio.BrokenResourceError), trio.fail_after(120):
        async for part in client.stream:
            said += part
    return said


@pytest.mark.parametrize("data", NO_TLS.values(), ids=NO_TLS)
async def test_what_is_no_tls_ends_its_connection_and_is_counted(tmp_path: Path, data: bytes) -> None:
    async with secured(tmp_path) as (proxy, _), await sent(proxy, data) as client:
        await answered_to_the_end(client)
        await eventually(lambda: proxy.stats.clients.connections_refused == {"tls_handshake": 1})
        assert proxy.stats.upstream.connections_open == 0


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1], ids=["1.0", "1.1"])
async def test_versions_that_are_broken_get_an_alert(tmp_path: Path, version: ssl.TLSVersion) -> None:
    async with secured(tmp_path) as (proxy, _), await sent(proxy, client_hello(version)) as client:
        assert (await answered_to_the_end(client))[-2:] == bytes([2, 70])  # fatal, protocol_version
        await eventually(lambda: proxy.stats.clients.connections_refused == {"tls_handshake": 1})


async def test_hellos_with_damage_anywhere(tmp_path: Path) -> None:
    """Some damage does no harm to a hello: then the client would have to continue, and has not."""
    chance = random.Random(7)
    async with secured(tmp_path) as (proxy, _):
        for _ in range(_MUTATIONS):
            damaged = bytearray(HELLO)
            for _ in range(chance.randint(1, 8)):
                damaged[chance.randrange(len(damaged))] = chance.randrange(256)
            async with await sent(proxy, bytes(damaged)):
                pass
        await eventually(lambda: not proxy.server.connections)
        assert proxy.stats.clients.connections_refused["tls_handshake"] > 0


async def test_a_hello_that_drips_is_ended_after_its_time_out(tmp_path: Path) -> None:
    async with secured(tmp_path, max_idle_ms=500) as (proxy, _), await proxy.client() as client:
        await client.stream.send_all(HELLO[:-1])
        assert await answered_to_the_end(client) == b""


async def test_half_handshakes_end_after_their_own_time(tmp_path: Path) -> None:
    async with secured(tmp_path, ssl_handshake_timeout_ms=300) as (proxy, _), AsyncExitStack() as stack:
        for data in [HELLO, HELLO[:50], b""] * 10:
            await stack.enter_async_context(await sent(proxy, data))
        await eventually(lambda: proxy.stats.refused.refusals == {"tls_handshake": 30})
        await eventually(lambda: not proxy.server.connections)


async def test_a_finished_handshake_has_no_time_limit(tmp_path: Path) -> None:
    async with (
        secured(tmp_path, ssl_handshake_timeout_ms=200) as (proxy, authority),
        await tls_client(proxy.port, authority.issue("localhost")) as client,
    ):
        assert (await client.call(ApiVersionsRequest(), 0)).error_code == 0
        await trio.sleep(0.5)
        assert (await client.call(ApiVersionsRequest(), 0)).error_code == 0


async def test_many_failed_handshakes_are_a_few_lines_of_log(tmp_path: Path) -> None:
    async with secured(tmp_path) as (proxy, _):
        with capture_logs() as lines:
            for _ in range(100):
                async with await sent(proxy, NO_TLS["HTTP"]) as client:
                    await answered_to_the_end(client)
            await eventually(lambda: proxy.stats.clients.connections_refused == {"tls_handshake": 100})
        assert len([line for line in lines if "TLS" in line["event"]]) == 21


async def test_damage_after_the_handshake_ends_that_connection_alone(tmp_path: Path) -> None:
    async with secured(tmp_path) as (proxy, authority):
        files = authority.issue("localhost")
        async with await tls_client(proxy.port, files) as other, await tls_client(proxy.port, files) as client:
            assert (await client.call(ApiVersionsRequest(), 0)).error_code == 0
            assert isinstance(client.stream, trio.SSLStream)
            await client.stream.transport_stream.send_all(record(23, bytes(200)))
            assert await client.ended()
            assert (await other.call(ApiVersionsRequest(), 0)).error_code == 0
