"""One client connection, without its sockets: what becomes of each request and each answer.

The shell hands in whole frames (``request`` from the client, ``response`` from the broker), sends what stands in the
``link``, and does what a ``Need`` asks for before it offers the same frame again.
"""

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from struct import Struct
from types import MappingProxyType

from kproxy.codec._generated.api_versions import ApiVersionsRequest
from kproxy.codec._generated.metadata import MetadataRequest
from kproxy.codec._generated.sasl_authenticate import SaslAuthenticateResponse
from kproxy.codec.fetch_restate import restate
from kproxy.codec.header import decode_request_header, encode_request, response_header_size
from kproxy.codec.messages import ApiKey, Message, api_name, decode_request, request_class, response_class
from kproxy.codec.produce_layout import walk_response
from kproxy.codec.topic_partition import TopicPartition
from kproxy.dedup.lanes import Lane
from kproxy.dedup.producer_connection import ProducerConnection
from kproxy.errors import RemoteProtocolError
from kproxy.proxy.applications import WATCHED, watch
from kproxy.proxy.authorization.access import Access
from kproxy.proxy.authorization.screen import Screening, screen
from kproxy.proxy.bare_tokens import BareTokens
from kproxy.proxy.client_ids import kept_client_id
from kproxy.proxy.client_login.gate import LoginGate, LoginPolicy
from kproxy.proxy.context import Context, Fault
from kproxy.proxy.coordinator_requests import CoordinatorRequest, GroupRequest, ImplicitProduce, TransactionalProduce
from kproxy.proxy.handlers import DEFAULT, handler_of
from kproxy.proxy.handlers.api_versions import unsupported_version
from kproxy.proxy.handlers.base import Again, AsItIs, Exchange, Handler, Local, Lowered, Park, Restated, Stable
from kproxy.proxy.handlers.sasl_handlers import BEFORE_LOGIN, PROOF
from kproxy.proxy.memberships import ASKED_BY_MEMBERS
from kproxy.proxy.produce_gate import Need, ProduceGate
from kproxy.proxy.routing import Address
from kproxy.proxy.session_queues import Expected, Link
from kproxy.proxy.slots import ELEMENT_BYTES, Slot
from kproxy.proxy.stats import Stats
from kproxy.proxy.traces import Traces, traced_request
from kproxy.proxy.versions import FIRST_IN_KAFKA_4, HIDDEN, LOCAL, TRANSACTIONS, upstream_version

_START = Struct(">hhih")  # API key, version, correlation id, length of the client id
_CORRELATION_ID = Struct(">i")
_PREFIX = 4
#: The first ApiVersions version that names the client's software.
_SOFTWARE = 3
#: The first Fetch version that may name brokers' addresses in its answer (KIP-951); otherwise it equals the one before.
_FETCH_NODE_ENDPOINTS = 16
NOTHING_TOLD: Mapping[TopicPartition, int | None] = MappingProxyType({})


@dataclass(slots=True, eq=False)
class CoordinatorCall:
    """A request that is not for the broker of this connection; report with ``coordinator_call_done``."""

    slot: Slot
    handler: Handler
    exchange: Exchange
    ask: CoordinatorRequest


@dataclass(slots=True)
class Waiting:
    """An answer that has to wait for something that no broker tells; report with ``resume``."""

    slot: Slot
    handler: Handler
    exchange: Exchange
    reason: Park | Stable


class Session:
    """The core of one client connection."""

    def __init__(
        self,
        ctx: Context,
        stats: Stats,
        logins: LoginPolicy | None = None,
        traces: Traces | None = None,
    ) -> None:
        """``logins``: how the client has to log in at kproxy; None: SASL goes through to the broker.

        ``traces`` are told of each request; None: nobody is.
        """
        self.ctx = ctx
        self._stats = stats
        self._client_id: bytes | None = None
        #: As what the client's software is counted; whoever ends the session counts it out.
        self.software = stats.software.came()
        self._tokens: BareTokens | None = None
        self._proving = False
        #: A frame that may have to be offered again, and what may go on of it.
        self._screening: tuple[bytearray, Screening] | None = None
        self.link = Link(stats)
        self.link.meter = ctx.meter
        self.link.trace = None if traces is None else partial(traces.answered, ctx)
        self.login = None if logins is None else LoginGate(ctx, self.link, stats, logins, self._note_versions)
        self.gate = ProduceGate(ctx, stats, self.link, self._open, self._forward, self._send_on)
        self.coordinator_calls: list[CoordinatorCall] = []
        self.waiting: list[Waiting] = []
        #: An answer that was decoded before it was taken.
        self._decoded: tuple[bytearray, Message] | None = None

    # -- from the client

    @property
    def idle(self) -> bool:
        """Whether no answer is owed."""
        return not len(self.link.order)

    @property
    def owed(self) -> int:
        """Answers that are owed."""
        return len(self.link.order)

    @property
    def held_bytes(self) -> int:
        """Bytes of requests that are kept until they are answered."""
        return self.link.order.held

    @property
    def blocked(self) -> bool:
        """Whether an answer or the end of a recovery has to come before another request is taken."""
        gate = self.gate
        proving = self._proving and not self.ctx.logged_in
        return proving or gate.recovering or gate.producer.waits or self.link.order.held > self.ctx.policy.held_bytes

    def lease(self, lane: Lane, member: ProducerConnection) -> None:
        """Gives the session the lane that it needed, and its place among the connections of its producer."""
        self.gate.lease(lane, member)

    def request(self, frame: bytearray, now: float) -> Need | None:
        """Takes one frame (prefix included), or says what it needs first. RemoteProtocolError: end the connection."""
        self.link.now = self.ctx.now = now
        if self.blocked:
            return Need.PROGRESS
        if self.login is not None and (taken := self.login.take(frame, now)) is not False:
            return taken
        return self._request(frame, now) if self.link.connected else Need.UPSTREAM

    def _request(self, frame: bytearray, now: float) -> Need | None:
        if self._tokens is not None and self._tokens.expects(frame):
            self._token(frame, now)
            return None
        if self.ctx.access is not None and self.ctx.access.renew(self.ctx.client.principal, self.ctx.client.client_id):
            self.gate.forget_shape()
            self._screening = None
        taken = self.gate.take_like_the_last(frame)
        if taken is not False:
            return taken
        if len(frame) < _PREFIX + _START.size:
            raise RemoteProtocolError(f"request of {len(frame) - _PREFIX} bytes has no header")
        api_key, version, correlation_id, name_length = _START.unpack_from(frame, _PREFIX)
        body = _PREFIX + _START.size + max(name_length, 0)
        if body > len(frame):
            raise RemoteProtocolError("client id ends after its frame")
        if not self.ctx.logged_in and api_key not in BEFORE_LOGIN:
            return self._prove(now)
        self._note_client(bytes(frame[_PREFIX + _START.size : body]))
        slot = Slot(api_key, version, correlation_id, now, len(frame))
        upstream = self._upstream_version(slot)
        if upstream is None:
            return None
        return self._take(slot, frame, body, upstream)

    def _take(self, slot: Slot, frame: bytearray, body: int, upstream: int) -> Need | None:
        if self.ctx.meter is not None:
            wait = self.ctx.meter.identify(
                slot.api_key, self.ctx.client.principal, self.ctx.client.client_id, self.link.now
            )
            self.link.mute(wait)
        allowed = frame if self.ctx.access is None else self._screened(slot, frame, self.ctx.access)
        need = None
        if allowed is None:
            self._refuse(slot)
        elif slot.api_key == ApiKey.PRODUCE:
            need = self.gate.take(slot, allowed, body, upstream)
        else:
            self._open(slot, upstream)
            self._forward(slot, allowed, upstream)
        if need is None:
            self._screening = None
        return need

    def _screened(self, slot: Slot, frame: bytearray, access: Access) -> bytearray | None:
        """What may go on of a request; None if nothing may."""
        access.renew(self.ctx.client.principal, self.ctx.client.client_id)
        if self._screening is None or self._screening[0] is not frame:
            self._screening = frame, screen(access, frame, self.ctx.policy.max_request_elements)
            self._note_refusal(access)
        slot.finish = self._screening[1].finish
        return self._screening[1].frame

    def _note_refusal(self, access: Access) -> None:
        refusal, access.last_refusal = access.last_refusal, None
        if refusal is not None:
            what = f"{refusal.operation} on {refusal.resource_type} {refusal.name}"
            self.ctx.fault = Fault(f"{api_name(refusal.api_key)}: not allowed, {what}", self.link.now)

    def _refuse(self, slot: Slot) -> None:
        assert self._screening is not None
        answer = self._screening[1].answer
        self.link.order.open(slot)
        if answer is None:
            self.link.fail(slot)  # as a broker does it where the client does not wait for answers
        else:
            self.link.answer(slot, answer, slot.api_version)

    def _note_client(self, name: bytes) -> None:
        if name != self._client_id:
            self._client_id = name
            self.ctx.know(client_id=kept_client_id(name.decode("utf-8", "replace")))
            self.ctx.transcode = self.ctx.policy.transcode(self.ctx.client.client_id)

    def _note_versions(self, request: ApiVersionsRequest, version: int) -> None:
        """Notes how a client asked for versions: from v3 on it names its software (KIP-511)."""
        self.ctx.know(api_versions=version)
        if version < _SOFTWARE:
            return
        name, software_version = request.client_software_name, request.client_software_version
        self.ctx.know(software=name, software_version=software_version)
        self._stats.software.left(self.software)
        self.software = self._stats.software.came(name, software_version)

    def _upstream_version(self, slot: Slot) -> int | None:
        """The version for the broker; None if the request was answered here. RemoteProtocolError: not served."""
        served = self.ctx.broker_versions.get(slot.api_key)
        if slot.api_key in LOCAL or (slot.api_key in TRANSACTIONS and self.ctx.decides_transactions):
            return self._own_version(slot)
        if served is None or slot.api_key in HIDDEN or slot.api_version < 0:
            raise RemoteProtocolError(f"API key {slot.api_key} v{slot.api_version} is not served")
        known = request_class(slot.api_key)
        newest = min(served[1], known.MAX_VERSION)
        if slot.api_version > newest and slot.api_key == ApiKey.API_VERSIONS:
            self.link.order.open(slot)
            self.link.answer(slot, unsupported_version(newest), 0)
            return None
        if slot.api_version > newest:
            raise RemoteProtocolError(f"API key {slot.api_key} v{slot.api_version}: the newest served is v{newest}")
        return upstream_version(slot.api_key, slot.api_version, served)

    def _own_version(self, slot: Slot) -> int:
        known = request_class(slot.api_key)
        if not known.MIN_VERSION <= slot.api_version <= known.MAX_VERSION:
            raise RemoteProtocolError(f"API key {slot.api_key} has no v{slot.api_version}")
        return slot.api_version

    def _open(self, slot: Slot, _upstream: int) -> None:
        self.link.order.open(slot)
        if slot.api_version < FIRST_IN_KAFKA_4.get(slot.api_key, 0):
            self._stats.observe_legacy(
                slot.api_key, slot.api_version, self.ctx.client.client_id, self.ctx.client.software
            )

    def _forward(self, slot: Slot, frame: bytearray, upstream: int) -> None:
        handler = handler_of(slot.api_key)
        version = slot.api_version
        view = memoryview(frame)[_PREFIX:]
        if self._watched(slot, view):
            return
        if not handler.rewrites(self.ctx, version, upstream) and not handler.rewrites_this(self.ctx, version, view):
            if slot.api_key == ApiKey.FETCH and version >= _FETCH_NODE_ENDPOINTS:
                frame[6:8] = (_FETCH_NODE_ENDPOINTS - 1).to_bytes(2, "big")
            self._relay(slot, frame)
            return
        header = decode_request_header(view)
        request, elements = decode_request(
            slot.api_key, view[header.size :], version, self.ctx.policy.max_request_elements
        )
        self.link.order.charge(slot, elements * ELEMENT_BYTES)
        exchange = Exchange(request, version, handler.ask_version(self.ctx, version, upstream))
        if self.link.trace is not None and slot.traced is None:
            slot.traced = traced_request(request)
        if isinstance(request, ApiVersionsRequest):
            self._note_versions(request, version)
        lifted = handler.lift(self.ctx, exchange)
        if isinstance(lifted, Local):
            self.link.answer(slot, lifted.answer, version)
        elif isinstance(lifted, CoordinatorRequest):
            self.coordinator_calls.append(CoordinatorCall(slot, handler, exchange, lifted))
        elif exchange.upstream_version == version and lifted is request:
            self.link.expected.append(Expected(slot, slot.correlation_id, handler=handler, exchange=exchange))
            self.link.to_upstream.append(frame)
        else:
            self._ask(slot, handler, exchange, lifted)

    def _watched(self, slot: Slot, view: memoryview) -> bool:
        """Looks at what consumers ask of their groups; whether the request is another's to answer."""
        ctx = self.ctx
        if slot.api_key in ASKED_BY_MEMBERS and ctx.services.memberships is not None and ctx.decides_transactions:
            most = ctx.policy.max_request_elements
            ctx.services.memberships.take(ctx.client.connection, ctx.client.identity, view, most, ctx.now)
        if ctx.services.applications is None or slot.api_key not in WATCHED:
            return False
        ask = watch(
            ctx.services.applications,
            ctx.client.client_id,
            ctx.client.connection,
            view,
            ctx.policy.max_request_elements,
        )
        if ask is None:
            return False
        self.coordinator_calls.append(
            CoordinatorCall(slot, DEFAULT, Exchange(ask.request, slot.api_version, slot.api_version), ask)
        )
        return True

    def _send_on(self, slot: Slot, ask: TransactionalProduce | ImplicitProduce) -> None:
        """A Produce request for the coordinator of its transaction."""
        exchange = Exchange(None, slot.api_version, slot.api_version)
        self.coordinator_calls.append(CoordinatorCall(slot, handler_of(slot.api_key), exchange, ask))

    def _relay(self, slot: Slot, frame: bytearray) -> None:
        if slot.api_key == ApiKey.SASL_HANDSHAKE and slot.api_version == 0:
            self._tokens = BareTokens.after_handshake(frame)
            frame[6:8] = b"\x00\x01"  # v1 is the same on the wire, and lets tokens travel in SaslAuthenticate
        self.link.relay(slot, frame)

    def _ask(self, slot: Slot, handler: Handler, exchange: Exchange, request: Message) -> None:
        exchange.asked = request.API_KEY
        self.link.ask(slot, handler, exchange, request, None if self._client_id is None else self.ctx.client.client_id)

    # -- from the broker

    def may_stream(self) -> bool:
        """Whether the next answer may go to the client piece by piece: it is relayed, and it is its turn."""
        if not self.link.expected or self.link.to_client:
            return False
        head = self.link.expected[0]
        changed = head.group is not None or head.handler is not None or head.slot.finish is not None
        if self.ctx.meter is not None and self.ctx.meter.limits_answers:
            return False
        return not changed and not head.token and self.link.order.is_next(head.slot)

    def is_next_answer(self, start: memoryview) -> bool:
        """Whether the bytes at the start of an answer, 8 or more, bear the correlation id of the next one."""
        return int.from_bytes(start[4:8], "big", signed=True) == self.link.expected[0].correlation_id

    def streamed(self, now: float, size: int) -> None:
        """Notes that the whole next answer, of ``size`` bytes, was written to the client by the shell."""
        self.link.now = now
        self.link.position += size
        head = self.link.expected.popleft()
        head.slot.streamed = size
        self.link.answer_raw(head.slot)

    def long_work(self, frame: bytearray) -> Callable[[], None] | None:
        """What takes long of an answer: another thread may do it before the answer is taken; None if nothing does.

        RemoteProtocolError: the broker can't be followed, end the connection.
        """
        if not self.link.expected or len(frame) < _PREFIX + 4:
            return None  # ``response`` says so
        head = self.link.expected[0]
        if head.handler is None or head.exchange is None or head.slot.api_key != ApiKey.FETCH:
            return None
        self._decoded = frame, _decoded(head, head.exchange, frame)
        return head.handler.long_work(self.ctx, head.exchange, self._decoded[1])

    def response(self, frame: bytearray, now: float, *, learnt: bool = False) -> list[tuple[int, Address]]:
        """Takes an answer (prefix included), or names brokers that need an address first: offer it again then.

        ``learnt``: nothing more can be done for them; those without an address are left out of the answer.

        RemoteProtocolError: the broker can't be followed, end the connection.
        """
        self.link.now = self.ctx.now = now
        if not self.link.expected:
            raise RemoteProtocolError("the broker sent an answer that nobody asked for")
        head = self.link.expected[0]
        if len(frame) < _PREFIX + 4 or _CORRELATION_ID.unpack_from(frame, 4)[0] != head.correlation_id:
            raise RemoteProtocolError("the broker's answer has another correlation id than the request")
        if head.handler is not None and head.exchange is not None:
            return self._lower(head, head.handler, head.exchange, frame, learnt)
        if head.group is not None:
            self.gate.answered(head.group, frame)
            return []
        self.link.expected.popleft()
        if head.token:
            self._token_answered(head.slot, frame)
        else:
            self.link.answer_raw(head.slot, frame)
        return []

    def _lower(
        self, head: Expected, handler: Handler, exchange: Exchange, frame: bytearray, learnt: bool
    ) -> list[tuple[int, Address]]:
        api_key = head.slot.api_key if exchange.asked is None else exchange.asked
        view = memoryview(frame)[_PREFIX:]
        body = response_header_size(api_key, exchange.upstream_version, view)
        if head.watched and not any(r.error_code for r in walk_response(view, body, exchange.upstream_version)):
            self.link.expected.popleft()
            self.link.answer_raw(head.slot, frame)
            return []
        decoded, self._decoded = self._decoded, None
        response = decoded[1] if decoded is not None and decoded[0] is frame else _decoded(head, exchange, frame)
        unknown = self.ctx.cluster.unknown(handler.brokers_in(response))
        if unknown and not learnt:
            return unknown
        self.link.expected.popleft()
        self.ctx.pipelines = bool(self.link.expected)
        lowered = handler.lower(self.ctx, exchange, response)
        self.ctx.fetched.conversions = None
        self._lowered(head.slot, handler, exchange, lowered, frame)
        return []

    def _lowered(
        self, slot: Slot, handler: Handler, exchange: Exchange, answer: Lowered, frame: bytearray | None
    ) -> None:
        if isinstance(answer, Again) and not self.link.connected:
            self.link.fail(slot)
        elif isinstance(answer, Again):
            exchange.upstream_version = exchange.upstream_version if answer.version is None else answer.version
            self._ask(slot, handler, exchange, answer.request)
        elif isinstance(answer, Park | Stable):
            self.waiting.append(Waiting(slot, handler, exchange, answer))
        elif isinstance(answer, GroupRequest):
            self.coordinator_calls.append(CoordinatorCall(slot, handler, exchange, answer))
        elif isinstance(answer, AsItIs) and frame is not None:
            self.link.answer_raw(slot, frame)
        elif isinstance(answer, Restated) and frame is not None:
            view = memoryview(frame)[_PREFIX:]
            body = _PREFIX + response_header_size(slot.api_key, exchange.upstream_version, view)
            restate(frame, body, exchange.upstream_version, answer.stable)
            self.link.answer_raw(slot, frame)
        elif isinstance(answer, Message):
            self.link.answer(slot, answer, exchange.client_version)
        self._count_conversions()

    def coordinator_call_done(self, coordinator_call: CoordinatorCall, response: Message | None, now: float) -> None:
        """Takes the coordinator's answer to a coordinator call; None if none was received: then the connection ends."""
        self.link.now = self.ctx.now = now
        if response is None:
            self.link.fail(coordinator_call.slot)
        else:
            answer = coordinator_call.handler.lower(self.ctx, coordinator_call.exchange, response)
            self._lowered(coordinator_call.slot, coordinator_call.handler, coordinator_call.exchange, answer, None)

    def resume(
        self, waiting: Waiting, now: float, told: Mapping[TopicPartition, int | None] = NOTHING_TOLD
    ) -> Waiting | None:
        """Goes on with an answer that had to wait, or says what it waits for now; may be called before its time."""
        self.link.now = self.ctx.now = now
        self.ctx.pipelines = bool(self.link.expected)
        answer = waiting.handler.resume(self.ctx, waiting.exchange, told)
        if isinstance(answer, Park):
            waiting.reason = answer
            return waiting
        self._lowered(waiting.slot, waiting.handler, waiting.exchange, answer, None)
        return None

    def upstream_lost(self) -> None:
        """Notes that the broker's connection ended. Batches are sent again; what else is owed ends the client's."""
        link = self.link
        link.connected = False
        self.gate.new_broker()
        link.to_upstream.clear()
        expected, link.expected = link.expected, deque()
        for owed in expected:
            if owed.group is not None:
                self.gate.lost(owed.group)
            else:
                link.fail(owed.slot)

    def drop(self) -> None:
        """Frees all requests and answers that the session holds, after its connection has ended."""
        self.link.drop()
        self.gate.drop()
        self._client_id = self._screening = self._decoded = self.ctx.fetched.conversions = None
        self.coordinator_calls.clear()
        self.waiting.clear()

    # -- SASL that goes through

    def _prove(self, now: float) -> Need:
        """Has the broker show that it takes requests on this connection, before anything else is done for the client.

        Only it knows when a login is over; and kproxy acts as itself where it keeps transactions or sends again.
        """
        if not self._proving:
            self._proving = True
            version = max(1, self.ctx.broker_versions.get(ApiKey.METADATA, (1, 1))[0])
            slot = Slot(ApiKey.METADATA, version, 0, now, 0, silent=True)
            self.link.order.open(slot)
            self.link.ask(slot, PROOF, Exchange(None, version, version), MetadataRequest(topics=[]), None)
        return Need.PROGRESS

    def _token(self, frame: bytearray, now: float) -> None:
        assert self._tokens is not None
        slot = Slot(ApiKey.SASL_AUTHENTICATE, 0, 0, now, len(frame))
        self.link.order.open(slot)
        request = encode_request(self._tokens.wrap(frame), 0, 0, self.ctx.client.client_id)
        self.link.expected.append(Expected(slot, 0, token=True))
        self.link.to_upstream.append(request)

    def _token_answered(self, slot: Slot, frame: bytearray) -> None:
        response = SaslAuthenticateResponse.decode(memoryview(frame)[_PREFIX + 4 :], 0)
        token = BareTokens.unwrap(response)
        if token is None:
            self.link.fail(slot)
        else:
            self.link.answer_raw(slot, token)

    def _count_conversions(self) -> None:
        for (direction, magic), (batches, records) in self.ctx.fetched.converted.items():
            self._stats.count_converted(direction, magic, batches, records)
        self.ctx.fetched.converted.clear()
        if self.ctx.fetched.stable_lags:
            self._stats.transactions.hidden_bytes += self.ctx.fetched.hidden_bytes
            for (topic, partition), lag in self.ctx.fetched.stable_lags.items():
                self._stats.transactions.stable(topic, partition, lag)
            self.ctx.fetched.hidden_bytes = 0
            self.ctx.fetched.stable_lags.clear()


def _decoded(head: Expected, exchange: Exchange, frame: bytearray) -> Message:
    """The answer of a broker, prefix included. RemoteProtocolError if it is none."""
    api_key = head.slot.api_key if exchange.asked is None else exchange.asked
    view = memoryview(frame)[_PREFIX:]
    body = response_header_size(api_key, exchange.upstream_version, view)
    return response_class(api_key).decode(view[body:], exchange.upstream_version)
