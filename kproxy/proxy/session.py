"""One client connection, without its sockets: decides what is done with each request and each response.

The shell reports what happens by calls (``request`` from the client, ``response`` from the broker, and so on), writes
``to_client`` and ``to_upstream``, and carries out commands (``kproxy.proxy.commands``). It knows no more of a session.
"""

from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from struct import Struct
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, Protocol

from kproxy.budget import MESSAGE_BYTE_STEPS, RequestBudget, TooManyElements, is_long
from kproxy.codec._generated.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kproxy.codec._generated.produce import ProduceResponse
from kproxy.codec.fetch_restate import restate
from kproxy.codec.header import decode_request_header, response_header_size
from kproxy.codec.messages import ApiKey, Message, api_name, decode_request, request_class, response_class
from kproxy.codec.produce_layout import walk_response
from kproxy.codec.topic_partition import TopicPartition
from kproxy.codec.version_choice import VersionRange
from kproxy.dedup.lanes import Lane
from kproxy.dedup.origin import Silence
from kproxy.dedup.producer_connection import ProducerConnection
from kproxy.errors import RemoteProtocolError
from kproxy.proxy.applications import WATCHED, watch
from kproxy.proxy.client_ids import kept_client_id
from kproxy.proxy.commands import AskCoordinator, AwaitProgress, Beside, Blocking, Connect, Procedure, WaitForLog
from kproxy.proxy.context import Client, Context, Fault
from kproxy.proxy.coordinator_requests import (
    CoordinatorAnswer,
    CoordinatorRequest,
    GroupRequest,
    ImplicitProduce,
    Produced,
    TransactionalProduce,
)
from kproxy.proxy.handlers import DEFAULT, handler_of
from kproxy.proxy.handlers.api_versions import unsupported_version
from kproxy.proxy.handlers.base import Again, AsItIs, Exchange, Handler, Local, Lowered, Park, Restated, Stable
from kproxy.proxy.handlers.sasl_handlers import BEFORE_LOGIN
from kproxy.proxy.kept_calls import RepairRequest
from kproxy.proxy.memberships import ASKED_BY_MEMBERS
from kproxy.proxy.produce_gate import ProduceGate
from kproxy.proxy.relayed_login import RelayedLogin
from kproxy.proxy.routing import Address
from kproxy.proxy.session_queues import Expected, Link
from kproxy.proxy.slots import ELEMENT_BYTES, RESPONSE_ELEMENT_BYTES, Slot
from kproxy.proxy.stats import Stats
from kproxy.proxy.traces import Traces, traced_request
from kproxy.proxy.versions import FIRST_IN_KAFKA_4, HIDDEN, LOCAL, READS, TRANSACTIONS, upstream_version
from kproxy.proxy.waiting_request import WaitingRequest

if TYPE_CHECKING:
    from kproxy.proxy.authorization.access import Access
    from kproxy.proxy.authorization.screen import Screening
    from kproxy.proxy.client_login.gate import LoginGate
    from kproxy.proxy.client_login.policy import LoginPolicy

_START = Struct(">hhih")  # API key, version, correlation id, length of the client id
_CORRELATION_ID = Struct(">i")
_PREFIX = 4
#: A decoded response takes so many times the bytes that it had.
DECODED_TIMES = 20
#: The first ApiVersions version that names the client's software.
_SOFTWARE = 3
#: The first Fetch version that may name brokers' addresses in its answer (KIP-951); otherwise it equals the one before.
_FETCH_NODE_ENDPOINTS = 16
NOTHING_TOLD: Mapping[TopicPartition, int | None] = MappingProxyType({})


class InFlight(Protocol):
    """The Produce requests that have no outcome yet."""

    @property
    def lane(self) -> Lane | None:
        """The leased producer id."""

    @property
    def in_flight(self) -> int:
        """Batches that were sent to the broker and have no response."""

    @property
    def is_open(self) -> bool:
        """Whether a request has a batch without an outcome."""

    @property
    def oldest(self) -> float | None:
        """When the oldest of these requests came, in seconds; None if there is none."""

    @property
    def longest_timeout_ms(self) -> int:
        """The longest time that one of them allows the broker."""


class Session:
    """The core of one client connection."""

    def __init__(
        self,
        ctx: Context,
        stats: Stats,
        logins: "LoginPolicy | None" = None,
        traces: Traces | None = None,
    ) -> None:
        """``logins``: how the client has to log in at kproxy; None: SASL goes through to the broker.

        ``traces`` receive each request; None: no tracing.
        """
        self._ctx = ctx
        self._stats = stats
        self._client_id: bytes | None = None
        #: The name under which the client's software is counted.
        self._software = stats.clients.software.came()
        self._link = link = Link(stats.apis, ctx)
        link.meter = ctx.meter
        link.trace = None if traces is None else partial(traces.answered, ctx)
        self._relayed_login = RelayedLogin(ctx, link)
        self._login = None if logins is None else self._gate_of(logins)
        self._gate = ProduceGate(ctx, stats, link, self._open, self._forward, self._send_on)
        #: A response that was decoded before it was taken.
        self._decoded: _Decoded | None = None
        #: What the shell has to write, and then removes, and has to do.
        self.to_client, self.to_upstream, self.commands = link.to_client, link.to_upstream, link.commands
        self.producer: InFlight = self._gate.producer

    def _gate_of(self, logins: "LoginPolicy") -> "LoginGate":
        from kproxy.proxy.client_login.gate import LoginGate  # not where nobody logs in

        return LoginGate(self._ctx, self._link, self._stats.clients, logins, self._note_versions)

    # -- what is known

    @property
    def client(self) -> Client:
        return self._ctx.client

    @property
    def fault(self) -> Fault | None:
        """What went wrong last for the client."""
        return self._ctx.fault

    @property
    def used(self) -> Mapping[int, int]:
        """By API key the version of the last request."""
        return self._link.used

    @property
    def answered(self) -> int:
        """Requests answered so far."""
        return self._link.answered

    @property
    def position(self) -> int:
        """Bytes of responses so far, written or not."""
        return self._link.position

    @property
    def logs_in(self) -> bool:
        """Whether the client logs in at kproxy."""
        return self._login is not None

    @property
    def awaits_login(self) -> bool:
        """Whether it has to, and has not done so yet."""
        return self._login is not None and not self._login.passed

    # -- from the client

    @property
    def idle(self) -> bool:
        """Whether no response is owed."""
        return not len(self._link.order)

    @property
    def owed(self) -> int:
        """Answers that are owed."""
        return len(self._link.order)

    @property
    def held_bytes(self) -> int:
        """Bytes of requests that are kept until they are answered."""
        return self._ctx.share.held

    @property
    def blocked(self) -> bool:
        """Whether a response or the end of a recovery has to come before another request is taken."""
        gate = self._gate
        proving = self._relayed_login.asked and not self._ctx.logged_in
        if proving or gate.recovering or gate.producer.waits or gate.is_waiting:
            return True
        return self._ctx.share.held > self._ctx.policy.held_bytes

    def introduced(self, principal: str) -> None:
        """The client's certificate says who it is."""
        self._ctx.know(principal=principal)

    def connected(self, versions: Mapping[int, VersionRange], node_id: int) -> None:
        """There is a connection to the broker, which serves these versions."""
        self._ctx.broker_versions, self._ctx.node_id = versions, node_id
        self._link.connected = True
        if self._gate.member is not None:
            self._gate.member.moved(node_id)

    def versions_known(self, versions: Mapping[int, VersionRange], said: ApiVersionsResponse | None) -> None:
        """The brokers serve these versions; ``said``: what one of them answered."""
        self._ctx.broker_versions, self._ctx.broker_said = versions, said

    def join(self, member: ProducerConnection) -> None:
        """Gives the session its place among the connections of its producer."""
        member.moved(self._ctx.node_id)
        self._gate.member = member

    def lease(self, lane: Lane) -> None:
        """Gives the session its producer id, after its place (``join``)."""
        self._gate.producer.lane = lane

    def pipelined(self, requests: int) -> None:
        """The client has sent so many requests before it read a response to any."""
        if self._gate.member is not None:
            self._gate.member.pipelined(requests)

    def read_all(self, at: float) -> None:
        """At this time nothing more of the client was there to read: later requests have waited since then at most."""
        self._link.empty_at = at

    def look_between(self, now: float) -> bool:
        """Checks which responses have arrived; returns whether the client may not have read some of Produce."""
        member = self._gate.member
        return member is not None and member.look_between(now)

    def was_silent(self, silence: Silence) -> None:
        """The client has sent nothing for a while: later requests were written after it."""
        self._link.silence = silence

    def time_out(self, now: float) -> None:
        """Answers requests that are open for too long, before the client gives up; kproxy keeps sending."""
        self._ctx.now = now
        self._gate.time_out()

    def refused(self, reason: str, now: float) -> None:
        """The shell has refused something to the client."""
        refusals = self._stats.refused.refusals
        refusals[reason] = refusals.get(reason, 0) + 1
        self._ctx.fault = Fault(reason, now)

    def close(self) -> None:
        """The connection has to end: what is answered later is not written."""
        self._link.close()

    def client_ended(self, now: float) -> ProducerConnection | None:
        """The client's end of the connection is closed; its place among the connections of its producer."""
        member = self._gate.member
        if member is not None:
            member.end(now)
            member.drained()
        return member

    def abandon(self, now: float) -> Lane | None:
        """The connection has ended; the producer id to give back. A retry is compared with the log."""
        lane, member = self._gate.producer.lane, self.client_ended(now)
        if lane is not None and member is not None:
            member.abandon(lane, now)
        return lane

    def request(self, frame: bytearray, now: float) -> WaitingRequest | None:
        """Takes one frame (prefix included); one that has to wait is returned: the shell carries out its commands.

        RemoteProtocolError: the connection has to end.
        """
        self._ctx.now = self._ctx.received_at = now
        steps = self._begin(frame)
        if steps is None:
            return None
        steps = self._take(frame, steps)
        command = next(steps, None)
        return None if command is None else WaitingRequest(self._ctx, self._gate, frame, steps, command)

    def _begin(self, frame: bytearray) -> Procedure | None:
        """Takes a request, or returns the procedure that takes it."""
        if self.blocked:
            return self._after(AwaitProgress(), frame)
        if self._login is not None and self._login.concerns(frame):
            return self._login.take(frame)
        tokens = self._relayed_login.tokens
        if not self._link.connected:
            if tokens is None:  # a bare token has no header
                self._header(frame)
            return self._after(Connect(), frame)
        if tokens is not None and tokens.expects(frame):
            self._relayed_login.token(tokens, frame)
            return None
        if self._ctx.access is not None:
            self._know_rights(self._ctx.access)
        taken = self._gate.take_like_the_last(frame)
        return self._begin_another(frame) if taken is False else taken

    def _begin_another(self, frame: bytearray) -> Procedure | None:
        """As ``_begin``, for a request that is not like the last."""
        api_key, version, correlation_id, body = self._header(frame)
        if not self._ctx.logged_in and api_key not in BEFORE_LOGIN:
            self._relayed_login.prove()
            return self._after(AwaitProgress(), frame)
        slot = Slot(api_key, version, correlation_id, self._ctx.now, len(frame))
        upstream = self._upstream_version(slot)
        if upstream is None:
            return None
        if self._ctx.meter is not None:
            client = self._ctx.client
            self._link.mute(self._ctx.meter.identify(api_key, client.principal, client.client_id, self._ctx.now))
        if self._ctx.access is not None:
            return self._screen(slot, frame, body, upstream, self._ctx.access)
        return self._pass_on(slot, frame, body, upstream)

    def _after(self, command: Blocking, frame: bytearray) -> Procedure:
        yield command
        yield from self._begin(frame) or ()

    def _take(self, frame: bytearray, steps: Procedure | None) -> Procedure:
        """Takes a request that has begun with these steps."""
        while steps is not None:
            broker = self._ctx.broker_versions
            for command in steps:
                yield command
                while self.blocked:
                    yield AwaitProgress()
                if self._is_outdated(frame, broker):
                    steps.close()
                    steps = self._begin(frame)
                    break
            else:
                return

    def _is_outdated(self, frame: bytearray, broker: Mapping[int, VersionRange]) -> bool:
        """Whether a request has to begin again: the broker or the client's rights are no longer those it began with."""
        if self._login is not None and self._login.concerns(frame):
            return False
        if not self._link.connected or self._ctx.broker_versions is not broker:
            return True
        return self._ctx.access is not None and self._know_rights(self._ctx.access)

    def _know_rights(self, access: "Access") -> bool:
        """Whether rights have changed; no decision of before holds then."""
        client = self._ctx.client
        changed = access.renew(client.principal, client.client_id)
        if changed:
            self._gate.forget_shape()
        return changed

    def _header(self, frame: bytearray) -> tuple[int, int, int, int]:
        """API key, version, correlation id and where the body begins; the client of the frame is known from now on."""
        if len(frame) < _PREFIX + _START.size:
            raise RemoteProtocolError(f"request of {len(frame) - _PREFIX} bytes has no header")
        api_key, version, correlation_id, name_length = _START.unpack_from(frame, _PREFIX)
        body = _PREFIX + _START.size + max(name_length, 0)
        if body > len(frame):
            raise RemoteProtocolError("client id ends after its frame")
        self._note_client(bytes(frame[_PREFIX + _START.size : body]))
        return api_key, version, correlation_id, body

    def _pass_on(self, slot: Slot, frame: bytearray, body: int, upstream: int) -> Procedure | None:
        """Takes a request that the client may send."""
        if slot.api_key == ApiKey.PRODUCE:
            return self._gate.take(slot, frame, body, upstream)
        self._open(slot, upstream)
        self._forward(slot, frame, upstream)
        return None

    # -- what of a request is allowed

    def _screen(self, slot: Slot, frame: bytearray, body: int, upstream: int, access: "Access") -> Procedure | None:
        """Takes what is allowed of a request."""
        from kproxy.proxy.authorization.screen import screen, takes_long  # not where all is allowed

        access.renew(self._ctx.client.principal, self._ctx.client.client_id)
        if takes_long(frame):
            return self._screen_beside(slot, frame, body, upstream, access)
        share = self._ctx.share
        return self._screened(slot, screen(access, frame, share, share.of_request()), body, upstream, access)

    def _screen_beside(self, slot: Slot, frame: bytearray, body: int, upstream: int, access: "Access") -> Procedure:
        from kproxy.proxy.authorization.screen import LongScreening

        work = LongScreening(access, frame, self._ctx.share)
        yield Beside(work)
        yield from self._screened(slot, work.take(), body, upstream, access) or ()

    def _screened(
        self, slot: Slot, screening: "Screening", body: int, upstream: int, access: "Access"
    ) -> Procedure | None:
        self._note_refusal(access)
        slot.finish, slot.parts = screening.finish, screening.parts
        if screening.frame is not None:
            return self._pass_on(slot, screening.frame, body, upstream)
        self._refuse(slot, screening.answer)
        return None

    def _note_refusal(self, access: "Access") -> None:
        refusal, access.last_refusal = access.last_refusal, None
        if refusal is not None:
            what = f"{refusal.operation} on {refusal.resource_type} {refusal.name}"
            self._ctx.fault = Fault(f"{api_name(refusal.api_key)}: not allowed, {what}", self._ctx.now)

    def _refuse(self, slot: Slot, answer: Message | None) -> None:
        slot.since = self._ctx.now
        self._link.order.open(slot)
        self._link.order.decoded(slot, slot.parts * RESPONSE_ELEMENT_BYTES)
        if answer is None:
            self._link.fail(slot)  # as a broker does it where the client does not wait for responses
        else:
            self._link.answer(slot, answer, slot.api_version)

    def _note_client(self, name: bytes) -> None:
        if name != self._client_id:
            self._client_id = name
            self._ctx.know(client_id=kept_client_id(name.decode("utf-8", "replace")))
            self._ctx.transcode = self._ctx.policy.transcode(self._ctx.client.client_id)

    def _note_versions(self, request: ApiVersionsRequest, version: int) -> None:
        """Notes how a client asked for versions: from v3 on it names its software (KIP-511)."""
        self._ctx.know(api_versions=version)
        if version < _SOFTWARE:
            return
        name, software_version = request.client_software_name, request.client_software_version
        self._ctx.know(software=name, software_version=software_version)
        self._stats.clients.software.left(self._software)
        self._software = self._stats.clients.software.came(name, software_version)

    def _upstream_version(self, slot: Slot) -> int | None:
        """The version for the broker; None if the request was answered here. RemoteProtocolError: not served."""
        served = self._ctx.broker_versions.get(slot.api_key)
        if slot.api_key in LOCAL or (slot.api_key in TRANSACTIONS and self._ctx.decides_transactions):
            return self._own_version(slot)
        if served is None or slot.api_key in HIDDEN or slot.api_version < 0:
            raise RemoteProtocolError(f"API key {slot.api_key} v{slot.api_version} is not served")
        known = request_class(slot.api_key)
        newest = min(served[1], known.MAX_VERSION)
        if slot.api_version > newest and slot.api_key == ApiKey.API_VERSIONS:
            self._link.order.open(slot)
            self._link.answer(slot, unsupported_version(newest), 0)
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
        slot.since = self._ctx.now
        self._link.order.open(slot)
        if slot.api_version < FIRST_IN_KAFKA_4.get(slot.api_key, 0):
            self._stats.apis.observe_legacy(
                slot.api_key, slot.api_version, self._ctx.client.client_id, self._ctx.client.software
            )

    def _forward(self, slot: Slot, frame: bytearray, upstream: int) -> None:
        handler = handler_of(slot.api_key)
        version = slot.api_version
        view = memoryview(frame)[_PREFIX:]
        if self._watched(slot, view):
            return
        if not handler.rewrites(self._ctx, version, upstream) and not handler.rewrites_this(self._ctx, version, view):
            if slot.api_key == ApiKey.FETCH and version >= _FETCH_NODE_ENDPOINTS:
                frame[6:8] = (_FETCH_NODE_ENDPOINTS - 1).to_bytes(2, "big")
            self._relay(slot, frame)
            return
        header = decode_request_header(view)
        budget = self._ctx.share.of_request()
        request = decode_request(slot.api_key, view[header.size :], version, budget)
        self._link.order.charge(slot, budget.taken_elements * ELEMENT_BYTES)
        exchange = Exchange(request, version, handler.ask_version(self._ctx, version, upstream))
        if self._link.trace is not None and slot.traced is None:
            slot.traced = traced_request(request)
        if isinstance(request, ApiVersionsRequest):
            self._note_versions(request, version)
        lifted = handler.lift(self._ctx, exchange, budget)
        if isinstance(lifted, Local):
            self._link.answer(slot, lifted.answer, version)
        elif isinstance(lifted, CoordinatorRequest):
            self.commands.append(AskCoordinator(slot, handler, exchange, lifted))
        elif exchange.upstream_version == version and lifted is request:
            self._link.expected.append(Expected(slot, slot.correlation_id, handler=handler, exchange=exchange))
            self._link.to_upstream.append(frame)
        else:
            self._ask(slot, handler, exchange, lifted)

    def _watched(self, slot: Slot, view: memoryview) -> bool:
        """Looks at what consumers ask of their groups; whether the request is another's to answer."""
        ctx = self._ctx
        if slot.api_key in ASKED_BY_MEMBERS and ctx.services.memberships is not None and ctx.decides_transactions:
            ctx.services.memberships.take(
                ctx.client.connection, ctx.client.identity, view, ctx.share.of_request(), ctx.now
            )
        if ctx.services.applications is None or slot.api_key not in WATCHED:
            return False
        ask = watch(
            ctx.services.applications,
            ctx.client.client_id,
            ctx.client.connection,
            view,
            ctx.share.of_request(),
        )
        if ask is None:
            return False
        self.commands.append(
            AskCoordinator(slot, DEFAULT, Exchange(ask.request, slot.api_version, slot.api_version), ask)
        )
        return True

    def _send_on(self, slot: Slot, ask: TransactionalProduce | ImplicitProduce) -> None:
        """A Produce request for the coordinator of its transaction."""
        exchange = Exchange(None, slot.api_version, slot.api_version)
        self.commands.append(AskCoordinator(slot, handler_of(slot.api_key), exchange, ask))

    def _relay(self, slot: Slot, frame: bytearray) -> None:
        if slot.api_key == ApiKey.SASL_HANDSHAKE and slot.api_version == 0:
            self._relayed_login.handshake(frame)
        self._link.relay(slot, frame)

    def _ask(self, slot: Slot, handler: Handler, exchange: Exchange, request: Message) -> None:
        exchange.asked = request.API_KEY
        self._link.ask(
            slot, handler, exchange, request, None if self._client_id is None else self._ctx.client.client_id
        )

    # -- from the broker

    def may_stream(self) -> bool:
        """Whether the next response may go to the client piece by piece: it is relayed, and it is its turn."""
        if not self._link.expected or self._link.to_client:
            return False
        head = self._link.expected[0]
        changed = head.group is not None or head.handler is not None or head.slot.finish is not None
        if self._ctx.meter is not None and self._ctx.meter.limits_answers:
            return False
        return not changed and not head.token and self._link.order.is_next(head.slot)

    def is_next_answer(self, start: memoryview) -> bool:
        """Whether the bytes at the start of a response, 8 or more, bear the correlation id of the next one."""
        return int.from_bytes(start[4:8], "big", signed=True) == self._link.expected[0].correlation_id

    def streamed(self, now: float, size: int) -> None:
        """Notes that the whole next response, of ``size`` bytes, was written to the client by the shell."""
        self._ctx.now = now
        self._link.position += size
        head = self._link.expected.popleft()
        head.slot.streamed = size
        self._link.answer_raw(head.slot)

    def decodes(self) -> bool:
        """Whether the next response is decoded, not passed on as it is."""
        return bool(self._link.expected) and self._link.expected[0].handler is not None

    def decoded_bytes(self, frame: bytearray) -> int:
        """The most bytes that will be made of the next response, about; 0 if it is passed on as it is."""
        if not self.decodes():
            return 0
        # records are not decoded; of other fields the shortest are elements of about 20 bytes
        return len(frame) if self._link.expected[0].slot.api_key in READS else len(frame) * DECODED_TIMES

    def long_work(self, frame: bytearray) -> Callable[[], None] | None:
        """What takes long of a response: another thread may do it before the response is taken; None if nothing does.

        Decodes what is short. RemoteProtocolError: the broker can't be followed, end the connection.
        """
        if not self._link.expected or len(frame) < _PREFIX + 4:
            return None  # ``response`` says so
        head = self._link.expected[0]
        if head.handler is None or head.exchange is None or head.watched:
            return None
        budget = self._ctx.share.of_response()
        whole = partial(self._decode_whole, head, head.handler, head.exchange, frame, budget)
        if is_long(len(frame) * MESSAGE_BYTE_STEPS) and head.slot.api_key not in READS:  # long by its records
            return whole
        try:
            return self._decode(head, head.handler, head.exchange, frame, budget, budget.at_once())
        except TooManyElements:
            return whole

    def _decode(
        self,
        head: Expected,
        handler: Handler,
        exchange: Exchange,
        frame: bytearray,
        budget: RequestBudget,
        part: RequestBudget,
    ) -> Callable[[], None] | None:
        """Decodes a response with a part of its budget; what else takes long of it."""
        self._decoded = decoded = _decoded(head, exchange, frame, budget, part)
        return handler.long_work(self._ctx, exchange, decoded.message, budget)

    def _decode_whole(
        self, head: Expected, handler: Handler, exchange: Exchange, frame: bytearray, budget: RequestBudget
    ) -> None:
        work = self._decode(head, handler, exchange, frame, budget, budget)
        if work is not None:
            work()

    def response(self, frame: bytearray, now: float, *, learnt: bool = False) -> list[tuple[int, Address]]:
        """Takes a response (prefix included), or names brokers that need an address first: offer it again then.

        ``learnt``: nothing more can be done for them; those without an address are left out of the response.

        RemoteProtocolError: the broker can't be followed, end the connection.
        """
        self._ctx.now = now
        if not self._link.expected:
            raise RemoteProtocolError("the broker sent an answer that nobody asked for")
        head = self._link.expected[0]
        if len(frame) < _PREFIX + 4 or _CORRELATION_ID.unpack_from(frame, 4)[0] != head.correlation_id:
            raise RemoteProtocolError("the broker's answer has another correlation id than the request")
        if head.handler is not None and head.exchange is not None:
            return self._lower(head, head.handler, head.exchange, frame, learnt)
        if head.group is not None:
            self._gate.answered(head.group, frame)
            return []
        self._link.expected.popleft()
        if head.token:
            self._relayed_login.answered(head.slot, frame)
        else:
            self._link.answer_raw(head.slot, frame)
        return []

    def _lower(
        self, head: Expected, handler: Handler, exchange: Exchange, frame: bytearray, learnt: bool
    ) -> list[tuple[int, Address]]:
        if head.watched:
            results = walk_response(frame, exchange.upstream_version)
            if head.kept is not None:
                head.kept.answered(results, self._ctx.services.ends.lost)
            if not any(error for error, _, _ in results.values()):
                self._link.expected.popleft()
                self._link.answer_raw(head.slot, frame)
                return []
        decoded, self._decoded = self._decoded, None
        if decoded is None or decoded.frame is not frame:
            budget = self._ctx.share.of_response()
            decoded = _decoded(head, exchange, frame, budget, budget)
        response = decoded.message
        unknown = self._ctx.cluster.unknown(handler.brokers_in(response))
        if unknown and not learnt:
            self._decoded = decoded
            return unknown
        self._link.expected.popleft()
        self._link.order.decoded(head.slot, decoded.elements * RESPONSE_ELEMENT_BYTES)
        self._ctx.pipelines = bool(self._link.expected)
        lowered = handler.lower(self._ctx, exchange, response, decoded.budget)
        self._ctx.fetched.conversions = None
        if head.kept is not None and head.kept.wrong and isinstance(lowered, ProduceResponse):
            ask = RepairRequest(head.kept, lowered, self._ctx.client.principal)
            self.commands.append(AskCoordinator(head.slot, handler, exchange, ask))
        else:
            self._lowered(head.slot, handler, exchange, lowered, frame)
        return []

    def _lowered(
        self, slot: Slot, handler: Handler, exchange: Exchange, answer: Lowered, frame: bytearray | None
    ) -> None:
        if isinstance(answer, Again) and not self._link.connected:
            self._link.fail(slot)
        elif isinstance(answer, Again):
            exchange.upstream_version = exchange.upstream_version if answer.version is None else answer.version
            self._ask(slot, handler, exchange, answer.request)
        elif isinstance(answer, Park | Stable):
            self.commands.append(WaitForLog(slot, handler, exchange, answer))
        elif isinstance(answer, GroupRequest):
            self.commands.append(AskCoordinator(slot, handler, exchange, answer))
        elif isinstance(answer, AsItIs) and frame is not None:
            self._link.answer_raw(slot, frame)
        elif isinstance(answer, Restated) and frame is not None:
            view = memoryview(frame)[_PREFIX:]
            body = _PREFIX + response_header_size(slot.api_key, exchange.upstream_version, view)
            restate(frame, body, exchange.upstream_version, answer.stable)
            self._link.answer_raw(slot, frame)
        elif isinstance(answer, Message):
            self._link.answer(slot, answer, exchange.client_version)
        self._count_conversions()

    def coordinator_answered(self, call: AskCoordinator, response: CoordinatorAnswer | None, now: float) -> None:
        """Takes the coordinator's response; None if none was received: then the connection ends."""
        self._ctx.now = now
        if isinstance(response, Produced):
            self._link.answer_raw(call.slot, response.frame(call.slot.correlation_id))
        elif response is None:
            self._link.fail(call.slot)
        else:
            answer = call.handler.lower(self._ctx, call.exchange, response, self._ctx.share.of_response())
            self._lowered(call.slot, call.handler, call.exchange, answer, None)

    def encoded(self, slot: Slot, frame: bytes, now: float) -> None:
        """Takes the response to a request that was encoded in another thread."""
        self._ctx.now = now
        self._link.order.decoded(slot, len(frame))
        self._link.answer_raw(slot, frame)

    def resume(
        self, waiting: WaitForLog, now: float, told: Mapping[TopicPartition, int | None] = NOTHING_TOLD
    ) -> WaitForLog | None:
        """Continues a response that had to wait, or returns what it waits for now; may be called early."""
        self._ctx.now = now
        self._ctx.pipelines = bool(self._link.expected)
        answer = waiting.handler.resume(self._ctx, waiting.exchange, told, self._ctx.share.of_response())
        if isinstance(answer, Park):
            waiting.reason = answer
            return waiting
        self._lowered(waiting.slot, waiting.handler, waiting.exchange, answer, None)
        return None

    def disconnected(self, now: float) -> None:
        """Notes that the broker's connection ended. Batches are sent again; what else is owed ends the client's."""
        self._ctx.now = now
        link = self._link
        link.connected = False
        self._gate.new_broker()
        link.to_upstream.clear()
        expected, link.expected = link.expected, deque()
        for owed in expected:
            if owed.kept is not None:
                owed.kept.dropped()
            if owed.group is not None:
                self._gate.lost(owed.group)
            else:
                link.fail(owed.slot)

    def drop(self) -> None:
        """Frees all requests and answers that the session holds, after its connection has ended."""
        for owed in self._link.expected:
            if owed.kept is not None:
                owed.kept.dropped()
        for command in self._link.commands:
            if isinstance(command, AskCoordinator) and isinstance(command.ask, RepairRequest):
                command.ask.call.dropped()
        self._link.drop()
        self._gate.drop()
        self._client_id = self._decoded = self._ctx.fetched.conversions = None
        self._stats.clients.software.left(self._software)
        if self._ctx.meter is not None:
            self._ctx.meter.close()

    def _count_conversions(self) -> None:
        for (direction, magic), (batches, records) in self._ctx.fetched.converted.items():
            self._stats.produce.count_converted(direction, magic, batches, records)
        self._ctx.fetched.converted.clear()
        if self._ctx.fetched.stable_lags:
            self._stats.transactions.hidden_bytes += self._ctx.fetched.hidden_bytes
            for (topic, partition), lag in self._ctx.fetched.stable_lags.items():
                self._stats.transactions.stable(topic, partition, lag)
            self._ctx.fetched.hidden_bytes = 0
            self._ctx.fetched.stable_lags.clear()


class _Decoded(NamedTuple):
    """The response of a broker."""

    frame: bytearray
    message: Message
    #: Array elements that it has.
    elements: int
    #: What is left for it.
    budget: RequestBudget


def _decoded(
    head: Expected, exchange: Exchange, frame: bytearray, budget: RequestBudget, part: RequestBudget
) -> _Decoded:
    """The response of a broker, from its frame, prefix included. RemoteProtocolError if it is none."""
    api_key = head.slot.api_key if exchange.asked is None else exchange.asked
    view = memoryview(frame)[_PREFIX:]
    body = response_header_size(api_key, exchange.upstream_version, view)
    known = response_class(api_key) if head.handler is None else head.handler.read_as(api_key, exchange)
    message = known.decode(view[body:], exchange.upstream_version, part)
    if part is not budget:
        budget.take_elements(part.taken_elements)
    return _Decoded(frame, message, part.taken_elements, budget)
