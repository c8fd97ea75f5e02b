"""Bytes that are no requests, or too many: their connection ends, and all others are served all the same."""

import random
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import pytest
import trio

from kproxy.codec._generated.api_versions import ApiVersionsRequest
from kproxy.codec._generated.write_txn_markers import (
    WriteTxnMarkersRequest,
    WriteTxnMarkersRequestWritableTxnMarker,
    WriteTxnMarkersRequestWritableTxnMarkerTopic,
)
from kproxy.codec.header import encode_request
from kproxy.codec.messages import ApiKey, ErrorCode, request_class
from kproxy.testing.fake_broker.fake_cluster import Broker
from tests.net.harness import (
    PATIENCE,
    FrameClient,
    Proxied,
    eventually,
    metadata,
    produce,
    running,
    values_in,
)
from tests.net.witness import witnessed

INT32_MAX = 2**31 - 1
REQUEST = encode_request(metadata("t"), 4, 1, "x")
TLS_HELLO = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(501)


async def ends(proxy: Proxied, data: bytes) -> None:
    """A client that sends this, and no more, is hung up on."""
    async with await proxy.client() as client:
        with suppress(trio.BrokenResourceError):  # it may end before all is sent
            await client.stream.send_all(data)
        assert await client.ended()


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\nHost: kafka\r\n\r\n",
        TLS_HELLO,
        b"SSH-2.0-OpenSSH_9.2\r\n",
        struct.pack(">i", -1),
        struct.pack(">i", -(2**31)),
        struct.pack(">i", INT32_MAX),
        struct.pack(">i", 104_857_601),
        struct.pack(">i", 0),
        struct.pack(">ihhi", 8, 18, 0, 1),
        struct.pack(">ihhih", 10, 18, 0, 1, 2**15 - 1),
        REQUEST + struct.pack(">i", -2),
        b"\xff" * 300_000,
    ],
)
async def test_what_is_no_request_ends_its_connection(data: bytes) -> None:
    async with witnessed() as proxy:
        await ends(proxy, data)
        assert proxy.stats.refused.refusals == {"malformed": 1}


async def test_random_bytes_in_frames_of_the_right_length() -> None:
    noise = random.Random(20)
    async with witnessed() as proxy:
        for _ in range(60):
            frame = noise.randbytes(noise.randrange(400))
            if noise.random() < 0.7:
                frame = struct.pack(">hhi", noise.randrange(93), noise.randrange(14), 7) + frame
            async with await proxy.client() as client:
                await client.stream.send_all(struct.pack(">i", len(frame)) + frame)
                await client.stream.send_eof()
                assert await client.ended()


@pytest.mark.parametrize("tail", [b"\x7f\xff\xff\xff" * 8, b"\xff\xff\xff\xff\x07" * 8, b"\x7f" * 40, b"\x80" * 40])
async def test_counts_and_lengths_that_lie_in_each_api(tail: bytes) -> None:
    """Counts of 2^31-1, as INT32 and as a varint; strings longer than their request; a varint that never ends."""
    async with witnessed() as proxy:
        for key in proxy.cluster.map.brokers[1].versions or ():
            known = request_class(key)
            for version in {known.MIN_VERSION, known.MAX_VERSION}:
                head = struct.pack(">hhih", key, version, 1, -1) + (b"\0" if version >= known.FLEXIBLE_FROM else b"")
                async with await proxy.client() as client:
                    await client.stream.send_all(struct.pack(">i", len(head) + len(tail)) + head + tail)
                    await client.stream.send_eof()
                    assert await client.ended()


@pytest.mark.parametrize(("message", "version"), [(metadata("t"), 4), (produce("t", b"x"), 3), (produce("t", b"x"), 9)])
async def test_requests_cut_anywhere(message: object, version: int) -> None:
    whole = encode_request(message, version, 1, "x")  # type: ignore[arg-type]
    async with witnessed() as proxy:
        for size in range(4, len(whole) - 4):
            async with await proxy.client() as client:
                await client.stream.send_all(struct.pack(">i", size) + whole[4 : 4 + size])
                await client.stream.send_eof()
                assert await client.ended()
        assert values_in(proxy.brokers, "t") == []


@pytest.mark.parametrize(
    "key", [-1, 4, 5, 6, 7, 52, 53, 54, 56, 58, 59, 62, 63, 67, 70, 73, 81, 82, 93, 1000, 2**15 - 1]
)
async def test_unknown_apis_and_those_of_brokers_among_themselves_are_refused(key: int) -> None:
    async with witnessed() as proxy:
        await ends(proxy, struct.pack(">ihhih", 10, key, 0, 1, -1))


async def test_markers_of_clients_reach_no_broker() -> None:
    seen = []
    topic = WriteTxnMarkersRequestWritableTxnMarkerTopic("t", [0, 1])
    async with witnessed() as proxy:
        proxy.brokers.control(ApiKey.WRITE_TXN_MARKERS, seen.append)
        assert ApiKey.WRITE_TXN_MARKERS in (proxy.cluster.map.brokers[1].versions or ())
        for version in (0, 1, 2):
            markers = [WriteTxnMarkersRequestWritableTxnMarker(4000, 1, topics=[topic])]
            async with await proxy.client() as client:
                answer = await client.call(WriteTxnMarkersRequest(markers=markers), version)
            told = [row.error_code for row in answer.markers[0].topics[0].partitions]
            assert told == [ErrorCode.CLUSTER_AUTHORIZATION_FAILED] * 2
    assert seen == []


@pytest.mark.parametrize("version", [-1, -(2**15), 14, 99, 2**15 - 1])
async def test_versions_that_do_not_exist(version: int) -> None:
    async with witnessed() as proxy:
        await ends(proxy, struct.pack(">ihhih", 10, 0, version, 1, -1))


async def test_a_request_that_drips_is_ended_after_its_time_out() -> None:
    async with witnessed(frame_timeout_ms=150) as proxy, await proxy.client() as client:
        with pytest.raises(trio.BrokenResourceError):
            for place in range(len(REQUEST)):
                await client.stream.send_all(REQUEST[place : place + 1])
                await trio.sleep(0.05)
        assert proxy.stats.refused.refusals == {"slow_frame": 1}


async def test_dripping_does_not_put_off_the_end_of_a_frame_though_memory_is_short() -> None:
    async with witnessed(frame_timeout_ms=150, buffer_memory=65_536) as proxy, await proxy.client() as client:
        await client.stream.send_all(struct.pack(">i", 100_000) + bytes(60_000))
        with pytest.raises(trio.BrokenResourceError), trio.fail_after(PATIENCE):
            while True:
                await client.stream.send_all(b"\0")
                await trio.sleep(0.02)
        assert proxy.stats.refused.refusals == {"slow_frame": 1}


async def test_claims_of_long_frames_hold_next_to_nothing() -> None:
    async with witnessed() as proxy, trio.open_nursery() as nursery:
        clients: list[FrameClient] = []

        async def claim() -> None:
            client = await proxy.client()
            await client.stream.send_all(struct.pack(">i", 100 << 20) + b"x")
            clients.append(client)

        for _ in range(200):
            nursery.start_soon(claim)
        await eventually(lambda: len(clients) == 200 and proxy.stats.clients.buffered_bytes >= 200)
        assert proxy.stats.clients.buffered_bytes <= 200 * 2048
        for client in clients:
            await client.stream.aclose()


async def garbage(stream: trio.SocketStream) -> None:
    await stream.receive_some(1)
    await stream.send_all(b"HTTP/1.0 400 Bad Request\r\n\r\n")


async def negative_length(stream: trio.SocketStream) -> None:
    await stream.receive_some(1)
    await stream.send_all(struct.pack(">i", -5))


async def a_length_of_gigabytes(stream: trio.SocketStream) -> None:
    await stream.receive_some(1)
    await stream.send_all(struct.pack(">i", INT32_MAX) + bytes(1000))
    await stream.receive_some(1 << 20)


async def empty_frames(stream: trio.SocketStream) -> None:
    await stream.receive_some(1)
    await stream.send_all(bytes(4000))


async def counts_that_lie(stream: trio.SocketStream) -> None:
    start = await stream.receive_some(1 << 16)
    await stream.send_all(struct.pack(">i", 40) + bytes(start[8:12]) + b"\0\0" + b"\x7f\xff\xff\xff" * 8 + b"\0\0")


async def silence(stream: trio.SocketStream) -> None:
    while await stream.receive_some(1 << 16):
        pass


BROKERS = [garbage, negative_length, a_length_of_gigabytes, empty_frames, counts_that_lie, silence]


@asynccontextmanager
async def hostile_broker(behave: Callable[[trio.SocketStream], Awaitable[None]]) -> AsyncIterator[int]:
    """The port of something that is no broker."""

    async def handle(stream: trio.SocketStream) -> None:
        with suppress(trio.BrokenResourceError):
            await behave(stream)

    async with trio.open_nursery() as nursery:
        [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, handle, [listener])
        yield listener.socket.getsockname()[1]
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("behave", BROKERS)
@pytest.mark.idle_clock
async def test_a_broker_that_is_none_harms_only_the_clients_behind_its_port(
    behave: Callable[[trio.SocketStream], Awaitable[None]],
) -> None:
    async with hostile_broker(behave) as port, witnessed(upstream_request_timeout_ms=300) as proxy:
        proxy.brokers.brokers[2] = Broker(2, "127.0.0.1", port, alive=True)
        async with await proxy.client(1) as client:
            await client.call(metadata("t"), 4)
        async with await proxy.client(2) as client:
            await client.send(ApiVersionsRequest(), 0)
            assert await client.ended()
        assert proxy.stats.clients.buffered_bytes < 100_000


@pytest.mark.parametrize("behave", BROKERS)
@pytest.mark.idle_clock
async def test_to_bootstrap_from_what_is_no_broker_is_tried_on_and_holds_nothing(
    behave: Callable[[trio.SocketStream], Awaitable[None]],
) -> None:
    async with hostile_broker(behave) as port, running(f"127.0.0.1:{port}", upstream_request_timeout_ms=50) as proxy:
        await eventually(lambda: sum(proxy.stats.upstream.errors.values()) >= 3)
        assert not proxy.stats.upstream.ready
        async with await proxy.client() as client:
            await client.send(ApiVersionsRequest(), 0)
            assert await client.ended()
