"""The memory that responses to kproxy's own requests hold together."""

import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest
import trio

from kproxy.budget import standalone
from kproxy.codec._generated.api_versions import ApiVersionsRequest, ApiVersionsResponse, ApiVersionsResponseApiVersion
from kproxy.codec._generated.metadata import MetadataRequest, MetadataResponse
from kproxy.codec.header import encode_response
from kproxy.codec.messages import ApiKey
from kproxy.errors import RemoteProtocolError
from kproxy.net.brokers.broker_client import BrokerClient
from kproxy.net.brokers.pipelined_client import PipelinedClient, reader_of, writer_of
from kproxy.net.brokers.response_room import ResponseRoom
from kproxy.net.end_of_turn import EndOfTurn
from kproxy.net.socket_network import SocketNetwork
from kproxy.proxy.routing import Address

MIB = 1 << 20


class SlowBroker:
    """Answers ApiVersions; sends the last part of its Metadata response when a test says so."""

    def __init__(self, port: int, nearly: trio.Event) -> None:
        self.address = Address("127.0.0.1", port)
        self.nearly = nearly
        #: Bytes of a response that it announces.
        self.length = 8 * MIB
        self.finish = trio.Event()

    async def serve(self, stream: trio.SocketStream) -> None:
        async with stream:
            with suppress(trio.BrokenResourceError):  # its client has had enough
                await self._answer(stream)

    async def _answer(self, stream: trio.SocketStream) -> None:
        head = await self._request(stream)
        versions = ApiVersionsResponse(api_keys=[ApiVersionsResponseApiVersion(ApiKey.METADATA, 0, 1)])
        await stream.send_all(encode_response(versions, 3, struct.unpack_from(">i", head, 4)[0]))
        await self._request(stream)
        await stream.send_all(struct.pack(">i", self.length))
        part = bytes(MIB // 4)
        for _ in range(4 * self.length // MIB - 1):
            await stream.send_all(part)
        self.nearly.set()
        await self.finish.wait()
        await stream.send_all(part)

    @staticmethod
    async def _request(stream: trio.SocketStream) -> bytes:
        data = b""
        while len(data) < 4 or len(data) < 4 + struct.unpack_from(">i", data)[0]:
            data += await stream.receive_some()
        return data[4:]


@asynccontextmanager
async def slow_broker(nearly: trio.Event | None = None) -> AsyncIterator[SlowBroker]:
    """``nearly``: is set when all but the last part was sent."""
    async with trio.open_nursery() as nursery:
        [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
        broker = SlowBroker(listener.socket.getsockname()[1], trio.Event() if nearly is None else nearly)
        nursery.start_soon(trio.serve_listeners, broker.serve, [listener])
        try:
            yield broker
        finally:
            nursery.cancel_scope.cancel()


async def ask(client: BrokerClient, ended: list[BaseException]) -> None:
    try:
        await client.call(MetadataRequest(topics=[]), MetadataResponse)
    except (OSError, RemoteProtocolError) as error:
        ended.append(error)


async def test_long_responses_are_read_one_by_one_where_they_are_too_much_together() -> None:
    room = ResponseRoom(8 * MIB, 16 * MIB)
    nearly = trio.Event()
    ended: list[BaseException] = []
    async with slow_broker(nearly) as one, slow_broker(nearly) as other, trio.open_nursery() as nursery:
        for broker in (one, other):
            client = await BrokerClient.open(SocketNetwork(), broker.address, 30_000, 30_000, room)
            client.verified()
            nursery.start_soon(ask, client, ended)
        with trio.fail_after(20):
            await nearly.wait()
        await trio.sleep(0.2)  # what is not held back comes meanwhile
        assert 2 * MIB < room.used < one.length + 3 * MIB
        one.finish.set()
        other.finish.set()
    assert len(ended) == 2
    assert all("answered another request" in str(error) for error in ended)
    assert room.used == 0


async def test_the_same_of_connections_with_many_requests_in_flight() -> None:
    room, nearly = ResponseRoom(8 * MIB, 16 * MIB), trio.Event()
    ended: list[object] = []
    async with slow_broker(nearly) as one, slow_broker(nearly) as other, trio.open_nursery() as nursery:
        for broker in (one, other):
            io = await SocketNetwork().connect(*broker.address, 30_000)
            versions = {ApiKey.API_VERSIONS: (3, 3)}
            client = PipelinedClient(io, broker.address, versions, 30_000, nursery, EndOfTurn(nursery), room)
            await client.call(ApiVersionsRequest(), ApiVersionsResponse)
            client.send(writer_of(MetadataRequest(topics=[])), 1, reader_of(MetadataResponse, standalone), ended.append)
        with trio.fail_after(20):
            await nearly.wait()
        await trio.sleep(0.2)  # what is not held back comes meanwhile
        assert 2 * MIB < room.used < one.length + 3 * MIB
        one.finish.set()
        other.finish.set()
    assert ended == [None, None]
    assert room.used == 0


async def test_one_that_waits_is_given_up_in_time_and_holds_nothing_then() -> None:
    room = ResponseRoom(8 * MIB, 16 * MIB)
    async with slow_broker() as broker:
        client = await BrokerClient.open(SocketNetwork(), broker.address, 30_000, 500, room)
        client.verified()
        with pytest.raises(OSError, match="did not answer in 500 ms"):
            await client.call(MetadataRequest(topics=[]), MetadataResponse)
    assert room.used == 0


async def test_one_that_is_longer_than_any_frame_may_be_is_refused_by_its_length() -> None:
    async with slow_broker() as broker:
        broker.length = 17 * MIB
        client = await BrokerClient.open(
            SocketNetwork(), broker.address, 30_000, 30_000, ResponseRoom(32 * MIB, 16 * MIB)
        )
        client.verified()
        with pytest.raises(RemoteProtocolError, match="at most 16777216 are allowed"):
            await client.call(MetadataRequest(topics=[]), MetadataResponse)


async def test_what_is_decoded_takes_no_more_than_half_of_the_memory() -> None:
    assert ResponseRoom(1 << 20).decoding().elements == 2048
    assert ResponseRoom(1 << 30).decoding().elements == 1 << 17
