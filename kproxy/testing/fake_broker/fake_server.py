"""The fake broker on the wire: frames in, frames out, over loopback sockets or in-memory streams.

A broker takes the requests of a connection one after another, as Kafka does: the next one is read when the last is
answered. What Kafka would not understand closes the connection, and nothing is said.
"""

import struct
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Final

import trio
import trio.testing

from kproxy.budget import RequestBudget
from kproxy.codec.header import decode_request_header, encode_response
from kproxy.codec.messages import ApiKey, request_class
from kproxy.errors import RemoteProtocolError
from kproxy.testing.fake_broker.apis import APIS
from kproxy.testing.fake_broker.apis.connection_apis import fallback
from kproxy.testing.fake_broker.apis.record_apis import identify_topics, name_topics
from kproxy.testing.fake_broker.controls import handle_with
from kproxy.testing.fake_broker.fake_api import Call, CloseConnection
from kproxy.testing.fake_broker.fake_cluster import Broker, ClusterConfig, FakeCluster
from kproxy.testing.fake_broker.markers import expire_transactions

_HEADER_START: Final = struct.Struct(">hhi")
_LENGTH: Final = struct.Struct(">i")
#: Array elements of one request: more would take too long to decode.
_MOST_ELEMENTS: Final = 200_000
_MEMORY_PORT: Final = 9092
_SERVED: Final = {key: api.advertised for key, api in APIS.items()}


def wall_clock() -> int:
    """Return the time of day in ms: the clock of a fake cluster outside simulations."""
    return time.time_ns() // 1_000_000


@dataclass(slots=True)
class FakeServer:
    """A running fake cluster: its state and the connections to it."""

    cluster: FakeCluster
    nursery: trio.Nursery
    listen: bool = True
    _scopes: dict[int, set[trio.CancelScope]] = field(default_factory=dict)
    """What ends with each broker: its listener and its connections."""

    @property
    def bootstrap(self) -> str:
        """``host:port`` of every broker, joined by commas."""
        return ",".join(f"{broker.host}:{broker.port}" for broker in self.cluster.brokers.values())

    async def start_broker(self, broker_id: int) -> None:
        """Bring a broker up, on the port it had before."""
        broker = self.cluster.brokers[broker_id]
        self._scopes.setdefault(broker_id, set())
        if self.listen:
            await self.nursery.start(self._listen, broker)
        self.cluster.broker_up(broker_id)

    async def stop_broker(self, broker_id: int) -> None:
        """Take a broker down: its port closes, its connections end, its partitions move."""
        self.cluster.broker_down(broker_id)
        for scope in self._scopes[broker_id]:
            scope.cancel()
        while self._scopes[broker_id]:
            await trio.lowlevel.checkpoint()

    async def connect(self, host: str, port: int) -> trio.abc.Stream:
        """Return the client's end of a new in-memory connection to the broker of that address.

        :raises ConnectionRefusedError: no live broker has the address.
        """
        await trio.lowlevel.checkpoint()
        for broker in self.cluster.brokers.values():
            if (broker.host, broker.port) == (host, port) and broker.alive:
                ours, theirs = trio.testing.memory_stream_pair()
                self.nursery.start_soon(self.serve, theirs, broker.node_id)
                return ours
        raise ConnectionRefusedError(f"no broker at {host}:{port}")

    async def serve(self, stream: trio.abc.Stream, broker_id: int, client_host: str = "127.0.0.1") -> None:
        """Serve one connection of a broker until it ends or the broker stops."""
        connection = self.cluster.count("connection") + 1
        with self._ending_with(broker_id):
            async with stream:
                with suppress(CloseConnection, RemoteProtocolError, trio.BrokenResourceError, trio.ClosedResourceError):
                    await self._serve_requests(stream, broker_id, connection, client_host)
        self.cluster.logins.forget(connection)

    @contextmanager
    def _ending_with(self, broker_id: int) -> Iterator[None]:
        """Run a block until the broker stops."""
        with trio.CancelScope() as scope:
            self._scopes[broker_id].add(scope)
            try:
                yield
            finally:
                self._scopes[broker_id].discard(scope)

    async def _listen(self, broker: Broker, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        listeners = await trio.open_tcp_listeners(broker.port, host=broker.host)
        broker.port = listeners[0].socket.getsockname()[1]

        async def accept(stream: trio.SocketStream) -> None:
            with suppress(OSError):
                await self.serve(stream, broker.node_id, stream.socket.getpeername()[0])

        with self._ending_with(broker.node_id):
            task_status.started()
            await trio.serve_listeners(accept, listeners, handler_nursery=self.nursery)

    async def _serve_requests(self, stream: trio.abc.Stream, broker_id: int, connection: int, client_host: str) -> None:
        buffer = bytearray()
        while True:
            frame = await _read_frame(stream, buffer, self.cluster.config.max_request_bytes)
            if frame is None:
                return
            answer = await self.answer(frame, broker_id, connection, client_host)
            if answer is not None:
                await stream.send_all(answer)

    async def answer(self, frame: bytes, broker_id: int, connection: int, client_host: str) -> bytes | None:
        """Return the framed answer to one request frame, or None when there is to be none.

        :raises CloseConnection: a version that is not served, or a fault.
        :raises RemoteProtocolError: no such request.
        """
        if len(frame) < _HEADER_START.size:
            raise CloseConnection
        key, version, correlation_id = _HEADER_START.unpack_from(frame)
        api = APIS.get(key)
        if api is None or not self.cluster.logins.admits(connection, key, self.cluster.clock()):
            raise CloseConnection
        if not api.versions[0] <= version <= api.versions[1]:
            if key != ApiKey.API_VERSIONS:
                raise CloseConnection
            return encode_response(fallback(), 0, correlation_id)
        header = decode_request_header(frame)
        request = request_class(key).decode(frame, version, RequestBudget(_MOST_ELEMENTS, 0, 0), header.size)
        expire_transactions(self.cluster)
        call = Call(self.cluster, broker_id, connection, client_host, header.client_id, version, request, _SERVED)
        name_topics(call)
        fault = await self.cluster.controls.fault_for(api.key, call)
        response = await handle_with(fault, api, call)
        identify_topics(call, response)
        return None if response is None else encode_response(response, version, correlation_id)


async def _read_frame(stream: trio.abc.Stream, buffer: bytearray, limit: int) -> bytes | None:
    """Return the next frame without its length, or None at the end of the stream; ``buffer`` keeps what is left over.

    :raises CloseConnection: a length that no request has.
    """
    size = _LENGTH.size
    known = False
    while not known or len(buffer) < size:
        if not known and len(buffer) >= _LENGTH.size:
            size, known = _LENGTH.unpack_from(buffer)[0] + _LENGTH.size, True
            if not _LENGTH.size <= size <= limit:
                raise CloseConnection
            continue
        data = await stream.receive_some(1 << 18)
        if not data:
            return None
        buffer += data
    frame = bytes(memoryview(buffer)[_LENGTH.size : size])
    del buffer[:size]
    return frame


@asynccontextmanager
async def open_fake_cluster(
    brokers: int = 1,
    *,
    clock: Callable[[], int] = wall_clock,
    config: ClusterConfig | None = None,
    host: str = "127.0.0.1",
    port: int = 0,
    listen: bool = True,
) -> AsyncIterator[FakeServer]:
    """Run a fake cluster for the length of an ``async with`` block.

    :param brokers: how many; node ids are 1 to ``brokers``.
    :param clock: the cluster's time in ms; give one that follows trio's clock to run on virtual time.
    :param port: the first broker's port, 0 for any; the others take any.
    :param listen: open loopback sockets; without, the brokers are called ``broker-<id>:9092`` and are reached by
        ``connect`` only.
    """
    cluster = FakeCluster(clock, config or ClusterConfig())
    async with trio.open_nursery() as nursery:
        server = FakeServer(cluster, nursery, listen)
        for node_id in range(1, brokers + 1):
            address = (host, port if node_id == 1 else 0) if listen else (f"broker-{node_id}", _MEMORY_PORT)
            cluster.brokers[node_id] = Broker(node_id, *address)
            await server.start_broker(node_id)
        try:
            yield server
        finally:
            nursery.cancel_scope.cancel()
