"""Produce requests and responses, which kproxy reads by hand: the generated classes must read the same."""

from collections.abc import Iterator
from random import Random
from typing import Any, Final

from kproxy.budget import standalone
from kproxy.codec._generated.produce import ProduceRequest, ProduceResponse
from kproxy.codec.header import encode_request, encode_response
from kproxy.codec.produce_layout import FIRST_TOPIC_ID, ProduceLayout, transactional_id, walk_request, walk_response
from kproxy.codec.produce_shape import RequestShape
from kproxy.errors import RemoteProtocolError
from verification.fuzz.choices import Choices
from verification.fuzz.target import LONGEST, Bound, Target, expect
from verification.hostile.samples import Samples

#: Length, API key, version, correlation id and an empty client id; from version 9 on, tags.
_PLAIN_HEAD: Final = bytes(14)
_FLEXIBLE_HEAD: Final = bytes(15)
_FIRST_FLEXIBLE: Final = 9


def _head(version: int) -> bytes:
    return _FLEXIBLE_HEAD if version >= _FIRST_FLEXIBLE else _PLAIN_HEAD


def check_request(data: bytes) -> None:
    """A byte that chooses the version, then the body of a request."""
    said = Choices(data)
    version = said.number() % (ProduceRequest.MAX_VERSION + 1)
    frame = bytearray(_head(version) + said.rest())
    start = len(_head(version))
    layout = _layout(frame, start, version)
    decoded = _decoded(ProduceRequest, frame, start, version)
    expect(layout is not None or decoded is None, "a request is refused that is none the worse")
    if layout is None or decoded is None:  # tags that are skipped may be what the class refuses
        return
    name = transactional_id(frame, start, version)
    expect(name == decoded.transactional_id, "another transactional id")
    expect(layout.transactional == (decoded.transactional_id is not None), "transactional or not")
    expect((layout.acks, layout.timeout_ms) == (decoded.acks, decoded.timeout_ms), "other acks, or another time-out")
    expect(_walked(layout, frame) == _partitions(decoded, version), "other partitions")
    shaped = RequestShape(frame, layout, version).layout(bytearray(frame))
    expect(shaped is None or shaped.partitions == walk_request(frame, start, version).partitions, "another shape")


def _layout(frame: bytearray, start: int, version: int) -> ProduceLayout | None:
    try:
        layout = walk_request(frame, start, version)
        transactional_id(frame, start, version)
        return layout
    except RemoteProtocolError:
        return None


def _decoded(kind: Any, frame: bytearray, start: int, version: int) -> Any:
    try:
        return kind.decode(frame, version, standalone(), start)
    except RemoteProtocolError:
        return None


def _walked(layout: ProduceLayout, frame: bytearray) -> list[tuple[bytes, int, bytes | None]]:
    return [
        (part.topic, part.partition, None if part.start < 0 else bytes(frame[part.start : part.end]))
        for part in layout.partitions
    ]


def _partitions(request: Any, version: int) -> list[tuple[bytes, int, bytes | None]]:
    return [
        (
            topic.topic_id if version >= FIRST_TOPIC_ID else topic.name.encode(),
            part.index,
            None if part.records is None else bytes(part.records),
        )
        for topic in request.topic_data
        for part in topic.partition_data
    ]


def check_response(data: bytes) -> None:
    """A byte that chooses the version, then the body of a response."""
    said = Choices(data)
    version = said.number() % (ProduceResponse.MAX_VERSION + 1)
    head = bytes(9 if version >= _FIRST_FLEXIBLE else 8)
    frame = bytearray(head + said.rest())
    decoded = _decoded(ProduceResponse, frame, len(head), version)
    try:
        results = walk_response(frame, version)
    except RemoteProtocolError:
        expect(decoded is None, "a response was refused that is none the worse")
        return
    if decoded is None:
        return
    wanted = {
        (topic.topic_id if version >= FIRST_TOPIC_ID else topic.name.encode(), row.index): (
            row.error_code,
            row.base_offset,
            row.log_append_time_ms,
        )
        for topic in decoded.responses
        for row in topic.partition_responses
    }
    expect(results == wanted, "other results")


def check_produce(data: bytes) -> None:
    """A request, or a response: the first bit of the first byte says which."""
    if data[:1] >= b"\x80":
        check_response(bytes([data[0] & 0x7F]) + data[1:])
    else:
        check_request(data)


def _seeds() -> Iterator[bytes]:
    for seed in range(4):
        samples = Samples(Random(seed))
        for version in range(ProduceRequest.MAX_VERSION + 1):
            request = encode_request(samples.well_formed("ProduceRequest", version), version, 1, "")
            yield bytes([version]) + request[len(_head(version)) :][:LONGEST]
            response = encode_response(samples.well_formed("ProduceResponse", version), version, 1)
            yield bytes([0x80 | version]) + response[9 if version >= _FIRST_FLEXIBLE else 8 :][:LONGEST]


PRODUCE_TARGET: Final = Target(
    "produce",
    check_produce,
    _seeds,
    Bound(steps=20_000, steps_of_byte=300, memory=50_000, memory_of_byte=300),
    ("kproxy.codec.produce_layout", "kproxy.codec.produce_shape"),
    (b"\xff\xff\xff\xff", b"\0\0\0\1", b"\xff\xff", b"\x80\x80\x80\x80\x08"),
)
