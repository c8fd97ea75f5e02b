"""kproxy's own requests to a broker: one at a time over one connection."""

from collections import deque
from collections.abc import Callable
from functools import partial
from math import inf
from typing import Any, Protocol, TypeVar

import trio

from kproxy import __version__
from kproxy.budget import MESSAGE_BYTE_STEPS, RequestBudget
from kproxy.codec._generated.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kproxy.codec.frame import FrameSplitter
from kproxy.codec.header import encode_request, response_header_size
from kproxy.codec.messages import ErrorCode, Message
from kproxy.codec.version_choice import ANY, VersionRange, choose_version
from kproxy.errors import RemoteProtocolError
from kproxy.net.brokers.response_room import ResponseRoom
from kproxy.net.long_work import done
from kproxy.net.network import ByteIO, Network
from kproxy.proxy.releases import release_of
from kproxy.proxy.routing import Address

#: Of all connections of kproxy's own.
READ_BYTES = 65_536
#: The longest response before it is known that a broker answers, and one to be used: it has said its versions, and its
#: cluster's brokers at most.
LARGEST_UNVERIFIED = 1 << 20
#: API keys, features and tagged fields that it may name: brokers have about 100.
_MOST_VERSIONS = 2_000
_PREFIX = 4
CLIENT_ID = "kproxy"
_ASKED_FIRST = 3
#: How a listener of TLS ends a connection that speaks none (RFC 8446, 6).
_TLS_ALERT = b"\x15\x03"
_NOT_KAFKA = "is no Kafka broker: is it another port?"
_WANTS_LOGIN = "; does it want SASL, or another login? See upstream.security.protocol"


M = TypeVar("M", bound=Message)


def as_it_is(request: Any, version: int) -> None:
    """All versions can say it."""


class Caller(Protocol):
    """A connection that answers requests."""

    async def call(
        self,
        request: Message,
        answer: type[M],
        versions: VersionRange = ANY,
        *,
        extra_ms: int = 0,
        trim: Callable[[Any, int], None] = as_it_is,
    ) -> M:
        """The response to a request, at the newest of ``versions`` that the broker serves.

        The broker may take ``extra_ms`` longer than usual. ``trim`` takes out of the request what the version that was
        chosen cannot say. NoCommonVersion: nothing was sent. OSError, other RemoteProtocolErrors: the outcome of the
        request is open, and the connection is closed.
        """


class BrokerClient:
    """A connection of kproxy's own. A failure or cancellation of a call closes it."""

    def __init__(self, io: ByteIO, address: Address, timeout_ms: int, room: ResponseRoom) -> None:
        """``timeout_ms`` is added to the time that a call may take by itself. ``room``: for its responses."""
        self._room = room
        self._io = io
        self._address = address
        self._timeout_ms = timeout_ms
        self._splitter = FrameSplitter(LARGEST_UNVERIFIED)
        self._correlation_id = 0
        self._answers = 0
        self._frames: deque[bytearray] = deque()
        #: Since when a response is late, by trio's clock. In the future while the broker may take its time; inf: none.
        self.owed_since = inf
        #: What the broker serves, by API key.
        self.versions: dict[int, VersionRange] = {}
        #: The release that it is most like, and its finalized features (KIP-584).
        self.release = ""
        self.features: dict[str, int] = {}
        #: All that it answered to ApiVersions.
        self.said = ApiVersionsResponse()

    @classmethod
    async def open(
        cls,
        network: Network,
        address: Address,
        connect_timeout_ms: int,
        timeout_ms: int,
        room: ResponseRoom | None = None,
    ) -> "BrokerClient":
        """Connects and asks for the broker's versions. ``room``: None for one of its own."""
        io = await network.connect(address.host, address.port, connect_timeout_ms)
        return await cls.over(io, address, timeout_ms, room)

    @classmethod
    async def over(
        cls, io: ByteIO, address: Address, timeout_ms: int, room: ResponseRoom | None = None
    ) -> "BrokerClient":
        """Takes over a connection and asks for the broker's versions; if that fails it is closed."""
        client = cls(io, address, timeout_ms, room or ResponseRoom())
        try:
            await client._negotiate()
        except BaseException:
            client.close()
            raise
        return client

    @property
    def closed(self) -> bool:
        """Whether it can't be used any more."""
        return self._io.closed

    @property
    def peer_closed(self) -> bool:
        """Whether the broker has ended the connection, as far as this host knows."""
        return self._io.peer_closed()

    def verified(self) -> None:
        """Takes responses as long as its room allows from now on: the broker is one to be used."""
        self._splitter.max_frame_bytes = self._room.largest

    async def _negotiate(self) -> None:
        request = ApiVersionsRequest(client_software_name="kproxy", client_software_version=__version__)
        answer = await self._exchange(request, _ASKED_FIRST)
        response = self._api_versions(answer, _ASKED_FIRST)
        if response.error_code == ErrorCode.UNSUPPORTED_VERSION:
            response = self._api_versions(await self._exchange(ApiVersionsRequest(), 0), 0)
        if response.error_code:
            raise RemoteProtocolError(f"{self._address} answered ApiVersions with error {response.error_code}")
        self.said = response
        self.versions = {row.api_key: (row.min_version, row.max_version) for row in response.api_keys}
        self.features = {row.name: row.max_version_level for row in response.finalized_features}
        self.release = release_of(self.versions, {row.name: row.max_version for row in response.supported_features})

    @staticmethod
    def _api_versions(body: memoryview, version: int) -> ApiVersionsResponse:
        if int.from_bytes(body[:2], "big", signed=True) == ErrorCode.UNSUPPORTED_VERSION:
            version = 0  # a broker that doesn't know the version answers in the oldest shape (KIP-511)
        return ApiVersionsResponse.decode(body, version, RequestBudget(_MOST_VERSIONS, 0, 0))

    async def call(
        self,
        request: Message,
        answer: type[M],
        versions: VersionRange = ANY,
        *,
        extra_ms: int = 0,
        trim: Callable[[Any, int], None] = as_it_is,
    ) -> M:
        """Call as ``Caller`` does; one call at a time."""
        version = choose_version(self.versions, request, versions)
        trim(request, version)
        if self._io.closed:
            raise OSError(f"connection to {self._address} is closed")
        try:
            body = await self._exchange(request, version, extra_ms)
            decode = partial(answer.decode, body, version, self._room.decoding())
            return await done(len(body) * MESSAGE_BYTE_STEPS, decode)
        except BaseException:
            self.close()
            raise
        finally:
            self._room.release(self)

    async def _exchange(self, request: Message, version: int, extra_ms: int = 0) -> memoryview:
        self._correlation_id += 1
        self.owed_since = trio.current_time() + extra_ms / 1000
        try:
            with trio.fail_after((self._timeout_ms + extra_ms) / 1000):
                await self._io.send_all([encode_request(request, version, self._correlation_id, CLIENT_ID)])
                frame = memoryview(await self._frame())[_PREFIX:]
        except trio.ClosedResourceError as error:
            raise OSError(f"connection to {self._address} was closed") from error
        except ConnectionError as error:
            raise OSError(f"{self._address} reset the connection{self._hint()}") from error
        except trio.TooSlowError as error:
            raise OSError(f"{self._address} did not answer in {self._timeout_ms + extra_ms} ms") from error
        if int.from_bytes(frame[:4], "big", signed=True) != self._correlation_id:
            raise RemoteProtocolError(f"{self._address} answered another request")
        self.owed_since = inf
        return frame[response_header_size(request.API_KEY, version, frame) :]

    async def _frame(self) -> bytearray:
        if self._frames:
            return self._frames.popleft()
        buffer = memoryview(bytearray(READ_BYTES))
        while True:
            count = self._io.receive_now([buffer])
            if count is None:
                await self._io.readable()
                continue
            if count == 0:
                raise OSError(f"{self._address} closed the connection{self._hint()}")
            try:
                frames = self._splitter.feed(buffer[:count])
            except RemoteProtocolError:
                if self._answers:
                    raise
                is_tls = buffer[:2] == _TLS_ALERT
                why = (
                    "speaks TLS: see upstream.security.protocol"
                    if is_tls
                    else "is no Kafka broker: is it another port?"
                )
                raise RemoteProtocolError(f"{self._address} {why}") from None
            if frames:
                self._answers += 1
                self._frames.extend(frames)
                return self._frames.popleft()
            await self._room.admit(self, self._splitter.held)

    def _hint(self) -> str:
        """The reason for which brokers hang up that early: the port is one of another protocol."""
        hints = ("; is it a port of TLS? See upstream.security.protocol", _WANTS_LOGIN)
        return hints[self._answers] if self._answers < len(hints) else ""

    def close(self) -> None:
        """Closes the connection."""
        self._io.close()
