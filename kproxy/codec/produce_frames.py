"""Produce requests and responses as whole frames, written at once: a message would need an object for each level.

They are, to the byte, what ``encode_request`` and ``encode_response`` make of such messages.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from struct import Struct
from typing import Final

from kproxy.codec._generated.produce import ProduceRequest
from kproxy.codec.header import encode_request
from kproxy.codec.primitive_writers import write_uvarint
from kproxy.codec.primitives import Buffer
from kproxy.codec.produce_layout import FIRST_FLEXIBLE, FIRST_TOPIC_ID, PartitionRef, TopicRef

#: Length, API key, version, correlation id: after these all requests of one sender are alike up to their topics.
_REQUEST_START: Final = Struct(">ihhi")
_RESPONSE_START: Final = Struct(">ii")
_PREFIX: Final = 4
_I16: Final = Struct(">h")
_I32: Final = Struct(">i")
_INDEX_AND_SIZE: Final = Struct(">ii")
_NO_TAGS: Final = b"\0"
_VERSIONS: Final = range(FIRST_TOPIC_ID + 1)
_HEADER_TAGS: Final = [_NO_TAGS if version >= FIRST_FLEXIBLE else b"" for version in _VERSIONS]
#: What ends a topic, and what ends a message: a response first says for how long its client is throttled, which is not
#: known yet.
_ENDS: Final = [(tags, tags) for tags in _HEADER_TAGS]
_FIRST_THROTTLED: Final = 1
_RESPONSE_ENDS: Final = [
    (tags, (bytes(4) if version >= _FIRST_THROTTLED else b"") + tags) for version, (tags, _) in enumerate(_ENDS)
]
#: A row of a response by version: index, error, offset, time of the append; then the start of the log, and the errors
#: of single records, of which nothing is said.
_RESULTS: Final[tuple[tuple[Struct, tuple[int, ...]], ...]] = (
    *[(Struct(">ihq"), ())] * 2,
    *[(Struct(">ihqq"), ())] * 3,
    *[(Struct(">ihqqq"), (-1,))] * 3,
    (Struct(">ihqqqih"), (-1, 0, -1)),
    *[(Struct(">ihqqqBBB"), (-1, 1, 0, 0))] * 5,
)
_FIRST_APPEND_TIME: Final = 2
#: Topics of which the start of a response with one row is kept, if their names are no longer than Kafka allows: clients
#: may send others.
_MOST_KNOWN: Final = 256
_LONGEST_KNOWN: Final = 249


class ProduceRequests:
    """What the Produce requests of one sender have in common: acks=all."""

    __slots__ = ("_alike", "_client_id", "_single", "_timeout_ms", "_transactional_id")

    def __init__(self, client_id: str | None, transactional_id: str | None, timeout_ms: int) -> None:
        """``timeout_ms``: of the broker."""
        self._client_id = client_id
        self._transactional_id = transactional_id
        self._timeout_ms = timeout_ms
        #: By version, what is between the correlation id and the topics.
        self._alike: dict[int, bytes] = {}
        #: The version and the topic of the last request with one batch, and what was before the index of its partition.
        self._single = (-1, b"", b"")

    def frame(self, version: int, correlation_id: int, batches: Sequence[tuple[PartitionRef, Buffer]]) -> bytes:
        """A request with one batch for each partition, in a version from 3 on, which says how topics are named."""
        if len(batches) == 1:
            ((topic, index), batch) = batches[0]
            parts = [b"", self._before_one(version, topic), *_row(version, index, batch), *_ENDS[version]]
        else:
            parts = [b"", *self._parts(version, batches)]
        size = _REQUEST_START.size - _PREFIX + sum(map(len, parts))
        parts[0] = _REQUEST_START.pack(size, ProduceRequest.API_KEY, version, correlation_id)
        return b"".join(parts)

    def _before_one(self, version: int, topic: TopicRef) -> bytes:
        known_version, known, before = self._single
        if known_version != version or known != topic:
            before = self._alike_of(version) + _count(version, 1) + _topic_start(version, topic, 1)
            self._single = version, topic, before
        return before

    def _parts(self, version: int, batches: Iterable[tuple[PartitionRef, Buffer]]) -> Iterator[Buffer]:
        topics: dict[TopicRef, list[tuple[int, Buffer]]] = {}
        for (topic, index), batch in batches:
            topics.setdefault(topic, []).append((index, batch))
        yield self._alike_of(version)
        yield _count(version, len(topics))
        end_of_topic, end = _ENDS[version]
        for topic, rows in topics.items():
            yield _topic_start(version, topic, len(rows))
            for index, batch in rows:
                yield from _row(version, index, batch)
            yield end_of_topic
        yield end

    def _alike_of(self, version: int) -> bytes:
        known = self._alike.get(version)
        if known is None:
            empty = ProduceRequest(self._transactional_id, -1, self._timeout_ms, [])
            after = len(_count(version, 0) + _ENDS[version][1])
            whole = encode_request(empty, version, 0, self._client_id)
            known = self._alike[version] = whole[_REQUEST_START.size : -after]
        return known


def _row(version: int, index: int, batch: Buffer) -> tuple[Buffer, ...]:
    if version >= FIRST_FLEXIBLE:
        return _I32.pack(index) + _uvarint(len(batch) + 1), batch, _NO_TAGS
    return _INDEX_AND_SIZE.pack(index, len(batch)), batch


def produce_response(
    version: int, correlation_id: int, results: Sequence[tuple[TopicRef, int, int, int, int]]
) -> bytes:
    """A response that says of each topic and partition the error, the offset, and the time of the append.

    Topics are named as in requests of this version, and are in the order in which they come first.
    """
    if len(results) == 1:
        ((topic, index, error, offset, append_ms),) = results
        row = _result(version, index, error, offset, append_ms)
        before = (_known_before_one if len(topic) <= _LONGEST_KNOWN else _response_before_one)(version, topic)
        parts = [b"", before, row, *_RESPONSE_ENDS[version]]
    else:
        parts = [b"", *_response_parts(version, results)]
    size = _RESPONSE_START.size - _PREFIX + sum(map(len, parts))
    parts[0] = _RESPONSE_START.pack(size, correlation_id)
    return b"".join(parts)


def _response_before_one(version: int, topic: TopicRef) -> bytes:
    return _HEADER_TAGS[version] + _count(version, 1) + _topic_start(version, topic, 1)


_known_before_one = lru_cache(maxsize=_MOST_KNOWN)(_response_before_one)


def _response_parts(version: int, results: Iterable[tuple[TopicRef, int, int, int, int]]) -> Iterator[bytes]:
    topics: dict[TopicRef, list[bytes]] = {}
    for topic, *result in results:
        topics.setdefault(topic, []).append(_result(version, *result))
    yield _HEADER_TAGS[version]
    yield _count(version, len(topics))
    end_of_topic, end = _RESPONSE_ENDS[version]
    for topic, rows in topics.items():
        yield _topic_start(version, topic, len(rows))
        yield from rows
        yield end_of_topic
    yield end


def _result(version: int, index: int, error: int, offset: int, append_ms: int) -> bytes:
    row, rest = _RESULTS[version]
    if version < _FIRST_APPEND_TIME:
        return row.pack(index, error, offset)
    return row.pack(index, error, offset, append_ms, *rest)


def _topic_start(version: int, ref: TopicRef, rows: int) -> bytes:
    """A topic as requests of the version name it, and the number of its partitions."""
    if version >= FIRST_TOPIC_ID:
        return ref + _uvarint(rows + 1)
    if version >= FIRST_FLEXIBLE:
        return _uvarint(len(ref) + 1) + ref + _uvarint(rows + 1)
    return _I16.pack(len(ref)) + ref + _I32.pack(rows)


def _count(version: int, count: int) -> bytes:
    return _uvarint(count + 1) if version >= FIRST_FLEXIBLE else _I32.pack(count)


def _uvarint(value: int) -> bytes:
    out = bytearray()
    write_uvarint(out, value)
    return bytes(out)
