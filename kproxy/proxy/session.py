"""One client connection, without its sockets: what becomes of each request and each answer.

The shell hands in whole frames (``request`` from the client, ``response`` from the broker), sends what stands in
``to_upstream`` and ``to_client``, and does what a ``Need`` asks for before it offers the same frame again. All upstream
requests of a session go to one broker over one connection, which answers in order; so ``_expected`` is a queue.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from struct import Struct

from kproxy.codec._generated.sasl_authenticate import SaslAuthenticateResponse
from kproxy.codec.header import (
    decode_request_header,
    encode_request,
    encode_response,
    request_header_version,
    response_header_size,
)
from kproxy.codec.messages import ApiKey, ErrorCode, Message, request_class, response_class
from kproxy.codec.produce import FIRST_FLEXIBLE, ProduceLayout, walk_request, walk_response
from kproxy.codec.produce_shape import RequestShape
from kproxy.dedup.lanes import Lane, Track
from kproxy.errors import RemoteProtocolError
from kproxy.proxy.batches import has_kproxy_id, has_producer_id
from kproxy.proxy.calls import Call, Group, Part, build_response
from kproxy.proxy.handlers import handler_of
from kproxy.proxy.handlers.api_versions import unsupported_version
from kproxy.proxy.handlers.base import Again, AsItIs, Context, Exchange, Handler, Local
from kproxy.proxy.producing import Producer, ProducerLimits
from kproxy.proxy.routing import OWN_TOPICS, Address
from kproxy.proxy.sasl import BareTokens
from kproxy.proxy.slots import AnswerOrder, Buffer, Slot
from kproxy.proxy.stats import Stats
from kproxy.proxy.versions import HIDDEN, upstream_version

_START = Struct(">hhih")  # API key, version, correlation id, length of the client id
_CORRELATION_ID = Struct(">i")
_PRODUCE = int(ApiKey.PRODUCE)
_PREFIX = 4
_OWN_TOPICS = OWN_TOPICS.encode()
#: The first Fetch version that may name brokers' addresses in its answer (KIP-951); otherwise it equals the one before.
_FETCH_NODE_ENDPOINTS = 16


class Need(Enum):
    """Why a frame could not be taken yet."""

    UPSTREAM = auto()
    """Connect to the broker and set ``Context.broker_versions``; then ``connected``."""
    LANE = auto()
    """Lease a lane; then ``lease``."""
    PROGRESS = auto()
    """Wait until an answer came or a recovery ended."""


@dataclass(slots=True)
class SessionLimits:
    """See docs/configuration.md for the options behind these."""

    producer: ProducerLimits
    held_bytes: int
    idempotence: bool


@dataclass(slots=True, eq=False)
class Expected:
    """An answer that the broker owes, and to what."""

    slot: Slot
    correlation_id: int
    group: Group | None = None
    handler: Handler | None = None
    exchange: Exchange | None = None
    #: A relayed Produce whose answer may name addresses: decode it only if it holds an error.
    watched: bool = False
    #: The answer to a bare SASL token.
    token: bool = False


@dataclass(slots=True)
class Errand:
    """A request for the coordinator of a group, wherever that is; report with ``errand_done``."""

    slot: Slot
    exchange: Exchange
    group_id: str
    request: Message


class Session:
    """The core of one client connection."""

    def __init__(
        self, ctx: Context, limits: SessionLimits, stats: Stats, transcode_for: Callable[[str], dict[int, int]]
    ) -> None:
        """``transcode_for`` gives, by client id, what to deliver in another compression."""
        self.ctx = ctx
        self._limits = limits
        self._stats = stats
        self._transcode_for = transcode_for
        self._expected: deque[Expected] = deque()
        self._order = AnswerOrder()
        self._client_id: bytes | None = None
        self._tokens: BareTokens | None = None
        self._software = ""
        self._shape: RequestShape | None = None
        self._shape_upstream = 0
        self._clock = 0.0
        self.producer = Producer(limits.producer, self._converted)
        self.to_upstream: list[Buffer] = []
        self.to_client: list[Buffer] = []
        self.errands: list[Errand] = []
        self.connected = False
        #: Batches have to be sent again, by the shell; nothing is taken meanwhile.
        self.recovering = False
        #: The connection has to end, once ``to_client`` is written.
        self.finished = False

    # -- from the client

    @property
    def idle(self) -> bool:
        """Whether no answer is owed."""
        return not len(self._order)

    @property
    def held_bytes(self) -> int:
        """Bytes of requests that are kept until they are answered."""
        return self._order.held

    @property
    def blocked(self) -> bool:
        """Whether an answer or the end of a recovery has to come before another request is taken."""
        return self.recovering or self.producer.waits or self._order.held > self._limits.held_bytes

    def lease(self, lane: Lane) -> None:
        """Gives the session the lane that it needed."""
        self.producer.lane = lane

    def request(self, frame: bytearray, now: float) -> Need | None:
        """Takes one frame (prefix included), or says what it needs first. RemoteProtocolError: end the connection."""
        self._clock = now
        if self.blocked:
            return Need.PROGRESS
        if not self.connected:
            return Need.UPSTREAM
        if self._tokens is not None and self._tokens.expects(frame):
            self._token(frame, now)
            return None
        if self._shape is not None:
            layout = self._shape.layout(frame)
            if layout is not None:
                slot = Slot(_PRODUCE, self._shape.version, _CORRELATION_ID.unpack_from(frame, 8)[0], now, len(frame))
                return self._produce(slot, frame, layout, self._shape_upstream)
        if len(frame) < _PREFIX + _START.size:
            raise RemoteProtocolError(f"request of {len(frame) - _PREFIX} bytes has no header")
        api_key, version, correlation_id, name_length = _START.unpack_from(frame, _PREFIX)
        body = _PREFIX + _START.size + max(name_length, 0)
        if body > len(frame):
            raise RemoteProtocolError("client id ends behind its frame")
        self._note_client(bytes(frame[_PREFIX + _START.size : body]))
        slot = Slot(api_key, version, correlation_id, now, len(frame))
        upstream = self._upstream_version(slot)
        if upstream is None:
            return None
        if api_key == ApiKey.PRODUCE:
            return self._new_produce(slot, frame, body, upstream)
        self._open(slot, upstream)
        self._forward(slot, frame, upstream)
        return None

    def _note_client(self, name: bytes) -> None:
        if name != self._client_id:
            self._client_id = name
            self.ctx.client_id = name.decode("utf-8", "replace")
            self.ctx.transcode = self._transcode_for(self.ctx.client_id)

    def _upstream_version(self, slot: Slot) -> int | None:
        """The version for the broker; None if the request was answered here. RemoteProtocolError: not served."""
        served = self.ctx.broker_versions.get(slot.api_key)
        if served is None or slot.api_key in HIDDEN or slot.api_version < 0:
            raise RemoteProtocolError(f"API key {slot.api_key} v{slot.api_version} is not served")
        known = request_class(slot.api_key)
        newest = min(served[1], known.MAX_VERSION)
        if slot.api_version > newest and slot.api_key == ApiKey.API_VERSIONS:
            self._order.open(slot)
            self._answer(slot, unsupported_version(newest), 0)
            return None
        if slot.api_version > newest:
            raise RemoteProtocolError(f"API key {slot.api_key} v{slot.api_version}: the newest served is v{newest}")
        return upstream_version(slot.api_key, slot.api_version, served)

    def _open(self, slot: Slot, upstream: int) -> None:
        self._order.open(slot)
        if upstream != slot.api_version:
            self._stats.observe_legacy(slot.api_key, slot.api_version, self.ctx.client_id, self._software)

    def _forward(self, slot: Slot, frame: bytearray, upstream: int) -> None:
        handler = handler_of(slot.api_key)
        version = slot.api_version
        if not handler.rewrites(self.ctx, version, upstream):
            if slot.api_key == ApiKey.FETCH and version >= _FETCH_NODE_ENDPOINTS:
                frame[6:8] = (_FETCH_NODE_ENDPOINTS - 1).to_bytes(2, "big")
            self._relay(slot, frame)
            return
        header = decode_request_header(memoryview(frame)[_PREFIX:])
        body = memoryview(frame)[_PREFIX + header.size :]
        request = request_class(slot.api_key).decode(body, version, surplus=True)
        exchange = Exchange(request, version, handler.ask_version(self.ctx, version, upstream))
        if slot.api_key == ApiKey.API_VERSIONS and version >= 3:
            self._software = f"{getattr(request, 'client_software_name', '')}"
        lifted = handler.lift(self.ctx, exchange)
        if isinstance(lifted, Local):
            self._answer(slot, lifted.answer, version)
        elif version == 0 and slot.api_key in (ApiKey.OFFSET_COMMIT, ApiKey.OFFSET_FETCH):
            group_id: str = getattr(request, "group_id", "")
            self.errands.append(Errand(slot, exchange, group_id, lifted))
        elif exchange.upstream_version == version and lifted is request:
            self._expected.append(Expected(slot, slot.correlation_id, handler=handler, exchange=exchange))
            self.to_upstream.append(frame)
        else:
            self._ask(slot, handler, exchange, lifted)

    def _relay(self, slot: Slot, frame: bytearray) -> None:
        if slot.api_key == ApiKey.SASL_HANDSHAKE and slot.api_version == 0:
            self._tokens = BareTokens.after_handshake(frame)
            frame[6:8] = b"\x00\x01"  # v1 is the same on the wire, and lets tokens travel in SaslAuthenticate
        self._expected.append(Expected(slot, slot.correlation_id))
        self.to_upstream.append(frame)

    def _ask(self, slot: Slot, handler: Handler, exchange: Exchange, request: Message) -> None:
        name = None if self._client_id is None else self.ctx.client_id
        frame = encode_request(request, exchange.upstream_version, slot.correlation_id, name)
        self._expected.append(Expected(slot, slot.correlation_id, handler=handler, exchange=exchange))
        self.to_upstream.append(frame)

    # -- produce

    def _new_produce(self, slot: Slot, frame: bytearray, body: int, upstream: int) -> Need | None:
        if request_header_version(slot.api_key, slot.api_version) == 2:
            body = _PREFIX + decode_request_header(memoryview(frame)[_PREFIX:]).size
        layout = walk_request(frame, body, slot.api_version)
        refusal = self._refusal(layout)
        if refusal is not None:
            slot.silent = layout.acks == 0
            self._open(slot, upstream)
            self._refuse(slot, layout, *refusal)
            return None
        self._shape, self._shape_upstream = RequestShape.of(frame, layout, slot.api_version), upstream
        return self._produce(slot, frame, layout, upstream)

    def _refusal(self, layout: ProduceLayout) -> tuple[int, str] | None:
        own_ids = self.ctx.cluster.own_topic_ids
        if any(place.topic.startswith(_OWN_TOPICS) or place.topic in own_ids for place in layout.partitions):
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED, "own_topic"
        if layout.acks not in (-1, 0, 1):
            return ErrorCode.INVALID_REQUIRED_ACKS, "acks"
        return None

    def _produce(self, slot: Slot, frame: bytearray, layout: ProduceLayout, upstream: int) -> Need | None:
        slot.silent = layout.acks == 0
        stamps = self._limits.idempotence or upstream != slot.api_version
        if not stamps or layout.transactional or has_producer_id(frame, layout):
            self._pass(slot, frame, layout, upstream)
            return None
        if self.producer.lane is None:
            return Need.LANE
        self._open(slot, upstream)
        call = Call(slot, slot.api_version, upstream, layout.timeout_ms, self.ctx.client_id, [])
        self.producer.accept(call, frame, layout, int(self._clock * 1000))
        self._send_ready()
        if not call.open:
            self._finish_calls()
        return None

    def _pass(self, slot: Slot, frame: bytearray, layout: ProduceLayout, upstream: int) -> None:
        self._open(slot, upstream)
        if has_kproxy_id(frame, layout):
            self._refuse(slot, layout, ErrorCode.INVALID_PRODUCER_ID_MAPPING, "forged_producer_id")
            return
        if layout.acks == 0:  # the broker won't answer either
            self.to_upstream.append(frame)
            slot.answer = ()
            self._flush()
            return
        self._forward(slot, frame, upstream)
        if self._expected[-1].handler is not None:
            self._expected[-1].watched = upstream == slot.api_version

    def _refuse(self, slot: Slot, layout: ProduceLayout, error: int, reason: str) -> None:
        self._stats.refusals[reason] = self._stats.refusals.get(reason, 0) + 1
        parts = [Part(place.topic, place.partition, [], error) for place in layout.partitions]
        self._answer_call(Call(slot, slot.api_version, slot.api_version, layout.timeout_ms, None, parts))
        self._flush()

    def _send_ready(self) -> None:
        stats = self._stats
        for group, frame in self.producer.ready():
            self._expected.append(Expected(group.call.slot, group.call.slot.correlation_id, group=group))
            self.to_upstream.append(frame)
            stats.sends_in_flight += len(group.sends)
            self._count_stamped(group)

    def _count_stamped(self, group: Group) -> None:
        self._stats.batches_stamped += len(group.sends)
        for send in group.sends:
            self._stats.records_stamped += send.records

    def _finish_calls(self) -> None:
        for call in self.producer.finished():
            self._answer_call(call)
        self._flush()

    def _answer_call(self, call: Call) -> None:
        if call.slot.silent:
            call.slot.answer = ()
        elif call.raw is not None:
            call.slot.answer = (call.raw,)
        else:
            call.slot.answer = (encode_response(build_response(call), call.version, call.slot.correlation_id),)

    # -- from the broker

    def may_stream(self) -> bool:
        """Whether the next answer may go to the client piece by piece: it is relayed, and it is its turn."""
        if not self._expected or self.to_client:
            return False
        head = self._expected[0]
        return head.group is None and head.handler is None and not head.token and self._order.is_next(head.slot)

    def is_next_answer(self, start: memoryview) -> bool:
        """Whether the bytes at the start of an answer, 8 or more, bear the correlation id of the next one."""
        return int.from_bytes(start[4:8], "big", signed=True) == self._expected[0].correlation_id

    def streamed(self, now: float) -> None:
        """Notes that the whole next answer was written to the client by the shell."""
        self._clock = now
        head = self._expected.popleft()
        head.slot.answer = ()
        self._flush()

    def response(self, frame: bytearray, now: float, *, learnt: bool = False) -> list[tuple[int, Address]]:
        """Takes an answer (prefix included), or names brokers that need an address first: offer it again then.

        ``learnt``: nothing more can be done for them; those without an address are left out of the answer.

        RemoteProtocolError: the broker can't be followed, end the connection.
        """
        self._clock = now
        if not self._expected:
            raise RemoteProtocolError("the broker sent an answer that nobody asked for")
        head = self._expected[0]
        if len(frame) < _PREFIX + 4 or _CORRELATION_ID.unpack_from(frame, 4)[0] != head.correlation_id:
            raise RemoteProtocolError("the broker's answer has another correlation id than the request")
        if head.handler is not None and head.exchange is not None:
            return self._lower(head, head.handler, head.exchange, frame, learnt)
        if head.group is not None:
            self._produced(head.group, frame)
            return []
        self._expected.popleft()
        if head.token:
            self._token_answered(head.slot, frame)
        else:
            head.slot.answer = (frame,)
            self._flush()
        return []

    def _produced(self, group: Group, frame: bytearray) -> None:
        body = 2 * _PREFIX
        if group.call.upstream_version >= FIRST_FLEXIBLE:
            body = _PREFIX + response_header_size(
                ApiKey.PRODUCE, group.call.upstream_version, memoryview(frame)[_PREFIX:]
            )
        had = self.producer.in_flight
        if self.producer.answered(group, frame, body):
            self.recovering = True
        self._expected.popleft()  # only now: an answer that can't be read leaves the batches as good as lost
        self._stats.sends_in_flight += self.producer.in_flight - had
        if self.producer.waits and not self.recovering:
            self._send_ready()
        if not group.call.open:
            self._finish_calls()

    def _lower(
        self, head: Expected, handler: Handler, exchange: Exchange, frame: bytearray, learnt: bool
    ) -> list[tuple[int, Address]]:
        api_key, view = head.slot.api_key, memoryview(frame)[_PREFIX:]
        body = response_header_size(api_key, exchange.upstream_version, view)
        if head.watched and not any(r.error_code for r in walk_response(view, body, exchange.upstream_version)):
            self._expected.popleft()
            head.slot.answer = (frame,)
            self._flush()
            return []
        response = response_class(api_key).decode(view[body:], exchange.upstream_version)
        unknown = self.ctx.cluster.unknown(handler.brokers_in(response))
        if unknown and not learnt:
            return unknown
        self._expected.popleft()
        self._lowered(head.slot, handler, exchange, response, frame)
        return []

    def _lowered(
        self, slot: Slot, handler: Handler, exchange: Exchange, response: Message, frame: bytearray | None
    ) -> None:
        answer = handler.lower(self.ctx, exchange, response)
        if isinstance(answer, Again):
            exchange.upstream_version = exchange.upstream_version if answer.version is None else answer.version
            self._ask(slot, handler, exchange, answer.request)
        elif isinstance(answer, AsItIs) and frame is not None:
            slot.answer = (frame,)
            self._flush()
        elif isinstance(answer, Message):
            self._answer(slot, answer, exchange.client_version)
        self._count_conversions()

    def errand_done(self, errand: Errand, response: Message | None) -> None:
        """Takes the coordinator's answer to an errand; None if none could be had: then the connection ends."""
        if response is None:
            self._fail(errand.slot)
        else:
            self._lowered(errand.slot, handler_of(errand.slot.api_key), errand.exchange, response, None)

    def upstream_lost(self) -> None:
        """Notes that the broker's connection ended. Batches are sent again; what else is owed ends the client's."""
        self.connected = False
        self._shape = None  # the next broker may serve other versions
        self.to_upstream.clear()
        expected, self._expected = self._expected, deque()
        for owed in expected:
            if owed.group is not None:
                had = self.producer.in_flight
                self.producer.lost(owed.group)
                self._stats.sends_in_flight += self.producer.in_flight - had
                self.recovering = True
            else:
                self._fail(owed.slot)
        self._finish_calls()

    # -- sending again

    @property
    def quiet(self) -> bool:
        """Whether no batch is on its way, so that what is unsettled may be sent again."""
        return self.producer.in_flight == 0

    def unsettled(self) -> list[Track]:
        """The partitions whose batches have to be sent again."""
        return self.producer.lane.unsettled() if self.producer.lane is not None else []

    def progressed(self) -> None:
        """Answers what has become definite while the shell sends again."""
        self.producer.recount()
        self._finish_calls()

    def requeue(self) -> bool:
        """Without a connection to the broker: what waits to be sent joins what is sent again. True if there is some."""
        if self.connected or not self.producer.waits:
            return False
        had = self.producer.in_flight
        groups = [group for group, _ in self.producer.ready()]
        self.producer.in_flight = had
        for group in groups:
            self._count_stamped(group)
        return bool(groups)

    def recovered(self) -> None:
        """Notes that every fate is definite; goes on with what waits."""
        self.recovering = False
        self.producer.recount()
        if self.connected:
            self._send_ready()
        self._finish_calls()

    # -- answers

    def _answer(self, slot: Slot, message: Message, version: int) -> None:
        slot.answer = (encode_response(message, version, slot.correlation_id),)
        self._flush()

    def _token(self, frame: bytearray, now: float) -> None:
        assert self._tokens is not None
        slot = Slot(ApiKey.SASL_AUTHENTICATE, 0, 0, now, len(frame))
        self._order.open(slot)
        request = encode_request(self._tokens.wrap(frame), 0, 0, self.ctx.client_id)
        self._expected.append(Expected(slot, 0, token=True))
        self.to_upstream.append(request)

    def _token_answered(self, slot: Slot, frame: bytearray) -> None:
        response = SaslAuthenticateResponse.decode(memoryview(frame)[_PREFIX + 4 :], 0)
        token = BareTokens.unwrap(response)
        if token is None:
            self._fail(slot)
        else:
            slot.answer = (token,)
            self._flush()

    def _fail(self, slot: Slot) -> None:
        slot.failed = True
        slot.answer = ()
        self._flush()

    def _flush(self) -> None:
        for slot in self._order.take_ready():
            if self.finished:
                return
            if slot.failed:
                self.finished = True
                return
            self._stats.observe(slot.api_key, slot.api_version, self._clock - slot.since)
            if not slot.silent:
                assert slot.answer is not None
                self.to_client.extend(slot.answer)

    def _converted(self, direction: str, magic: int, batches: int, records: int) -> None:
        self.ctx.count_converted(direction, magic, batches, records)
        self._count_conversions()

    def _count_conversions(self) -> None:
        if not self.ctx.converted:
            return
        for key, (batches, records) in self.ctx.converted.items():
            self._stats.batches_converted[key] = self._stats.batches_converted.get(key, 0) + batches
            self._stats.records_converted[key] = self._stats.records_converted.get(key, 0) + records
        self.ctx.converted.clear()
