"""The two queues of a session: requests to the broker whose responses are due, and responses to the client in order."""

from collections import deque
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from kproxy.budget import ELEMENT_STEPS, MESSAGE_BYTE_STEPS, is_long
from kproxy.codec.header import encode_request, encode_response
from kproxy.codec.messages import Message
from kproxy.dedup.origin import NO_SILENCE
from kproxy.proxy.api_stats import ApiStats
from kproxy.proxy.commands import Close, Encode, Mute, Queued
from kproxy.proxy.context import Context
from kproxy.proxy.handlers.base import Exchange, Handler
from kproxy.proxy.kept_calls import KeptCall
from kproxy.proxy.produce_calls import UpstreamProduce
from kproxy.proxy.quotas.throttled import throttled
from kproxy.proxy.slots import RESPONSE_ELEMENT_BYTES, AnswerOrder, Buffer, Slot

if TYPE_CHECKING:
    from collections.abc import Callable

    from kproxy.proxy.quotas.meter import Meter


@dataclass(slots=True, eq=False)
class Expected:
    """A response that the broker owes, and to what."""

    slot: Slot
    correlation_id: int
    group: UpstreamProduce | None = None
    handler: Handler | None = None
    exchange: Exchange | None = None
    #: A relayed Produce whose response may name addresses: decode it only if it holds an error.
    watched: bool = False
    #: What it is of, if the numbers of its producer are kept.
    kept: KeptCall | None = None
    #: The response to a bare SASL token.
    token: bool = False


class Link:
    """Bytes to send in both directions, in order, and the requests that they belong to."""

    __slots__ = (
        "_ctx",
        "_stats",
        "answered",
        "commands",
        "connected",
        "empty_at",
        "expected",
        "finished",
        "meter",
        "order",
        "position",
        "silence",
        "to_client",
        "to_upstream",
        "trace",
        "used",
    )

    def __init__(self, stats: ApiStats, ctx: Context) -> None:
        """Counts each answered request in ``stats``, and what is held for the others in the share of the connection."""
        self._ctx = ctx
        self._stats = stats
        self.order = AnswerOrder(ctx.share)
        #: All upstream requests go over one connection, which answers in order.
        self.expected: deque[Expected] = deque()
        self.to_upstream: list[Buffer] = []
        self.to_client: list[Buffer] = []
        #: For the shell, in the order in which they came up.
        self.commands: list[Queued] = []
        #: Whether there is a connection to the broker.
        self.connected = False
        #: Bytes of responses for the client so far, written or not.
        self.position = 0
        #: When the client was last seen to have sent nothing more: what came since may have waited so long.
        self.empty_at = 0.0
        #: The last time of a second or more in which the client sent nothing.
        self.silence = NO_SILENCE
        #: What the client uses of its quotas; None: it has none.
        self.meter: Meter | None = None
        #: Called for each request that leaves the order: with its slot, the time and the bytes of its response.
        self.trace: Callable[[Slot, float, int], None] | None = None
        #: The client's connection has to end, once ``to_client`` is written.
        self.finished = False
        #: Requests answered so far, and by API key the version of the last one.
        self.answered = 0
        self.used: dict[int, int] = {}

    def relay(self, slot: Slot, frame: Buffer) -> None:
        """Sends a request on as it is; its response is the client's as it is."""
        self.expected.append(Expected(slot, slot.correlation_id))
        self.to_upstream.append(frame)

    def ask(self, slot: Slot, handler: Handler, exchange: Exchange, request: Message, client_id: str | None) -> None:
        """Sends a request at the version of the exchange; the handler lowers its response."""
        frame = encode_request(request, exchange.upstream_version, slot.correlation_id, client_id)
        self.expected.append(Expected(slot, slot.correlation_id, handler=handler, exchange=exchange))
        self.to_upstream.append(frame)

    def answer(self, slot: Slot, message: Message, version: int) -> None:
        """Answers a request with a message."""
        if slot.traced is not None and (code := getattr(message, "error_code", 0)):
            slot.traced.errors = (code,)
        encode = partial(encode_response, message, version, slot.correlation_id)
        if is_long(max(slot.decoded // RESPONSE_ELEMENT_BYTES, slot.parts) * ELEMENT_STEPS):
            self._answer_apart(slot, encode)
        else:
            self.answer_raw(slot, encode())

    def _answer_apart(self, slot: Slot, encode: "Callable[[], bytes]") -> None:
        """Has another thread encode a response, and do what has to be done to it."""
        finish, slot.finish = slot.finish, None
        self.commands.append(Encode(slot, encode if finish is None else lambda: finish(encode())))

    def answer_raw(self, slot: Slot, *frames: Buffer) -> None:
        """Answers a request with whole frames, or with nothing."""
        if slot.finish is not None and is_long(
            max(sum(map(len, frames)) * MESSAGE_BYTE_STEPS, slot.parts * ELEMENT_STEPS)
        ):
            self._answer_apart(slot, partial(b"".join, frames))
            return
        slot.answer = frames
        self.flush()

    def _complete(self, slot: Slot) -> None:
        """Completes a response before it is sent. A client over its quota gets a throttle time and is muted."""
        answer = b"" if slot.silent or slot.answer is None else b"".join(slot.answer)
        if slot.finish is not None and answer:
            answer = slot.finish(answer)
            slot.answer = (answer,)
        wait = self.meter.answered(slot.api_key, slot.size, len(answer), self._ctx.now) if self.meter is not None else 0
        if wait:
            self.mute(wait)
            if answer:
                slot.answer = (
                    throttled(
                        answer, slot.api_key, slot.api_version, round(wait * 1000), self._ctx.share.of_response()
                    ),
                )

    def mute(self, seconds: float) -> None:
        """Has the client muted for so long, if at all."""
        if seconds > 0:
            self.commands.append(Mute(self._ctx.now + seconds))

    def close(self) -> None:
        """Ends the client's connection once ``to_client`` is written: nothing is added any more."""
        if not self.finished:
            self.finished = True
            self.commands.append(Close())

    def drop(self) -> None:
        """Frees all that is queued in both directions."""
        self.order.drop()
        self.expected.clear()
        self.to_upstream.clear()
        self.to_client.clear()
        self.commands.clear()

    def fail(self, slot: Slot) -> None:
        """Notes that a request can't be answered: the connection ends when its turn comes."""
        slot.failed = True
        self.answer_raw(slot)

    def flush(self) -> None:
        """Moves the responses whose turn it is to ``to_client``."""
        now = self._ctx.now
        for slot in self.order.take_ready():
            if self.finished:
                return
            if slot.failed:
                self.close()
                self._stats.unanswered(slot.api_key)
                if self.trace is not None:
                    self.trace(slot, now, 0)
                return
            before = self.position
            self.answered += 1
            self.used[slot.api_key] = slot.api_version
            if slot.finish is not None or self.meter is not None:
                self._complete(slot)
            if not slot.silent:
                for frame in slot.answer or ():
                    self.to_client.append(frame)
                    self.position += len(frame)
                if slot.owed is not None:
                    slot.owed.position, slot.owed.at = self.position, now
            size = slot.streamed or self.position - before
            self._stats.observe(slot.api_key, slot.api_version, now - slot.since, slot.size, size)
            if self.trace is not None:
                self.trace(slot, now, size)
