"""What traces receive of requests and transactions, and what is read from records: facts only, no spans."""

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from kproxy.codec.produce_layout import PartitionData, ProduceLayout, TopicRef
from kproxy.codec.records import CODEC_MASK, CorruptRecord
from kproxy.codec.topic_partition import TopicPartition
from kproxy.codec.varint import read_varint
from kproxy.txn.procedures.outside import Listener

if TYPE_CHECKING:
    from kproxy.proxy.context import Context
    from kproxy.proxy.slots import Slot


#: So many partitions of a request are recorded, and the first records of so many are read.
MOST_PLACES: Final = 32
_MOST_BATCHES: Final = 8
_MOST_HEADERS: Final = 32
_MOST_BYTES: Final = 16_384
_KEY: Final = b"traceparent"
_TRACEPARENT: Final = re.compile(rb"(?!ff)[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(?:-.*)?")
_MAGIC_AT, _ATTRIBUTES_AT, _RECORDS_AT = 16, 21, 61


class TraceParent(NamedTuple):
    """A span of somebody else's: W3C Trace Context."""

    trace_id: int
    span_id: int
    sampled: bool


@dataclass(slots=True)
class Traced:
    """What is known of a request beside its slot."""

    partitions: Sequence[PartitionData] = ()
    #: Of the records that it brings, each once.
    parents: Sequence[TraceParent] = ()
    transactional_id: str | None = None
    #: Kafka's codes in the response, 0 left out.
    errors: Collection[int] = ()

    @property
    def places(self) -> list[TopicPartition]:
        """The first partitions that it names."""
        return [(_name(one.topic), one.partition) for one in self.partitions[:MOST_PLACES]]


class Traces(Listener, Protocol):
    """Makes spans."""

    def answered(self, ctx: "Context", slot: "Slot", now: float, size: int) -> None:
        """A request was answered with ``size`` bytes, or ended its connection (``Slot.failed``); seconds."""
        ...


class NoTraces:
    """Nobody listens."""

    def answered(self, ctx: "Context", slot: "Slot", now: float, size: int) -> None:
        pass

    def begun(self, transactional_id: str, client_id: str) -> None:
        pass

    def step(self, transactional_id: str, name: str) -> None:
        pass

    def ended(self, transactional_id: str, outcome: str, places: Collection[TopicPartition]) -> None:
        pass


def traced_produce(frame: bytearray, layout: ProduceLayout, transactional_id: str | None = None) -> Traced:
    """What a Produce frame contains, for traces. Reads only the first record of a batch, and decompresses nothing."""
    found: dict[TraceParent, None] = {}
    for place in layout.partitions[:_MOST_BATCHES]:
        # To look for the word costs next to nothing; to go from field to field does.
        if place.start >= 0 and frame.find(_KEY, place.start, min(place.end, place.start + _MOST_BYTES)) >= 0:
            parent = parent_in(memoryview(frame)[place.start : place.end])
            if parent is not None:
                found[parent] = None
    return Traced(layout.partitions, tuple(found), transactional_id)


def traced_request(request: Any) -> Traced:
    """What any other request tells that had to be decoded anyway."""
    name = getattr(request, "transactional_id", None) or getattr(request, "v3_and_below_transactional_id", None)
    return Traced(transactional_id=name or None)


def parent_in(batch: memoryview) -> TraceParent | None:
    """The context that the first record of a batch bears; None without one, or if it is compressed or malformed."""
    if len(batch) <= _RECORDS_AT or batch[_MAGIC_AT] != 2 or batch[_ATTRIBUTES_AT + 1] & CODEC_MASK:
        return None
    try:
        return next((parse_traceparent(value) for key, value in _headers(batch) if key == _KEY), None)
    except (CorruptRecord, IndexError):
        return None


def parse_traceparent(value: bytes) -> TraceParent | None:
    """W3C Trace Context, section 3.2: ``00-TRACE_ID-SPAN_ID-FLAGS``; ids of zeros are none."""
    match = _TRACEPARENT.fullmatch(value)
    if match is None:
        return None
    trace_id, span_id, flags = (int(part, 16) for part in match.groups())
    return TraceParent(trace_id, span_id, bool(flags & 1)) if trace_id and span_id else None


def _headers(batch: memoryview) -> Iterator[tuple[bytes, bytes]]:
    _, pos = read_varint(batch, _RECORDS_AT)  # the record's length
    _, pos = read_varint(batch, pos + 1)  # the time follows its attributes
    _, pos = read_varint(batch, pos)  # the offset
    for _ in ("key", "value"):
        size, pos = read_varint(batch, pos)
        pos += max(size, 0)
    count, pos = read_varint(batch, pos)
    for _ in range(min(count, _MOST_HEADERS)):
        key, pos = _field(batch, pos)
        value, pos = _field(batch, pos)
        yield key, value


def _field(batch: memoryview, pos: int) -> tuple[bytes, int]:
    size, pos = read_varint(batch, pos)
    end = pos + max(size, 0)
    return bytes(batch[pos:end]), end


def _name(topic: TopicRef) -> str:
    return topic.decode("utf-8", "replace")
