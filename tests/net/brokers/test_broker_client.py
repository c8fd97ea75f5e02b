"""kproxy's own requests."""

import re
import struct
import threading
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Self

import pytest
import trio

from kproxy.budget import RequestBudget
from kproxy.codec._generated.api_versions import ApiVersionsResponse, ApiVersionsResponseApiVersion
from kproxy.codec._generated.metadata import MetadataRequest, MetadataResponse, MetadataResponseTopic
from kproxy.codec.header import encode_response
from kproxy.codec.messages import ApiKey, ErrorCode
from kproxy.codec.primitives import Buffer
from kproxy.errors import RemoteProtocolError
from kproxy.net.brokers.broker_client import LARGEST_UNVERIFIED, BrokerClient
from kproxy.net.socket_io import SocketIO
from kproxy.net.socket_network import SocketNetwork
from kproxy.proxy.routing import Address
from kproxy.testing.fake_broker import Answer, Close, Drop, FakeServer, open_fake_cluster

Broker = Callable[[bytes], bytes]


def address(fake: FakeServer) -> Address:
    return Address("127.0.0.1", fake.cluster.brokers[1].port)


async def test_it_asks_at_the_newest_version_that_both_know() -> None:
    async with open_fake_cluster() as fake:
        client = await BrokerClient.open(SocketNetwork(), address(fake), 1000, 1000)
        assert client.versions[ApiKey.FETCH] == (4, 18)
        answer = await client.call(MetadataRequest(topics=[]), MetadataResponse)
        assert isinstance(answer, MetadataResponse)
        assert [row.node_id for row in answer.brokers] == [1]
        client.close()
        with pytest.raises(OSError, match="closed"):
            await client.call(MetadataRequest(topics=[]), MetadataResponse)


@pytest.mark.parametrize("fault", [Drop(), Close()])
async def test_no_answer_closes_it_and_says_so(fault: Drop | Close) -> None:
    async with open_fake_cluster() as fake:
        client = await BrokerClient.open(SocketNetwork(), address(fake), 1000, 50)
        fake.cluster.control(ApiKey.METADATA, lambda _: fault)
        with pytest.raises(OSError, match=str(address(fake))):
            await client.call(MetadataRequest(topics=[]), MetadataResponse)
        assert client.closed


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (b"", "reset the connection; is it a port of TLS? See upstream.security.protocol"),
        (b"\x15\x03\x03\x00\x02\x02\x46", "speaks TLS: see upstream.security.protocol"),
        (b"HTTP/1.1 400 Bad Request\r\n", "is no Kafka broker: is it another port?"),
    ],
    ids=["reset", "TLS", "HTTP"],
)
async def test_a_first_answer_that_is_none_of_kafka_says_what_to_check(answer: bytes, text: str) -> None:
    (listener,) = await SocketNetwork().listen("127.0.0.1", 0, 8)
    async with trio.open_nursery() as nursery:

        async def serve() -> None:
            io = await listener.accept()
            await io.readable()
            if answer:
                read(io)
                await io.send_all([answer])
            io.close()  # what it has not read makes that a reset

        nursery.start_soon(serve)
        place = Address("127.0.0.1", listener.port)
        with pytest.raises((OSError, RemoteProtocolError), match=re.escape(f"{place} {text}")):
            await BrokerClient.open(SocketNetwork(), place, 30_000, 30_000)
    listener.close()


def read(io: SocketIO) -> None:
    assert io.receive_now([memoryview(bytearray(1000))])


async def test_one_that_is_closed_under_a_call_is_an_error_of_that_call() -> None:
    async with open_fake_cluster() as fake:
        client = await BrokerClient.open(SocketNetwork(), address(fake), 1000, 5000)
        fake.cluster.control(ApiKey.METADATA, lambda _: Drop())
        async with trio.open_nursery() as nursery:

            async def call() -> None:
                with pytest.raises(OSError, match="closed"):
                    await client.call(MetadataRequest(topics=[]), MetadataResponse)

            nursery.start_soon(call)
            await trio.sleep(0.05)
            client.close()


async def test_a_cancelled_call_closes_it() -> None:
    async with open_fake_cluster() as fake:
        client = await BrokerClient.open(SocketNetwork(), address(fake), 1000, 30_000)
        asked = trio.Event()

        def drop(_: object) -> Drop:
            asked.set()
            return Drop()

        fake.cluster.control(ApiKey.METADATA, drop)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.call, MetadataRequest(topics=[]), MetadataResponse)
            await asked.wait()
            nursery.cancel_scope.cancel()
        assert client.closed


async def test_nobody_there_is_an_os_error() -> None:
    with pytest.raises(OSError):
        await BrokerClient.open(SocketNetwork(), Address("127.0.0.1", 1), 1000, 1000)


async def against(broker: Broker, test: Callable[[Address], Awaitable[None]]) -> None:
    """Run a test against one that answers each frame by a function."""

    async def serve(stream: trio.SocketStream) -> None:
        async with stream:
            while data := await stream.receive_some():
                await stream.send_all(broker(data))

    async with trio.open_nursery() as nursery:
        (listener,) = await nursery.start(partial(trio.serve_tcp, serve, 0, host="127.0.0.1"))
        await test(Address("127.0.0.1", listener.socket.getsockname()[1]))
        nursery.cancel_scope.cancel()


def versions(frame: bytes, version: int, error: int = 0) -> bytes:
    row = ApiVersionsResponseApiVersion(ApiKey.METADATA, 0, 1)
    answer = ApiVersionsResponse(error_code=error, api_keys=[row])
    return encode_response(answer, version, int.from_bytes(frame[8:12], "big"))


async def test_an_old_broker_is_asked_for_its_versions_in_the_oldest_way() -> None:
    """KIP-511: it answers a version that it does not know in the shape of v0."""
    asked: list[int] = []

    def broker(frame: bytes) -> bytes:
        asked.append(frame[7])
        return versions(frame, 0, ErrorCode.UNSUPPORTED_VERSION if frame[7] else 0)

    async def test(place: Address) -> None:
        client = await BrokerClient.open(SocketNetwork(), place, 1000, 1000)
        assert client.versions == {ApiKey.METADATA: (0, 1)}
        client.close()

    await against(broker, test)
    assert asked == [3, 0]


@pytest.mark.parametrize(
    "broker",
    [
        lambda _: b"HTTP/1.1 400 Bad Request\r\n\r\n",
        lambda frame: b"\0\0\0\x06" + b"\0\0\0\x63" + b"\0\0",
        lambda frame: versions(frame, 3, ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
        lambda frame: b"\0\0\0\x06" + frame[8:12] + b"\0\0",
        lambda _: b"\0\0\0\x02\0\0",
    ],
)
async def test_what_is_no_kafka_broker_is_refused(broker: Broker) -> None:
    async def test(place: Address) -> None:
        with pytest.raises(RemoteProtocolError):
            await BrokerClient.open(SocketNetwork(), place, 1000, 500)

    with trio.fail_after(120):
        await against(broker, test)


@pytest.mark.parametrize(
    "answer",
    [
        lambda frame: struct.pack(">i", LARGEST_UNVERIFIED + 1) + frame[8:12],
        lambda frame: many_versions(frame, 100_000),
    ],
    ids=["bytes", "elements"],
)
async def test_a_first_answer_that_is_longer_than_a_brokers_is_not_taken(answer: Broker) -> None:
    """Once 30 MB of it were decoded: 590 MB, and 4 s in which nobody else was served."""

    async def test(place: Address) -> None:
        with pytest.raises(RemoteProtocolError):
            await BrokerClient.open(SocketNetwork(), place, 30_000, 30_000)

    await against(answer, test)


def many_versions(frame: bytes, count: int) -> bytes:
    answer = ApiVersionsResponse(api_keys=[ApiVersionsResponseApiVersion(ApiKey.METADATA, 0, 1)] * count)
    return encode_response(answer, 3, int.from_bytes(frame[8:12], "big"))


async def test_a_long_answer_is_taken_from_a_broker_that_is_verified_and_decoded_in_another_thread() -> None:
    threads = []

    class Response(MetadataResponse):
        @classmethod
        def _read(cls, buf: Buffer, pos: int, version: int, budget: RequestBudget) -> tuple[Self, int]:
            threads.append(threading.current_thread())
            return super()._read(buf, pos, version, budget)

    async with open_fake_cluster() as fake:
        topics = [MetadataResponseTopic(name="x" * 32_000)] * 40
        fake.cluster.control(ApiKey.METADATA, lambda _: Answer(MetadataResponse(topics=topics)))
        client = await BrokerClient.open(SocketNetwork(), address(fake), 30_000, 30_000)
        with pytest.raises(RemoteProtocolError):
            await client.call(MetadataRequest(topics=[]), Response)
        client = await BrokerClient.open(SocketNetwork(), address(fake), 30_000, 30_000)
        client.verified()
        assert len((await client.call(MetadataRequest(topics=[]), Response)).topics) == 40
        client.close()
    assert len(threads) == 1
    assert threads[0] is not threading.current_thread()
