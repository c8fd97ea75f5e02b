"""A span before it is encoded, and how a request becomes one.

Names of spans and attributes are those of OpenTelemetry's semantic conventions for messaging, where there is one.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from kproxy.codec.error_codes import error_name
from kproxy.codec.messages import ApiKey, api_name
from kproxy.codec.topic_partition import TopicPartition
from kproxy.proxy.context import Context
from kproxy.proxy.slots import Slot
from kproxy.proxy.traces import MOST_PLACES, Traced, TraceParent

NANOSECONDS: Final = 1_000_000_000
#: messaging.operation.name, as Kafka's clients call it, and its messaging.operation.type.
_OPERATIONS: Final = {
    ApiKey.PRODUCE: ("send", "send"),
    ApiKey.FETCH: ("poll", "receive"),
    ApiKey.SHARE_FETCH: ("poll", "receive"),
    ApiKey.OFFSET_COMMIT: ("commit", "settle"),
    ApiKey.TXN_OFFSET_COMMIT: ("commit", "settle"),
    ApiKey.SHARE_ACKNOWLEDGE: ("acknowledge", "settle"),
}
#: error.type of a request that the broker did not answer.
_NO_ANSWER: Final = "disconnected"
_NOTHING: Final = Traced()


class SpanContext(NamedTuple):
    """The ids of a span: 128 and 64 bits."""

    trace_id: int
    span_id: int


class SpanEvent(NamedTuple):
    """Something that happened within a span, ns since the epoch."""

    name: str
    at_ns: int


@dataclass(slots=True)
class Span:
    """Times are ns since the epoch; ``error`` says why it failed, None if it did not."""

    name: str
    context: SpanContext
    start_ns: int
    end_ns: int
    #: The client's span that this one serves; None for kproxy's own spans.
    parent: TraceParent | None = None
    serves: bool = True
    links: list[SpanContext] = field(default_factory=list)
    attributes: dict[str, str | int | Sequence[str]] = field(default_factory=dict)
    events: list[SpanEvent] = field(default_factory=list)
    error: str | None = None

    def fail(self, kind: str, text: str) -> None:
        """Set why it failed: ``kind`` is one of few, ``text`` is for people."""
        self.attributes["error.type"] = kind
        self.error = text


def request_span(ctx: Context, slot: Slot, now: float, size: int, context: SpanContext) -> Span:
    """The span of one answered request; its parent is the one context that its records bear, several are links."""
    traced = slot.traced or _NOTHING
    name = api_name(slot.api_key)
    span = Span(name, context, int(slot.since * NANOSECONDS), int(now * NANOSECONDS))
    if len(traced.parents) == 1:
        span.parent = traced.parents[0]
    else:
        span.links = [SpanContext(parent.trace_id, parent.span_id) for parent in traced.parents]
    span.attributes = {
        "messaging.system": "kafka",
        "messaging.client.id": ctx.client.client_id,
        "client.address": ctx.client.host,
        "kproxy.api_key": name,
        "kproxy.api_version": slot.api_version,
        "kproxy.broker_id": ctx.node_id,
        "kproxy.correlation_id": slot.correlation_id,
        "kproxy.request_bytes": slot.size,
        "kproxy.response_bytes": size,
    }
    if ctx.client.software:
        span.attributes["kproxy.client_software"] = f"{ctx.client.software} {ctx.client.software_version}".rstrip()
    if traced.transactional_id is not None:
        span.attributes["kproxy.transactional_id"] = traced.transactional_id
    span.attributes |= _broker_attributes(ctx) | partition_attributes(traced.places)
    if slot.api_key in _OPERATIONS:
        _name_operation(span, *_OPERATIONS[ApiKey(slot.api_key)])
    if slot.failed:
        span.fail(_NO_ANSWER, "the broker did not answer; the connection was closed")
    elif traced.errors:
        names = [error_name(code) for code in sorted(traced.errors)]
        span.fail(names[0], ", ".join(names))
    return span


def _broker_attributes(ctx: Context) -> dict[str, str | int | Sequence[str]]:
    """The address of the broker, where Metadata names it."""
    broker = ctx.services.cluster.brokers.get(ctx.node_id)
    return {} if broker is None else {"server.address": broker.address.host, "server.port": broker.address.port}


def _name_operation(span: Span, name: str, kind: str) -> None:
    """Name a span by its operation and by what that is for: one topic, else the broker."""
    known = span.attributes
    known["messaging.operation.name"], known["messaging.operation.type"] = name, kind
    if "messaging.destination.name" in known:
        span.name = f"{name} {known['messaging.destination.name']}"
    elif "server.address" in known:
        span.name = f"{name} {known['server.address']}:{known['server.port']}"
    else:
        span.name = name


def partition_attributes(partitions: Iterable[TopicPartition]) -> dict[str, str | int | Sequence[str]]:
    """The attributes that say which partitions; a topic's name where all are of one."""
    rows = sorted(partitions)[:MOST_PLACES]
    found: dict[str, str | int | Sequence[str]] = {}
    if rows:
        found["kproxy.partitions"] = [f"{topic}-{partition}" for topic, partition in rows]
    if len({topic for topic, _ in rows}) == 1:
        found["messaging.destination.name"] = rows[0][0]
    if len(rows) == 1:
        found["messaging.destination.partition.id"] = str(rows[0][1])
    return found
