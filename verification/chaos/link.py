"""One connection of a client that is as simple as clients once were: frames over TCP, answers in order."""

import struct
from types import TracebackType
from typing import Final, Self, TypeVar

import trio

from kproxy.budget import unbounded
from kproxy.codec._generated.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from kproxy.codec.header import encode_request, response_header_size
from kproxy.codec.messages import Message

Address = tuple[str, int]
_SIZE: Final = struct.Struct(">i")
_CONNECT_SECONDS: Final = 5.0
_MessageT = TypeVar("_MessageT", bound=Message)


class LinkLost(OSError):
    """The connection cannot be made, has ended, or did not answer in time."""


class Link:
    """A connection to one broker, or to its replacement. All methods raise ``LinkLost``."""

    def __init__(self, stream: trio.SocketStream, client_id: str) -> None:
        self._stream = stream
        self._client_id = client_id
        self._correlation_id = 0
        self._rest = bytearray()

    @classmethod
    async def open(cls, address: Address, client_id: str) -> Self:
        """Connect, in 5 s at most."""
        try:
            with trio.fail_after(_CONNECT_SECONDS):
                stream = await trio.open_tcp_stream(*address)
        except (OSError, trio.TooSlowError) as error:
            raise LinkLost(f"cannot connect to port {address[1]}: {error}") from error
        return cls(stream, client_id)

    async def call(self, request: Message, version: int, answer: type[_MessageT], seconds: float) -> _MessageT:
        """Send a request and return its response."""
        await self.send(request, version, seconds)
        return await self.receive(request, version, answer, seconds)

    async def send(self, request: Message, version: int, seconds: float) -> None:
        """Send a request."""
        self._correlation_id += 1
        data = encode_request(request, version, self._correlation_id, self._client_id)
        try:
            with trio.fail_after(seconds):
                await self._stream.send_all(data)
        except (trio.BrokenResourceError, trio.ClosedResourceError, trio.TooSlowError) as error:
            raise LinkLost(f"cannot send: {type(error).__name__}") from error

    async def receive(self, request: Message, version: int, answer: type[_MessageT], seconds: float) -> _MessageT:
        """Return the response to the oldest request that has none yet."""
        try:
            with trio.fail_after(seconds):
                (size,) = _SIZE.unpack(await self._exactly(_SIZE.size))
                frame = await self._exactly(size)
        except trio.TooSlowError as error:
            raise LinkLost("no answer in time") from error
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            raise LinkLost("connection reset") from error
        return answer.decode(frame, version, unbounded(), response_header_size(request.API_KEY, version, frame))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; harmless when called again."""
        self._stream.socket.close()

    async def _exactly(self, size: int) -> bytes:
        while len(self._rest) < size:
            data = await self._stream.receive_some()
            if not data:
                raise LinkLost("connection closed")
            self._rest += data
        found = bytes(self._rest[:size])
        del self._rest[:size]
        return found


async def find_leaders(
    bootstrap: Address, client_id: str, topics: list[str], seconds: float
) -> dict[tuple[str, int], Address]:
    """Ask for the leader of each partition by Metadata v0, as all old clients do; those without one are left out.

    :raises LinkLost: no response.
    """
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic) for topic in topics])
    async with await Link.open(bootstrap, client_id) as link:
        answer = await link.call(request, 0, MetadataResponse, seconds)
    brokers = {broker.node_id: (broker.host, broker.port) for broker in answer.brokers}
    return {
        (topic.name or "", part.partition_index): brokers[part.leader_id]
        for topic in answer.topics
        for part in topic.partitions
        if part.leader_id in brokers
    }
