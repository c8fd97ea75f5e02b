"""Each Produce request of a session: stamped, passed on or refused; its responses; and what has to be sent again."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from struct import Struct
from typing import Literal

from kproxy.budget import RequestBudget
from kproxy.codec.error_codes import error_name, is_retriable
from kproxy.codec.header import decode_request_header, encode_response, request_header_version
from kproxy.codec.messages import ApiKey, ErrorCode
from kproxy.codec.produce_layout import (
    FIRST_TOPIC_ID,
    PartitionData,
    ProduceLayout,
    transactional_id,
    walk_request,
)
from kproxy.codec.produce_shape import RequestShape
from kproxy.codec.topic_names import is_legal_topic
from kproxy.dedup.digest import Digests
from kproxy.dedup.lanes import Send, Track, TrackKey
from kproxy.dedup.producer_connection import ProducerConnection, Suspect
from kproxy.dedup.refused import Refused
from kproxy.dedup.retry_ledger import SeeEnd, Settle
from kproxy.dedup.unconfirmed import PendingProduce
from kproxy.errors import LocalProtocolError
from kproxy.proxy.commands import (
    AskCoordinator,
    AwaitEnd,
    AwaitOutcomes,
    AwaitProgress,
    Beside,
    Blocking,
    LeaseProducerId,
    OpenLog,
    Procedure,
    Resend,
    Resolve,
    WarnOfRefusal,
    WarnOfUntimed,
)
from kproxy.proxy.context import Context, Fault
from kproxy.proxy.conversion import Converted, conversion
from kproxy.proxy.coordinator_requests import ImplicitProduce, TransactionalProduce
from kproxy.proxy.handlers import handler_of
from kproxy.proxy.handlers.base import Exchange
from kproxy.proxy.implicit_produce import implicit_parts
from kproxy.proxy.kept_calls import KeptCall, RepairRequest
from kproxy.proxy.kept_gate import KeptGate
from kproxy.proxy.produce_batches import MAGIC_AT, has_kproxy_id, has_producer_id, new_batches
from kproxy.proxy.produce_calls import PartitionCall, ProduceCall, UpstreamProduce, build_response
from kproxy.proxy.producing import FIRST_V2, Producer
from kproxy.proxy.reading import Reading
from kproxy.proxy.retries import Retries, digests_in
from kproxy.proxy.routing import OWN_PREFIX
from kproxy.proxy.session_queues import Expected, Link
from kproxy.proxy.slots import Slot
from kproxy.proxy.stats import Stats
from kproxy.proxy.traces import traced_produce
from kproxy.proxy.transaction_messages import produce_parts
from kproxy.txn.procedures.captured import ImplicitTransaction
from kproxy.txn.requests import TxnRequest

_API_KEY = int(ApiKey.PRODUCE)
_CORRELATION_ID = Struct(">i")
_VERSION_AND_ID = Struct(">hi")
_PREFIX = 4
#: Of longer requests the records are not read where they may only be needed later.
_SHORT_BYTES = 16_384
_ALL = -1
_OWN_TOPICS = OWN_PREFIX.encode()
#: A client waits for its time-out, or a little longer. It must be answered before, but a broker needs time.
_TIMEOUT_SHARE = 0.9
_SHORTEST_TIMEOUT_SECONDS = 1.0
_NO_REFUSALS: Mapping[TrackKey, int] = {}


class ProduceGate:
    """What a session does with Produce requests."""

    def __init__(
        self,
        ctx: Context,
        stats: Stats,
        link: Link,
        open_slot: Callable[[Slot, int], None],
        forward: Callable[[Slot, bytearray, int], None],
        transact: Callable[[Slot, TransactionalProduce | ImplicitProduce], None],
    ) -> None:
        """``open_slot`` takes a request into the order of responses, ``forward`` sends it on as any other request.

        ``transact`` hands the batches of a transaction to kproxy's coordinator.
        """
        self._ctx = ctx
        self._policy = ctx.policy
        self._cluster = ctx.cluster
        self._stats = stats.produce
        self._retry_stats = stats.retries
        self._refusals = stats.refused.refusals
        #: The reasons of refusals that were logged for this connection.
        self._logged: set[str] = set()
        kept = ctx.services.kept
        self._kept = None if kept is None else KeptGate(ctx, kept, stats.kept)
        self._link = link
        self._open = open_slot
        self._forward = forward
        self._transact = transact
        self._shape: RequestShape | None = None
        self._shape_upstream = 0
        #: The transactional id of such requests, if kproxy was asked about its transactions.
        self._shape_name: str | None = None
        #: The time-out of the last request, and the seconds within which it has to be answered.
        self._timeout_ms = 0
        self._allowed = _SHORTEST_TIMEOUT_SECONDS
        self.producer = Producer(ctx.policy.max_in_flight, self._count_converted, self._written)
        #: This connection among those of its producer; comes before the lane.
        self.member: ProducerConnection | None = None
        #: Batches have to be sent again, by the shell; nothing is taken meanwhile.
        self.recovering = False

    def take(self, slot: Slot, frame: bytearray, body: int, upstream: int) -> Procedure | None:
        """Takes a request whose body begins at ``body`` or later, or returns the procedure that takes it.

        RemoteProtocolError: end the connection.
        """
        if request_header_version(slot.api_key, slot.api_version) == 2:
            body = _PREFIX + decode_request_header(memoryview(frame)[_PREFIX:]).size
        layout = walk_request(frame, body, slot.api_version)
        self._trace(slot, frame, body, layout)
        refusal = self._refusal(layout, slot.api_version)
        if refusal is not None:
            slot.silent = layout.acks == 0
            self._open(slot, upstream)
            self._refuse(slot, layout, *refusal)
            return None
        if layout.transactional:
            name = transactional_id(frame, body, slot.api_version)
            if name is not None and not self._ctx.may_use(name):
                slot.silent = layout.acks == 0
                self._open(slot, upstream)
                self._refuse(slot, layout, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "transactional_id")
                return None
            if name is not None and self._ctx.is_home_of(name):
                self._shape, self._shape_name = RequestShape(frame, layout, slot.api_version), name
                self._take_transactional(slot, frame, layout, name)
                return None
        # one of a transaction that is relayed is examined in full, each time: kproxy may be asked about it from then on
        self._shape = None if layout.transactional else RequestShape(frame, layout, slot.api_version)
        self._shape_upstream, self._shape_name = upstream, None
        return self._write(slot, frame, layout, upstream)

    def _trace(self, slot: Slot, frame: bytearray, body: int, layout: ProduceLayout) -> None:
        if self._link.trace is not None:
            name = transactional_id(frame, body, slot.api_version) if layout.transactional else None
            slot.traced = traced_produce(frame, layout, name)

    def _take_transactional(self, slot: Slot, frame: bytearray, layout: ProduceLayout, name: str) -> None:
        """Hands on batches of a transaction that kproxy decides, or refuses them.

        Its producer must wait for responses: else the connection ends, as a broker ends it that can't tell an error.
        """
        self._open(slot, slot.api_version)
        if layout.acks == 0:
            self._count_refusal("acks")
            self._link.fail(slot)
        elif has_kproxy_id(frame, layout):
            self._refuse(slot, layout, ErrorCode.INVALID_PRODUCER_ID_MAPPING, "forged_producer_id")
        else:
            producer, parts = produce_parts(frame, layout)
            who = TxnRequest(name, producer, self._ctx.client.connection, self._ctx.client.client_id, self._ctx.holder)
            self._transact(slot, TransactionalProduce(who, parts))

    def _capture(
        self,
        slot: Slot,
        frame: bytearray,
        layout: ProduceLayout,
        capture: ImplicitTransaction,
        converted: Converted | None,
    ) -> None:
        """Hands on batches for a transaction that was begun for their client."""
        slot.silent = layout.acks == 0
        self._open(slot, slot.api_version)
        if has_kproxy_id(frame, layout):
            self._refuse(slot, layout, ErrorCode.INVALID_PRODUCER_ID_MAPPING, "forged_producer_id")
            return
        self._charge(slot, frame, converted)
        now_ms = int(self._ctx.now * 1000)
        parts = implicit_parts(frame, layout, converted, self._count_converted)
        capture.took(self._ctx.client.connection, answered=not slot.silent)
        arrival_ms = now_ms if converted is None else converted.arrival_ms
        self._transact(slot, ImplicitProduce(capture, self._ctx.client.connection, parts, arrival_ms))

    # -- old formats

    def _when_converted(self, slot: Slot, frame: bytearray, layout: ProduceLayout, upstream: int) -> Procedure:
        """Takes a request of an old format: here, or beside the loop, it is converted first."""
        now_ms, budget = int(self._ctx.now * 1000), self._ctx.share.of_request()
        work = conversion(frame, layout, now_ms, self._policy.max_batch_bytes, budget)
        if not work.at_once():
            yield Beside(work)
        yield from self._write(slot, frame, layout, upstream, work.found) or ()

    def _charge(self, slot: Slot, frame: bytearray, converted: Converted | None) -> None:
        """Counts what was made of a request of an old format, whose slot is open."""
        if converted is not None:
            self._link.order.charge(slot, max(0, converted.size - len(frame)))

    def forget_shape(self) -> None:
        """Has the next request examined in full, whatever the last one looked like."""
        self._shape = None

    def drop(self) -> None:
        """Frees all requests that it holds, after the connection has ended."""
        self._stats.sends_in_flight -= self.producer.in_flight
        self.producer.drop()
        self._shape = None

    def take_like_the_last(self, frame: bytearray) -> Procedure | Literal[False] | None:
        """As ``take``, for a request of the same shape as the one before; False if it is not."""
        shape, name, ctx = self._shape, self._shape_name, self._ctx
        if shape is None or not (name is None or (ctx.may_use(name) and ctx.is_home_of(name))):
            return False
        layout = shape.layout(frame)
        if layout is None or not self._cluster.own_topic_ids.isdisjoint(shape.topics):
            return False
        if ctx.meter is not None:
            self._link.mute(ctx.meter.identify(_API_KEY, ctx.client.principal, ctx.client.client_id, self._ctx.now))
        slot = Slot(_API_KEY, shape.version, _CORRELATION_ID.unpack_from(frame, 8)[0], self._ctx.now, len(frame))
        if self._link.trace is not None:
            slot.traced = traced_produce(frame, layout, name)
        if name is None:
            return self._write(slot, frame, layout, self._shape_upstream)
        self._take_transactional(slot, frame, layout, name)
        return None

    def _write(
        self, slot: Slot, frame: bytearray, layout: ProduceLayout, upstream: int, converted: Converted | None = None
    ) -> Procedure | None:
        """Takes a request whose client knows nothing of transactions, or has them decided by the broker."""
        capture = self._captures(layout)
        if capture is None:
            return self._produce(slot, frame, layout, upstream, converted)
        if slot.api_version < FIRST_V2 and converted is None:
            return self._when_converted(slot, frame, layout, upstream)
        self._capture(slot, frame, layout, capture, converted)
        return None

    def _captures(self, layout: ProduceLayout) -> ImplicitTransaction | None:
        """The transaction that was begun for the client of a request, if there is one."""
        captures = self._ctx.services.implicit_transactions
        return None if captures is None or layout.transactional else captures.of(self._ctx.client.client_id)

    def _refusal(self, layout: ProduceLayout, version: int) -> tuple[int, str] | None:
        own_ids = self._cluster.own_topic_ids
        if any(place.topic.startswith(_OWN_TOPICS) or place.topic in own_ids for place in layout.partitions):
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED, "own_topic"
        if version < FIRST_TOPIC_ID and not all(is_legal_topic(place.topic) for place in layout.partitions):
            return ErrorCode.INVALID_TOPIC_EXCEPTION, "topic_name"
        if layout.acks not in (-1, 0, 1):
            return ErrorCode.INVALID_REQUIRED_ACKS, "acks"
        return None

    def _produce(
        self, slot: Slot, frame: bytearray, layout: ProduceLayout, upstream: int, converted: Converted | None
    ) -> Procedure | None:
        slot.silent = layout.acks == 0
        stamps = self._policy.idempotence or upstream != slot.api_version
        counts = new_batches(frame, layout)
        if not stamps or layout.transactional or (counts is None and has_producer_id(frame, layout)):
            kept = self._kept
            if kept is not None:
                if kept.awaits_owner(frame, layout):
                    return self._when_open(slot, frame, layout, upstream)
                if kept.waits_for_first(frame, layout):
                    return self._after_first(kept, slot, frame, layout, upstream)
            self._pass(slot, frame, layout, upstream)
            return None
        if slot.api_version < FIRST_V2 and converted is None:
            return self._when_converted(slot, frame, layout, upstream)
        member = self.member
        if member is None or self.producer.lane is None:
            return self._when_leased(slot, frame, layout, upstream, converted)
        call = ProduceCall(slot, slot.api_version, upstream, layout.timeout_ms, self._ctx.client.client_id)
        if not slot.silent:
            owed = self._owe(call, layout)
            if not self._is_calm(member, owed, frame):
                return self._when_compared(member, call, owed, frame, layout, counts, converted)
        self._accept(member, call, frame, layout, counts, converted)
        return None

    def _when_open(self, slot: Slot, frame: bytearray, layout: ProduceLayout, upstream: int) -> Procedure:
        """Takes a request once it is known to whom its producer ids were given."""
        yield OpenLog()
        yield from self._write(slot, frame, layout, upstream) or ()

    def _after_first(
        self, kept: KeptGate, slot: Slot, frame: bytearray, layout: ProduceLayout, upstream: int
    ) -> Procedure:
        """Takes a request once the one before it is answered that may be the first of its producer."""
        while kept.is_waiting:
            yield AwaitProgress()
        yield from self._write(slot, frame, layout, upstream) or ()

    @property
    def is_waiting(self) -> bool:
        """Whether the request at hand waits for the response to one before."""
        return self._kept is not None and self._kept.is_waiting

    def _when_leased(
        self, slot: Slot, frame: bytearray, layout: ProduceLayout, upstream: int, converted: Converted | None
    ) -> Procedure:
        """Takes a request once there is a producer id."""
        yield LeaseProducerId()
        yield from self._write(slot, frame, layout, upstream, converted) or ()

    def _when_compared(
        self,
        member: ProducerConnection,
        call: ProduceCall,
        owed: PendingProduce,
        frame: bytearray,
        layout: ProduceLayout,
        counts: list[int] | None,
        converted: Converted | None,
    ) -> Procedure:
        """Takes a request that may repeat unconfirmed batches, once it can be compared with them."""
        reading: Reading | None = None
        retries, calm = None, False
        while not calm:
            need = self._prerequisite(member, owed)
            if need is None:
                if not self._is_concerned(member, owed, frame):
                    break
                if reading is None:
                    reading = self._reading(frame, layout, converted)
                if reading.at_once():
                    retries = Retries(member, owed, self._ctx.now, reading, self._retry_stats)
                    break
                need = Beside(reading)
            yield need
            if self._captures(layout) is not None:
                yield from self._write(call.slot, frame, layout, call.upstream_version, converted) or ()
                return
            owed = self._owe(call, layout)
            calm = self._is_calm(member, owed, frame)
        self._accept(member, call, frame, layout, counts, converted, retries, calm=calm)

    def _accept(
        self,
        member: ProducerConnection,
        call: ProduceCall,
        frame: bytearray,
        layout: ProduceLayout,
        counts: list[int] | None,
        converted: Converted | None,
        retries: Retries | None = None,
        *,
        calm: bool = True,
    ) -> None:
        """Takes a request that has nothing more to wait for."""
        if call.owed is not None and converted is None and member.ledger.overtakes_any(member):
            call.owed.records = self._short_records(frame, layout)
        self._open(call.slot, call.upstream_version)
        refused = _NO_REFUSALS
        if self.producer.refusals.some or member.ledger.refused:
            refused = self._refused(member, frame, layout, call.owed)
        if counts and calm and not refused and self._sent_whole(member, call, frame, layout, counts):
            return
        self._charge(call.slot, frame, converted)
        self.producer.accept(call, frame, layout, converted, retries, refused)
        self._accepted(member, call, calm, retries, refused)

    def _sent_whole(
        self, member: ProducerConnection, call: ProduceCall, frame: bytearray, layout: ProduceLayout, counts: list[int]
    ) -> bool:
        """Whether a request was forwarded unchanged, as nearly all are."""
        group = self.producer.accept_whole(call, frame, layout, counts)
        if group is None:
            return False
        if call.owed is not None:
            member.arrived(call.owed, self._ctx.now)
        self._send(group, frame)
        return True

    def _accepted(
        self,
        member: ProducerConnection,
        call: ProduceCall,
        calm: bool,
        retries: Retries | None,
        refused: Mapping[TrackKey, int],
    ) -> None:
        if call.owed is not None:
            member.arrived(call.owed, self._ctx.now)
            if not calm:
                new = call.owed.keys if retries is None else retries.new
                taken = [key for key in new if key not in refused]  # what was refused is repeated, and still the first
                member.ledger.claim(member, call.owed, taken, self._ctx.now)
        if retries is not None and retries.untimed is not None and not member.ledger.warned:
            member.ledger.warned = True
            self._link.commands.append(WarnOfUntimed(member, retries.untimed))
        self._send_ready()
        if not call.open:
            self._finish_calls()

    def _due(self, layout: ProduceLayout) -> float:
        """When the client has to have a response: its time counts from before the request waited in a buffer."""
        if layout.timeout_ms != self._timeout_ms:
            self._timeout_ms = layout.timeout_ms
            self._allowed = max(_TIMEOUT_SHARE * layout.timeout_ms / 1000, _SHORTEST_TIMEOUT_SECONDS)
        return self._link.empty_at + self._allowed

    def _owe(self, call: ProduceCall, layout: ProduceLayout) -> PendingProduce:
        owed = PendingProduce(layout.partitions, self._due(layout), self._ctx.received_at)
        call.owed = call.slot.owed = owed
        return owed

    def _is_calm(self, member: ProducerConnection, owed: PendingProduce, frame: bytearray) -> bool:
        """Whether a request repeats no unconfirmed batch, as far as that is seen without a comparison."""
        now, link, ledger = self._ctx.now, self._link, member.ledger
        member.review(now, link.silence, link.empty_at)
        return ledger.is_calm(member, owed) or ledger.is_cleared(member, owed, frame, now)

    def _prerequisite(self, member: ProducerConnection, owed: PendingProduce) -> Blocking | None:
        """What a comparison has to wait for."""
        if member.unseen is not None:
            raise LocalProtocolError("another connection of its client had taken its place")
        prerequisite = member.ledger.prerequisite(member, owed, self._ctx.now)
        match prerequisite:
            case None:
                return None
            case SeeEnd(until):
                return AwaitEnd(until)
            case Settle():
                return AwaitOutcomes()
        return Resolve(member, prerequisite)

    def _is_concerned(self, member: ProducerConnection, owed: PendingProduce, frame: bytearray) -> bool:
        """Whether there is anything to compare a request with."""
        for key, error in member.ledger.missing_for(member, owed.keys).items():
            self.producer.refusals.expect(key, error)
        return member.ledger.concern(member, owed, frame, self._ctx.now)

    def _reading(self, frame: bytearray, layout: ProduceLayout, converted: Converted | None) -> Reading:
        """The records of a request that has to be compared."""
        view = memoryview(frame)
        batches: list[tuple[memoryview, int | None]] = []
        if converted is None:
            batches = [(view[max(place.start, 0) : place.end], None) for place in layout.partitions]
        else:
            for place, made in zip(layout.partitions, converted.parts, strict=True):
                if not isinstance(made, int):
                    arrival_ms = None if made and frame[place.start + MAGIC_AT] else converted.arrival_ms
                    batches += [(memoryview(batch.data), arrival_ms) for batch in made]
        return Reading(batches, self._ctx.share.of_request())

    def _refused(
        self, member: ProducerConnection, frame: bytearray, layout: ProduceLayout, owed: PendingProduce | None
    ) -> Mapping[TrackKey, int]:
        if owed is None:
            return _NO_REFUSALS  # no client would receive it
        places = {place.key: place for place in layout.partitions}
        link, ledger, refusals = self._link, member.ledger, self.producer.refusals

        budget = self._ctx.share.of_request().on_loop()

        @cache
        def records(key: TrackKey) -> Digests:
            return self._records(frame, places[key], budget)

        def refuse(key: TrackKey, before: Refused | None) -> Refused | None:
            return self._note_refused(key, owed, records(key), before)

        for key in places:
            known = ledger.refused_elsewhere(member, key, self._ctx.now)
            if known is not None:
                refusals.told(key, ErrorCode.REQUEST_TIMED_OUT, known, here=False)
        found = refusals.of(places, member.origin, link.empty_at, self._ctx.now, records, refuse)
        for key in places:
            if key not in found:
                ledger.retried(member, key, self._ctx.now)
        return found

    def _note_refused(
        self, key: TrackKey, answer: PendingProduce, records: Digests, before: Refused | None = None
    ) -> Refused | None:
        """Records a refused request; None if the ledger knows its records and their order."""
        member, now = self.member, self._ctx.now
        if member is None:
            return Refused.of(None, now, answer, records, empty_at=self._link.empty_at)
        member.refused_unsent(key, records, self._ctx.received_at, now)
        if records and member.keeps_order:
            member.ledger.refuse_in_order(member, key, records, now, answer)
            return None
        refused = Refused.of(member, now, answer, records, member.ledger.depth, self._link.empty_at)
        return member.ledger.refuse(key, refused, before)

    def _short_records(self, frame: bytearray, layout: ProduceLayout) -> Mapping[TrackKey, Digests] | None:
        """The records of a short request, which need not be read back from the log then; None of any other."""
        places = {place.key: place for place in layout.partitions}
        if len(frame) > _SHORT_BYTES or len(places) < len(layout.partitions):
            return None
        budget = self._ctx.share.of_request().on_loop()
        return {key: self._records(frame, place, budget) for key, place in places.items()}

    def _records(self, frame: bytearray, place: PartitionData, budget: RequestBudget) -> Digests:
        return digests_in(frame, place, self._policy.max_batch_bytes, budget)

    # -- time

    def due(self, layout: ProduceLayout) -> float | None:
        """When a request that has to wait must be answered (``refuse_late``); None if it may wait longer."""
        return None if layout.acks == 0 else self._due(layout)

    def joins(self, frame: bytearray, layout: ProduceLayout) -> bool:
        """Whether a request that waits will be stamped, and its connection has no place among its producer's yet."""
        if self.member is not None or not (self._policy.idempotence and self._ctx.logged_in):
            return False
        return not layout.transactional and not has_producer_id(frame, layout)

    def waits(self, layout: ProduceLayout) -> None:
        """Records that a request has to wait, so that none overtakes it over another connection."""
        if self.member is not None and layout.acks != 0:
            self.member.waits({place.key for place in layout.partitions})

    def waits_no_more(self) -> None:
        """Records that it was accepted, or answered without being accepted."""
        if self.member is not None:
            self.member.waits_no_more()

    def refuse_late(self, frame: bytearray, layout: ProduceLayout) -> None:
        """Answers a request that could not be taken in time: nothing of it was written.

        Where it waits for one that the broker does not answer, none can be answered: then the connection ends. So it
        does where the client numbers its batches: a broker that knows nothing of them would take what follows first.
        """
        if self.is_waiting or (self._kept is not None and self._kept.is_numbered(frame, layout)):
            self._link.close()
            return
        version, correlation_id = _VERSION_AND_ID.unpack_from(frame, _PREFIX + 2)
        slot = Slot(_API_KEY, version, correlation_id, self._ctx.now, len(frame))
        slot.owed = PendingProduce(layout.partitions, self._due(layout))
        self._open(slot, version)
        self._answer_all(slot, layout, ErrorCode.REQUEST_TIMED_OUT)
        budget = self._ctx.share.of_request().on_loop()
        for place in layout.partitions:
            refused = self._note_refused(place.key, slot.owed, self._records(frame, place, budget))
            if refused is not None:
                self.producer.refusals.told(place.key, ErrorCode.REQUEST_TIMED_OUT, refused)
        self._stats.requests_timed_out += 1

    def time_out(self) -> None:
        """Answers requests that are open for too long, before the client gives up; kproxy keeps sending."""
        member, now = self.member, self._ctx.now
        if member is None or member.ended:
            return
        for call in self.producer.calls:
            owed = call.owed
            if owed is None or now < owed.due or owed.timed_out:
                continue
            self.producer.note_unsent(call)
            member.timed_out(owed, {(part.topic, part.index) for part in call.parts if not part.error})
            self._stats.requests_timed_out += 1
            response = build_response(call)
            call.slot.answer = (encode_response(response, call.version, call.slot.correlation_id),)
        self._link.flush()

    def _pass(self, slot: Slot, frame: bytearray, layout: ProduceLayout, upstream: int) -> None:
        self._open(slot, upstream)
        if has_kproxy_id(frame, layout):
            self._refuse(slot, layout, ErrorCode.INVALID_PRODUCER_ID_MAPPING, "forged_producer_id")
            return
        kept = self._keep(slot, frame, layout, upstream)
        if kept is False:
            return
        if layout.acks == 0:  # the broker won't answer either
            self._link.to_upstream.append(frame)
            self._link.answer_raw(slot)
        elif upstream == slot.api_version:
            exchange = Exchange(None, slot.api_version, upstream)
            handler = handler_of(slot.api_key)
            self._link.expected.append(
                Expected(slot, slot.correlation_id, handler=handler, exchange=exchange, watched=True, kept=kept)
            )
            self._link.to_upstream.append(frame)
        else:
            self._forward(slot, frame, upstream)

    def _keep(
        self, slot: Slot, frame: bytearray, layout: ProduceLayout, upstream: int
    ) -> KeptCall | Literal[False] | None:
        """What is to be known of the response to a request whose producer's numbers are kept.

        None: they are not. False: it is refused, or its batches are sent apart.
        """
        if self._kept is None or layout.transactional:
            return None
        holds = self._kept.holds(frame, layout)
        if holds is None:
            self._refuse(slot, layout, ErrorCode.INVALID_PRODUCER_ID_MAPPING, "foreign_producer_id")
            return False
        if not holds or layout.acks != _ALL or upstream != slot.api_version:
            return None
        taken = self._kept.take(frame, layout, upstream)
        if taken is None:
            return None
        call, refused = taken
        if call.wrong is None:
            return call
        self._send_apart(slot, layout, call, refused)
        return False

    def _send_apart(self, slot: Slot, layout: ProduceLayout, call: KeptCall, refused: Mapping[TrackKey, int]) -> None:
        """Sends the batches of a request one by one, as some others are refused, or may be in the log."""
        if not call.parts:
            self._answer_each(slot, layout, refused)
            return
        parts = [PartitionCall(*place.key, [], refused.get(place.key, 0)) for place in layout.partitions]
        version = slot.api_version
        response = build_response(ProduceCall(slot, version, version, layout.timeout_ms, None, parts))
        ask = RepairRequest(call, response, self._ctx.client.principal)
        exchange = Exchange(None, version, version)
        self._link.commands.append(AskCoordinator(slot, handler_of(slot.api_key), exchange, ask))

    def _refuse(self, slot: Slot, layout: ProduceLayout, error: int, reason: str) -> None:
        self._count_refusal(reason)
        self._answer_all(slot, layout, error)

    def _count_refusal(self, reason: str) -> None:
        self._refusals[reason] = self._refusals.get(reason, 0) + 1
        self._ctx.fault = Fault(reason, self._ctx.now)
        if reason not in self._logged:
            self._logged.add(reason)
            self._link.commands.append(WarnOfRefusal(reason))

    def _answer_all(self, slot: Slot, layout: ProduceLayout, error: int) -> None:
        self._answer_each(slot, layout, {place.key: error for place in layout.partitions})

    def _answer_each(self, slot: Slot, layout: ProduceLayout, errors: Mapping[TrackKey, int]) -> None:
        parts = [PartitionCall(*place.key, [], errors[place.key]) for place in layout.partitions]
        self._answer_call(ProduceCall(slot, slot.api_version, slot.api_version, layout.timeout_ms, None, parts))
        self._link.flush()

    def _send_ready(self) -> None:
        for group, frame in self.producer.ready():
            self._send(group, frame)

    def _send(self, group: UpstreamProduce, frame: bytearray | bytes) -> None:
        self._link.expected.append(Expected(group.call.slot, group.call.slot.correlation_id, group=group))
        self._link.to_upstream.append(frame)
        self._stats.sends_in_flight += len(group.sends)
        self._count_stamped(group)

    def _count_stamped(self, group: UpstreamProduce) -> None:
        self._stats.batches_stamped += len(group.sends)
        self._stats.records_stamped += sum([send.records for send in group.sends])

    def _finish_calls(self) -> None:
        for call in self.producer.finished():
            self._answer_call(call)
        self._link.flush()

    def _answer_call(self, call: ProduceCall) -> None:
        if call.owed is not None and self.member is not None:
            self._note_failures(call.owed, call.owed.sends)
            if call.raw is None:
                self._note_failures(call.owed, call.parts)  # what was not sent
            self.member.closed(call.owed, self._ctx.now)
            if call.owed.timed_out:
                return
        if call.slot.traced is not None:
            call.slot.traced.errors = {part.error for part in call.parts if part.error}
        if call.slot.silent:
            call.slot.answer = ()
        elif call.raw is not None:
            call.slot.answer = (call.raw,)
        else:
            call.slot.answer = (encode_response(build_response(call), call.version, call.slot.correlation_id),)

    def answered(self, group: UpstreamProduce, frame: bytearray) -> None:
        """Takes the broker's response to a group. RemoteProtocolError if it is malformed."""
        if self.producer.answered(group, frame):
            self._recover()
        self._link.expected.popleft()  # only now: a response that can't be read leaves the batches as good as lost
        self._stats.sends_in_flight -= len(group.sends)
        if self.producer.waits and not self.recovering:
            self._send_ready()
        if not group.call.open:
            self._finish_calls()

    def lost(self, group: UpstreamProduce) -> None:
        """Notes that the broker's connection ended before its response to a group: it has to be sent again."""
        self.producer.lost(group)
        self._stats.sends_in_flight -= len(group.sends)
        self._recover()

    def new_broker(self) -> None:
        """Notes that the next broker may serve other versions."""
        self._shape = None

    # -- sending again (``Unsettled``)

    @property
    def by_id(self) -> bool:
        return self.producer.sends_topic_ids

    @property
    def longest_timeout_ms(self) -> int:
        return self.producer.longest_timeout_ms

    def led_elsewhere(self, key: TrackKey) -> None:
        """Records that the broker of the client's port does not lead a partition: a retry is answered so."""
        self.producer.refusals.expect(key, ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def left_unfenced(self, track: Track, copies: frozenset[tuple[int, int]], now: float) -> None:
        """Has the copies fenced, and searched for, before this producer uses the partition again."""
        self._ctx.now = now
        if self.member is not None:
            epochs = [epoch for epoch, _ in copies]
            lane = Suspect(track.producer_id, min(epochs), max(epochs), copies)
            self.member.ledger.suspect(track.key, lane, now)

    def _recover(self) -> None:
        if not self.recovering:
            self.recovering = True
            self._link.commands.append(Resend(self))

    def unsettled(self) -> list[Track]:
        """The partitions whose batches have to be sent again."""
        return self.producer.lane.unsettled() if self.producer.lane is not None else []

    def progressed(self, now: float) -> None:
        """Answers what has become definite while the shell sends again."""
        self._ctx.now = now
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
        """Gives up what has no definite outcome, as it is for another kproxy to find out; the connection has to end.

        Nothing more is taken (``recovering`` stays): under a fenced producer id it would wait for ever.
        """
        self.producer.drop()

    def recovered(self, now: float) -> None:
        """Records that every outcome is known; continues with what waits."""
        self._ctx.now = now
        self.recovering = False
        self.producer.recount()
        if self._link.connected:
            self._send_ready()
        self._finish_calls()

    def _written(self, sends: Sequence[Send]) -> None:
        self._ctx.services.ends.written(sends, self._ctx.now)

    def _count_converted(self, direction: str, magic: int, batches: int, records: int) -> None:
        self._stats.count_converted(direction, magic, batches, records)

    def _note_failures(self, owed: PendingProduce, parts: Iterable[Send | PartitionCall]) -> None:
        for part in parts:
            if not part.error_code:
                continue
            self._ctx.fault = Fault(f"Produce: {error_name(part.error_code)}", self._ctx.now)
            if is_retriable(part.error_code, unknown=True):
                owed.failed = True
                owed.failures = (*owed.failures, part.key)
