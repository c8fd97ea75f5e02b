"""Each Produce request of a session: stamped, passed on or refused; its answers; and what has to be sent again."""

from collections.abc import Callable
from dataclasses import dataclass
from struct import Struct

from kproxy.codec.header import decode_request_header, encode_response, request_header_version, response_header_size
from kproxy.codec.messages import ApiKey, ErrorCode
from kproxy.codec.produce import FIRST_FLEXIBLE, ProduceLayout, walk_request
from kproxy.codec.produce_shape import RequestShape
from kproxy.dedup.lanes import Track
from kproxy.proxy.batches import has_kproxy_id, has_producer_id
from kproxy.proxy.calls import Call, Group, Part, build_response
from kproxy.proxy.handlers.base import Context
from kproxy.proxy.link import Expected, Link
from kproxy.proxy.producing import Producer, ProducerLimits
from kproxy.proxy.slots import Slot
from kproxy.proxy.stats import Stats

_API_KEY = int(ApiKey.PRODUCE)
_CORRELATION_ID = Struct(">i")
_PREFIX = 4
_OWN_TOPICS = b"__kproxy_"


@dataclass(slots=True)
class SessionLimits:
    """See docs/configuration.md for the options behind these."""

    producer: ProducerLimits
    held_bytes: int
    idempotence: bool


class ProduceGate:
    """What a session does with Produce requests."""

    def __init__(
        self,
        ctx: Context,
        limits: SessionLimits,
        stats: Stats,
        link: Link,
        open_slot: Callable[[Slot, int], None],
        forward: Callable[[Slot, bytearray, int], None],
    ) -> None:
        """``open_slot`` takes a request into the order of answers, ``forward`` sends it on as any other request."""
        self._ctx = ctx
        self._limits = limits
        self._stats = stats
        self._link = link
        self._open = open_slot
        self._forward = forward
        self._shape: RequestShape | None = None
        self._shape_upstream = 0
        self.producer = Producer(limits.producer, self._count_converted)
        #: Batches have to be sent again, by the shell; nothing is taken meanwhile.
        self.recovering = False

    def take(self, slot: Slot, frame: bytearray, body: int, upstream: int) -> bool:
        """Takes a request whose body begins at ``body`` or later; False if a lane must be leased first.

        RemoteProtocolError: end the connection.
        """
        if request_header_version(slot.api_key, slot.api_version) == 2:
            body = _PREFIX + decode_request_header(memoryview(frame)[_PREFIX:]).size
        layout = walk_request(frame, body, slot.api_version)
        refusal = self._refusal(layout)
        if refusal is not None:
            slot.silent = layout.acks == 0
            self._open(slot, upstream)
            self._refuse(slot, layout, *refusal)
            return True
        self._shape, self._shape_upstream = RequestShape.of(frame, layout, slot.api_version), upstream
        return self._produce(slot, frame, layout, upstream)

    def take_like_the_last(self, frame: bytearray) -> bool | None:
        """As ``take``, for a request of the same shape as the one before; None if it is not."""
        shape = self._shape
        if shape is None:
            return None
        layout = shape.layout(frame)
        if layout is None:
            return None
        slot = Slot(_API_KEY, shape.version, _CORRELATION_ID.unpack_from(frame, 8)[0], self._link.now, len(frame))
        return self._produce(slot, frame, layout, self._shape_upstream)

    def _refusal(self, layout: ProduceLayout) -> tuple[int, str] | None:
        own_ids = self._ctx.cluster.own_topic_ids
        if any(place.topic.startswith(_OWN_TOPICS) or place.topic in own_ids for place in layout.partitions):
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED, "own_topic"
        if layout.acks not in (-1, 0, 1):
            return ErrorCode.INVALID_REQUIRED_ACKS, "acks"
        return None

    def _produce(self, slot: Slot, frame: bytearray, layout: ProduceLayout, upstream: int) -> bool:
        slot.silent = layout.acks == 0
        stamps = self._limits.idempotence or upstream != slot.api_version
        if not stamps or layout.transactional or has_producer_id(frame, layout):
            self._pass(slot, frame, layout, upstream)
            return True
        if self.producer.lane is None:
            return False
        self._open(slot, upstream)
        call = Call(slot, slot.api_version, upstream, layout.timeout_ms, self._ctx.client_id, [])
        self.producer.accept(call, frame, layout, int(self._link.now * 1000))
        self._send_ready()
        if not call.open:
            self._finish_calls()
        return True

    def _pass(self, slot: Slot, frame: bytearray, layout: ProduceLayout, upstream: int) -> None:
        self._open(slot, upstream)
        if has_kproxy_id(frame, layout):
            self._refuse(slot, layout, ErrorCode.INVALID_PRODUCER_ID_MAPPING, "forged_producer_id")
            return
        if layout.acks == 0:  # the broker won't answer either
            self._link.to_upstream.append(frame)
            self._link.answer_raw(slot)
            return
        self._forward(slot, frame, upstream)
        if self._link.expected[-1].handler is not None:
            self._link.expected[-1].watched = upstream == slot.api_version

    def _refuse(self, slot: Slot, layout: ProduceLayout, error: int, reason: str) -> None:
        self._stats.refusals[reason] = self._stats.refusals.get(reason, 0) + 1
        parts = [Part(place.topic, place.partition, [], error) for place in layout.partitions]
        self._answer_call(Call(slot, slot.api_version, slot.api_version, layout.timeout_ms, None, parts))
        self._link.flush()

    def _send_ready(self) -> None:
        stats = self._stats
        for group, frame in self.producer.ready():
            self._link.expected.append(Expected(group.call.slot, group.call.slot.correlation_id, group=group))
            self._link.to_upstream.append(frame)
            stats.sends_in_flight += len(group.sends)
            self._count_stamped(group)

    def _count_stamped(self, group: Group) -> None:
        self._stats.batches_stamped += len(group.sends)
        for send in group.sends:
            self._stats.records_stamped += send.records

    def _finish_calls(self) -> None:
        for call in self.producer.finished():
            self._answer_call(call)
        self._link.flush()

    def _answer_call(self, call: Call) -> None:
        if call.slot.silent:
            call.slot.answer = ()
        elif call.raw is not None:
            call.slot.answer = (call.raw,)
        else:
            call.slot.answer = (encode_response(build_response(call), call.version, call.slot.correlation_id),)

    def answered(self, group: Group, frame: bytearray) -> None:
        """Takes the broker's answer to a group. RemoteProtocolError if it is malformed."""
        body = 2 * _PREFIX
        if group.call.upstream_version >= FIRST_FLEXIBLE:
            body = _PREFIX + response_header_size(
                ApiKey.PRODUCE, group.call.upstream_version, memoryview(frame)[_PREFIX:]
            )
        had = self.producer.in_flight
        if self.producer.answered(group, frame, body):
            self.recovering = True
        self._link.expected.popleft()  # only now: an answer that can't be read leaves the batches as good as lost
        self._stats.sends_in_flight += self.producer.in_flight - had
        if self.producer.waits and not self.recovering:
            self._send_ready()
        if not group.call.open:
            self._finish_calls()

    def lost(self, group: Group) -> None:
        """Notes that the broker's connection ended before its answer to a group: it has to be sent again."""
        had = self.producer.in_flight
        self.producer.lost(group)
        self._stats.sends_in_flight += self.producer.in_flight - had
        self.recovering = True

    def new_broker(self) -> None:
        """Notes that the next broker may serve other versions."""
        self._shape = None

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
        if self._link.connected or not self.producer.waits:
            return False
        had = self.producer.in_flight
        groups = [group for group, _ in self.producer.ready()]
        self.producer.in_flight = had
        for group in groups:
            self._count_stamped(group)
        return bool(groups)

    def abandon(self) -> None:
        """Gives up what has no definite fate, as it is for another kproxy to find out; the connection has to end."""
        self.recovering = False
        self.producer.calls.clear()

    def recovered(self) -> None:
        """Notes that every fate is definite; goes on with what waits."""
        self.recovering = False
        self.producer.recount()
        if self._link.connected:
            self._send_ready()
        self._finish_calls()

    def _count_converted(self, direction: str, magic: int, batches: int, records: int) -> None:
        self._stats.count_converted(direction, magic, batches, records)
