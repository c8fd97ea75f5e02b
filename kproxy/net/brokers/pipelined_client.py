"""kproxy's own requests to a broker: many in flight on one connection, answered in their order."""

from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, TypeVar

import trio

from kproxy.budget import MESSAGE_BYTE_STEPS, RequestBudget, is_long
from kproxy.codec.frame import PREFIX, FrameSplitter
from kproxy.codec.header import encode_request, response_header_size
from kproxy.codec.messages import Message
from kproxy.codec.version_choice import ANY, VersionRange, choose_version
from kproxy.errors import RemoteProtocolError
from kproxy.net.brokers.broker_client import CLIENT_ID, READ_BYTES, M, as_it_is
from kproxy.net.brokers.response_room import ResponseRoom
from kproxy.net.end_of_turn import EndOfTurn
from kproxy.net.long_work import beside
from kproxy.net.network import ByteIO
from kproxy.proxy.routing import Address

if TYPE_CHECKING:
    from kproxy.proxy.slots import Buffer

#: Requests in flight at a time.
_MOST_REQUESTS: Final = 256
#: In a response, after length and correlation id.
_BODY_AT: Final = PREFIX + 4

T = TypeVar("T")
Done: TypeAlias = Callable[[T | None], None]
"""Called once, with the response; None: the connection has ended, and the outcome of the request is open."""
Read: TypeAlias = Callable[[bytearray, int], T]
"""Reads a response (prefix included) of a version. RemoteProtocolError if it is malformed."""


class _Asked(NamedTuple):
    version: int
    correlation_id: int
    timeout_s: float
    read: Read[Any]
    done: Done[Any]


class PipelinedClient:
    """A connection on which no request waits for the response to the one before.

    Each response is passed to a function, whose work is done before the next response is read. Any failure ends the
    connection. ``BrokerClient`` is apart: it needs no task of its own, so its owner may be cancelled at any time.
    """

    def __init__(
        self,
        io: ByteIO,
        address: Address,
        versions: Mapping[int, VersionRange],
        timeout_ms: int,
        nursery: trio.Nursery,
        turn: EndOfTurn,
        room: ResponseRoom,
    ) -> None:
        """Takes over a connection to a broker that serves ``versions``; its tasks run in ``nursery``.

        ``timeout_ms`` is added to the time that a request may take by itself. ``room``: for its responses.
        """
        self._room = room
        self._io = io
        self._address = address
        self._timeout_ms = timeout_ms
        self._nursery = nursery
        self._turn = turn
        self._asked: deque[_Asked] = deque()
        self._correlation_id = 0
        self._out: list[Buffer] = []
        self._writing = False
        #: When the oldest request must have its response (trio's clock); inf: there is none.
        self._due = inf
        #: Ends a wait for responses. Not moved with each response, which would cost more than to look at it late.
        self._deadline = trio.CancelScope()
        #: What the broker serves, by API key.
        self.versions = versions
        nursery.start_soon(self._read)

    @property
    def closed(self) -> bool:
        """Whether it can't be used any more."""
        return self._io.closed

    @property
    def is_idle(self) -> bool:
        """Whether no request is in flight, nor about to be."""
        return not (self._asked or self._out or self._writing)

    @property
    def has_room(self) -> bool:
        """Whether one more request may be sent now."""
        return len(self._asked) < _MOST_REQUESTS

    def send(
        self, frame: Callable[[int, int], bytes], version: int, read: Read[T], done: Done[T], *, extra_ms: int = 0
    ) -> None:
        """Sends a request after all others, without waiting. OSError: the connection is closed, nothing was sent.

        ``frame`` writes it, of this version and a correlation id. ``read`` reads the response for ``done``. The broker
        is given ``extra_ms`` on top of the time-out, from when it has answered all before.
        """
        if self._io.closed:
            raise OSError(f"connection to {self._address} is closed")
        self._correlation_id += 1
        written = frame(version, self._correlation_id)
        timeout_s = (self._timeout_ms + extra_ms) / 1000
        self._asked.append(_Asked(version, self._correlation_id, timeout_s, read, done))
        if len(self._asked) == 1:
            self._due = trio.current_time() + timeout_s
            if self._due < self._deadline.deadline:
                self._deadline.deadline = self._due
        self._out.append(written)
        if not self._writing:
            self._write_now()

    async def call(
        self,
        request: Message,
        answer: type[M],
        versions: VersionRange = ANY,
        *,
        extra_ms: int = 0,
        trim: Callable[[Any, int], None] = as_it_is,
    ) -> M:
        """Call as ``Caller`` does, from any number of tasks."""
        version = choose_version(self.versions, request, versions)
        trim(request, version)
        done = trio.Event()
        answers: list[M | None] = []

        def take(received: M | None) -> None:
            answers.append(received)
            done.set()

        self.send(writer_of(request), version, reader_of(answer, self._room.decoding), take, extra_ms=extra_ms)
        await done.wait()
        (received,) = answers
        if received is None:
            raise OSError(f"connection to {self._address} ended")
        return received

    def _write_now(self) -> None:
        try:
            self._io.send_at_once(self._out)
        except OSError:
            self._io.close()  # its reader finds it closed
            return
        if self._out:
            self._writing = True
            self._nursery.start_soon(self._write)

    async def _write(self) -> None:
        try:
            while self._out:
                out, self._out = self._out, []
                await self._io.send_all(out)
        except (OSError, trio.ClosedResourceError):
            self._io.close()
        finally:
            self._writing = False

    async def _read(self) -> None:
        try:
            await self._read_in_time()
        except (OSError, trio.ClosedResourceError, RemoteProtocolError):
            pass
        finally:
            self._io.close()
            self._room.release(self)
            while self._asked:
                self._asked.popleft().done(None)

    async def _read_in_time(self) -> None:
        """Read until the broker ends the connection, or a response is overdue."""
        splitter = FrameSplitter(self._room.largest)
        while trio.current_time() < self._due:
            with trio.CancelScope(deadline=self._due) as self._deadline:
                await self._take_answers(splitter)
                return

    async def _take_answers(self, splitter: FrameSplitter) -> None:
        """Read until the broker ends the connection."""
        buffer = self._turn.buffer(READ_BYTES)  # one of its own would be most of what a connection takes
        while True:
            count = self._io.receive_now([buffer])
            if count is None:
                await self._io.readable()
                continue
            if count == 0:
                return
            frames = splitter.feed(buffer[:count])
            if frames and is_long(len(frames[0]) * MESSAGE_BYTE_STEPS):  # those that come in one piece are short
                long = frames.pop(0)
                self._take(await beside(partial(self._read_answer, long)))
            with self._turn.shortened():
                for frame in frames:
                    self._take(self._read_answer(frame))
            if frames:
                self._room.release(self)
            await self._room.admit(self, splitter.held)
            if count < READ_BYTES:
                await self._io.readable()  # there can't be more yet: asking would cost a call in vain
            elif self._io.should_yield():
                await trio.lowlevel.checkpoint()

    def _read_answer(self, frame: bytearray) -> Any:
        named = int.from_bytes(frame[PREFIX:_BODY_AT], "big", signed=True)
        if not self._asked or named != self._asked[0].correlation_id:
            raise RemoteProtocolError(f"{self._address} answered a request that it was not asked")
        return self._asked[0].read(frame, self._asked[0].version)

    def _take(self, answer: Any) -> None:
        asked = self._asked.popleft()
        self._due = trio.current_time() + self._asked[0].timeout_s if self._asked else inf
        asked.done(answer)

    def close(self) -> None:
        """Ends the connection; requests in flight get no response."""
        self._io.close()


def writer_of(request: Message) -> Callable[[int, int], bytes]:
    """A function that writes a message as a request of kproxy's own."""
    return lambda version, correlation_id: encode_request(request, version, correlation_id, CLIENT_ID)


def reader_of(answer: type[M], budget: Callable[[], RequestBudget]) -> Read[M]:
    """A function that reads a response into a message, within a new ``budget``."""

    def read(frame: bytearray, version: int) -> M:
        body = memoryview(frame)[PREFIX:]
        return answer.decode(body[response_header_size(answer.API_KEY, version, body) :], version, budget())

    return read
