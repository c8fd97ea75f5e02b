"""A client connection's own connection to the broker of its port: requests out, responses in."""

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

import structlog
import trio

from kproxy.budget import AT_ONCE_STEPS, FREE_BYTES, MESSAGE_BYTE_STEPS, TURN_FRAMES
from kproxy.codec.frame import FrameSplitter
from kproxy.errors import LocalProtocolError, RemoteProtocolError
from kproxy.net.connection_state import ConnectionEvent, ConnectionState
from kproxy.net.intake import Finished, Unreachable
from kproxy.net.network import ByteIO
from kproxy.net.shared import READ_BYTES, Shared
from kproxy.proxy.routing import Broker
from kproxy.proxy.session import DECODED_TIMES

if TYPE_CHECKING:
    from kproxy.net.connection import Connection

log = structlog.get_logger("kproxy.connection")

#: A broker that has not answered a batch for so long may hang.
_SUSPECT_SECONDS = 2.0
#: Responses longer than this go to the client while they come.
_STREAM_FROM = 32_768
LARGEST_FRAME = (1 << 31) - 1


class Upstream:
    """Connects when the session asks for it, and reconnects."""

    def __init__(self, connection: "Connection", shared: Shared, choose: Callable[[], Broker | None]) -> None:
        """``choose`` gives the broker to connect to."""
        self._connection = connection
        self._session = connection.session
        self._choose = choose
        self._cluster = shared.cluster
        self._stats, self._client_stats = shared.stats.upstream, shared.stats.clients
        self._budget = shared.budget
        self._buffer = shared.buffer
        self._wall, self._now = shared.wall, connection.now
        self._io: ByteIO | None = None
        self._broker: Broker | None = None
        self._answers = FrameSplitter(connection.config.buffer_memory)
        self._writing = False
        #: Bytes of the response that is decoded, and of what is made of it.
        self._at_work = 0
        #: Bytes of a response that goes to the client while it comes: those to come, and those that came.
        self._streaming = self._streamed = 0
        #: When the broker sent something last, or began to owe a response (trio's clock, seconds).
        self.answered_at = trio.current_time()

    @property
    def node_id(self) -> int:
        return -1 if self._broker is None else self._broker.node_id

    @property
    def held(self) -> int:
        """Bytes of an unfinished response, and of one that is decoded."""
        return self._answers.held + self._at_work

    def is_to(self, broker: Broker) -> bool:
        """Whether this is the broker of the client's port."""
        return self._broker is broker

    def check(self, now: float) -> None:
        """Ends a connection on which a batch has no response in time: it is sent again over another one.

        The cluster probes its broker before that. A response that kproxy has not read, because its client is slow or
        memory is short, is in time.
        """
        producer, io = self._session.producer, self._io
        limit_ms = self._connection.config.upstream_request_timeout_ms + producer.longest_timeout_ms
        limit, waited = limit_ms / 1000, now - self.answered_at
        if not producer.in_flight or waited <= min(limit, _SUSPECT_SECONDS) or io is None or io.pending():
            return
        if waited > _SUSPECT_SECONDS and self._broker is not None:
            self._cluster.suspect(self._broker.address)
        if waited > limit:
            self._cluster.count_error("timeout", self._broker)
            io.close()

    async def ask_versions(self) -> None:
        """Learns what the brokers serve, without a connection for the client yet. Finished if none says."""
        for _ in range(max(1, len(self._cluster.map.members))):
            broker = self._choose()
            if broker is None:
                break
            try:
                versions = await self._cluster.versions(broker)
            except (OSError, RemoteProtocolError):
                self._cluster.count_error("connect")
                self._cluster.refresh_soon()
                continue
            self._session.versions_known(versions, broker.said)
            return
        raise Finished("no broker says what it serves")

    async def connect(self) -> None:
        """Connects to the broker of the client's port. Unreachable if it is unavailable, or another Finished."""
        tried: list[Broker] = []
        if self._connection.state is ConnectionState.FORSAKEN:
            raise Finished("the connection on which the client had logged in at the broker has ended")
        while True:
            broker = self._choose()
            if broker is None or broker in tried:
                why = f"no connection to a broker; tried {[str(each.address) for each in tried]}"
                raise Unreachable(why) if self._broker is None else Finished(why)
            tried.append(broker)
            try:
                versions = await self._cluster.versions(broker)
                io = await self._cluster.connect_for(self._session.client.principal, broker)
                break
            except (OSError, RemoteProtocolError) as error:
                self._cluster.count_error("connect", broker, error)
                self._cluster.refresh_soon()
        self._io, self._broker = io, broker
        self._stats.connections_open += 1
        self._session.connected(versions, broker.node_id)
        nursery = self._connection.nursery
        assert nursery is not None
        nursery.start_soon(self._read, io)

    def close(self) -> None:
        """Ends the connection to the broker, if there is one."""
        self._answers.drop()
        self._drop()

    def _drop(self) -> None:
        if self._io is not None:
            self._io.close()
            self._io = None
            self._stats.connections_open -= 1

    async def _read(self, io: ByteIO) -> None:
        self._answers = splitter = FrameSplitter(self._connection.config.buffer_memory)
        try:
            while True:
                if self._budget.full:
                    await self._budget.admit(self._connection)
                count = io.receive_now([self._buffer])
                if count is None:
                    await io.readable()
                    continue
                if count == 0:
                    break
                self.answered_at = self._now()
                self._stats.bytes_in += count
                await self._data(splitter, count)
                if count < READ_BYTES:
                    await io.readable()
                elif io.should_yield():
                    await trio.lowlevel.checkpoint()
        except (OSError, trio.ClosedResourceError):
            pass
        except (RemoteProtocolError, LocalProtocolError) as error:
            self._cluster.count_error("protocol", self._broker)
            node_id = self._broker.node_id if self._broker else None
            log.warning("response of a broker cannot be used", broker=node_id, error=str(error))
            self._session.close()
        if self._io is io:
            await self._ended()

    async def _ended(self) -> None:
        self._drop()
        if self._streaming:
            self._session.close()
        if not self._session.idle:
            self._cluster.count_error("disconnected", self._broker)
        if self._broker is not None:
            self._broker.versions = None
        self._session.disconnected(trio.current_time() + self._wall)
        if self._connection.config.clients_log_in:
            self._connection.happens(ConnectionEvent.LOGIN_LOST)
            self._session.close()
        await self._connection.changed()

    async def _data(self, splitter: FrameSplitter, count: int) -> None:
        data = self._buffer[:count]
        if self._streaming or (not splitter.held and self._starts_stream(data)):
            data = await self._stream(data)
        if not data:
            return
        frames = deque(splitter.feed(data))
        came, several, left = bool(frames), len(frames) > 1, TURN_FRAMES
        while frames:
            if several and self._session.decodes():
                left -= 1
            if not left:
                await self._let_others_work(AT_ONCE_STEPS)
                left = TURN_FRAMES
            await self._take(frames.popleft(), self.answered_at + self._wall)
        if came:
            await self._connection.changed()
        else:
            self._connection.account()
        client = self._connection.client
        while not client.closed and len(self._session.to_client) > 0 and self._connection.writing_client:
            await self._connection.progressed()  # the client is slow: read no more from the broker meanwhile

    async def _take(self, frame: bytearray, now: float) -> None:
        if len(frame) > FREE_BYTES and (need := self._session.decoded_bytes(frame)):
            self._at_work = len(frame)
            self._connection.account()
            steps = need // DECODED_TIMES * MESSAGE_BYTE_STEPS
            if not self._budget.turns.fits(steps):
                await self._let_others_work(steps)
            if self._budget.full:
                await self._budget.admit(self._connection)
            self._at_work += need
            self._connection.account()  # before it is made
        try:
            work = self._session.long_work(frame)
            if work is not None:
                await self._budget.beside(work, self._connection.config.decompression_max_bytes)
                work = None  # it holds the records
            unknown = self._session.response(frame, now)
            if unknown:
                await self._cluster.learn(unknown)
                self._session.response(frame, now, learnt=True)
        finally:
            self._at_work = 0

    async def _let_others_work(self, steps: int) -> None:
        """Waits for a turn of the loop. The broker may be writing, so nothing here waits for it to read."""
        await self._connection.changed()
        await self._budget.turns.wait(steps)

    def _starts_stream(self, data: memoryview) -> bool:
        size = 4 + int.from_bytes(data[:4], "big", signed=True)
        if size <= max(_STREAM_FROM, len(data)) or len(data) < 8 or self._connection.writing_client:
            return False
        if not self._session.may_stream() or not self._session.is_next_answer(data):
            return False
        self._streaming, self._streamed = size, 0
        return True

    async def _stream(self, data: memoryview) -> memoryview:
        """Passes on what belongs to the response that goes to the client as it comes; returns the bytes after it."""
        part = data[: self._streaming]
        # when the client is slow others use the shared buffer meanwhile: keep what comes after the response
        rest = data[len(part) :]
        kept = memoryview(bytes(rest)) if rest else rest
        self._streaming -= len(part)
        self._streamed += len(part)
        client = self._connection.client
        if not client.closed:
            try:
                size = await client.send_shared(part)
                self._client_stats.bytes_out += size
                self._connection.written += size
            except (OSError, trio.ClosedResourceError):
                client.close()
        if not self._streaming:
            self._session.streamed(trio.current_time() + self._wall, self._streamed)
            await self._connection.changed()
        return kept

    def push(self) -> None:
        """Writes what the broker takes at once, and leaves the rest to a task of its own.

        The task that reads the broker's responses must not wait for the broker to read: that may be writing a long
        response first.
        """
        nursery = self._connection.nursery
        if nursery is not None and self.write():
            nursery.start_soon(self.flush)

    def write(self) -> bool:
        """Writes what the broker takes at once; whether something is left to write."""
        out = self._session.to_upstream
        if not out or self._writing or self._io is None:
            return False
        try:
            self._stats.bytes_out += self._io.send_at_once(out)
        except OSError:
            self._io.close()  # its reader finds it closed, and tells the session
            return False
        return bool(out)

    async def flush(self) -> None:
        """Writes the rest, as fast as the broker reads."""
        out = self._session.to_upstream
        if not out or self._writing or self._io is None:
            return
        self._writing = True
        try:
            while out and self._io is not None:
                batch = out[:]
                out.clear()
                self._stats.bytes_out += await self._io.send_all(batch)
        except (OSError, trio.ClosedResourceError):
            if self._io is not None:
                self._io.close()  # its reader finds it closed, and tells the session
        finally:
            self._writing = False
            self._connection.wake()
