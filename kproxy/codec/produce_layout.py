"""A walk over Produce requests and answers that touches no record: the hot path, written by hand.

The generated classes of API key 0 say the same in general; these functions exist because each Produce request of every
client passes through them (KIP-98 ``ProduceRequest`` v0-v13, KIP-516 topic ids from v13).
"""

import struct
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from kproxy.budget import TooManyElements
from kproxy.codec.accelerator import accelerated
from kproxy.errors import RemoteProtocolError

Buffer: TypeAlias = bytes | bytearray | memoryview
#: A topic as it stands on the wire: its name in UTF-8 (v0-v12) or its 16-byte id (v13 and later).
TopicRef: TypeAlias = bytes
PartitionRef: TypeAlias = tuple[TopicRef, int]

FIRST_FLEXIBLE = 9
FIRST_TOPIC_ID = 13
FIRST_TRANSACTIONAL_ID = 3
#: The partitions, and the topics, that one Produce request may name: more than a broker leads.
MOST_PARTITIONS = 10_000
#: Tagged fields in one place of a request.
_MOST_TAGS = 100
_I16 = struct.Struct(">h")
_I32 = struct.Struct(">i")
_ACKS_TIMEOUT = struct.Struct(">hi")
_INDEX_SIZE = struct.Struct(">ii")
_RESULT_V0 = struct.Struct(">ihq")
_RESULT_V2 = struct.Struct(">ihqq")
#: From version 9 on, with the log start offset and three bytes of what may follow: errors of records, a message, tags.
_RESULT_V9 = struct.Struct(">ihqq8x3s")
_NOTHING_MORE = b"\1\0\0"
#: After length and correlation id; from version 9 on, tags come first.
_RESPONSE_BODY_AT = 8


class PartitionData(NamedTuple):
    """Where one partition's record set lies in a Produce frame: bytes [start, end), start -1 where it is null."""

    key: PartitionRef
    start: int
    end: int

    @property
    def topic(self) -> TopicRef:
        return self.key[0]

    @property
    def partition(self) -> int:
        return self.key[1]


@dataclass(slots=True)
class ProduceLayout:
    """The places in a Produce frame that kproxy reads or changes."""

    transactional: bool
    acks: int
    acks_at: int
    timeout_ms: int
    partitions: list[PartitionData]


#: By topic and partition of a Produce response: error code, base offset, log append time in ms.
Results: TypeAlias = dict[PartitionRef, tuple[int, int, int]]


def walk_request(frame: Buffer, pos: int, version: int) -> ProduceLayout:
    """The layout of a Produce request whose body begins at ``pos``; RemoteProtocolError if it is malformed."""
    try:
        if version >= FIRST_FLEXIBLE:
            return _walk_flexible(frame, pos, version)
        return _walk_plain(frame, pos, version)
    except (struct.error, IndexError) as error:
        raise RemoteProtocolError(f"Produce v{version} request ends early") from error
    except UnicodeDecodeError as error:
        raise RemoteProtocolError(f"topic name in a Produce v{version} request is not UTF-8") from error


def transactional_id(frame: Buffer, pos: int, version: int) -> str | None:
    """The transactional id of a Produce request whose body begins at ``pos``, once ``walk_request`` has passed it.

    RemoteProtocolError if it is not UTF-8.
    """
    if version < FIRST_TRANSACTIONAL_ID:
        return None
    if version >= FIRST_FLEXIBLE:
        size, pos = _uvarint(frame, pos)
        size -= 1
    else:
        (size,) = _I16.unpack_from(frame, pos)
        pos += 2
    if size < 0:
        return None
    try:
        return bytes(frame[pos : pos + size]).decode()
    except UnicodeDecodeError as error:
        raise RemoteProtocolError(f"transactional id in a Produce v{version} request is not UTF-8") from error


def _walk_plain(frame: Buffer, pos: int, version: int) -> ProduceLayout:
    end, transactional = len(frame), False
    if version >= FIRST_TRANSACTIONAL_ID:
        (size,) = _I16.unpack_from(frame, pos)
        transactional = size >= 0
        pos += 2 + max(size, 0)
    acks_at = pos
    acks, timeout_ms = _ACKS_TIMEOUT.unpack_from(frame, pos)
    (topics,) = _I32.unpack_from(frame, pos + 6)
    pos += 10
    partitions: list[PartitionData] = []
    for _ in range(_few(topics, end - pos, MOST_PARTITIONS)):
        (size,) = _I16.unpack_from(frame, pos)
        pos += 2
        topic, pos = _name(frame, pos, size)
        topic.decode()  # a broker could read another name than the response has
        (count,) = _I32.unpack_from(frame, pos)
        pos += 4
        for _ in range(_few(count, end - pos, MOST_PARTITIONS - len(partitions))):
            index, size = _INDEX_SIZE.unpack_from(frame, pos)
            pos += 8
            if size < 0:
                partitions.append(PartitionData((topic, index), -1, -1))
                continue
            partitions.append(PartitionData((topic, index), pos, pos + size))
            pos += size
            if pos > end:
                raise RemoteProtocolError(f"record set of {size} bytes ends after its frame")
    if pos != end:
        raise RemoteProtocolError(f"{end - pos} bytes after the end of a Produce v{version} request")
    return ProduceLayout(transactional, acks, acks_at, timeout_ms, partitions)


def _walk_flexible(frame: Buffer, pos: int, version: int) -> ProduceLayout:
    size, pos = _uvarint(frame, pos)
    transactional = size > 0
    acks_at = pos = pos + max(size - 1, 0)
    acks, timeout_ms = _ACKS_TIMEOUT.unpack_from(frame, pos)
    partitions = flexible_partitions(frame, pos + _ACKS_TIMEOUT.size, version, PartitionData)
    return ProduceLayout(transactional, acks, acks_at, timeout_ms, partitions)


@accelerated
def flexible_partitions(frame: Buffer, pos: int, version: int, made: type[PartitionData]) -> list[PartitionData]:
    """The partitions from version 9 on; ``pos``: where the topics begin; ``made``: ``PartitionData``.

    Raises what ``walk_request`` catches, or RemoteProtocolError, if the rest of the frame is malformed.
    """
    end = len(frame)
    topics, pos = _uvarint(frame, pos)
    partitions: list[PartitionData] = []
    for _ in range(_few(topics - 1, end - pos, MOST_PARTITIONS)):
        if version >= FIRST_TOPIC_ID:
            topic, pos = _name(frame, pos, 16)
        else:
            size, pos = _uvarint(frame, pos)
            topic, pos = _name(frame, pos, size - 1)
            topic.decode()
        count, pos = _uvarint(frame, pos)
        for _ in range(_few(count - 1, end - pos, MOST_PARTITIONS - len(partitions))):
            (index,) = _I32.unpack_from(frame, pos)
            size, pos = _uvarint(frame, pos + 4)
            start, stop = (pos, pos + size - 1) if size else (-1, -1)
            pos += max(size - 1, 0)
            if pos > end:
                raise RemoteProtocolError(f"record set of {size - 1} bytes ends after its frame")
            partitions.append(made((topic, index), start, stop))
            pos = skip_tags(frame, pos)
        pos = skip_tags(frame, pos)
    pos = skip_tags(frame, pos)
    if pos != end:
        raise RemoteProtocolError(f"{end - pos} bytes after the end of a Produce v{version} request")
    return partitions


@accelerated
def walk_response(frame: Buffer, version: int) -> Results:
    """The results in a Produce response (prefix included); RemoteProtocolError if it is malformed."""
    try:
        if version >= FIRST_FLEXIBLE:
            return _walk_flexible_response(frame, skip_tags(frame, _RESPONSE_BODY_AT), version)
        return _walk_plain_response(frame, _RESPONSE_BODY_AT, version)
    except (struct.error, IndexError) as error:
        raise RemoteProtocolError(f"Produce v{version} answer ends early") from error


def _walk_plain_response(frame: Buffer, pos: int, version: int) -> Results:
    results: Results = {}
    (topics,) = _I32.unpack_from(frame, pos)
    pos += 4
    for _ in range(_bounded(topics, len(frame) - pos)):
        (size,) = _I16.unpack_from(frame, pos)
        topic, pos = _name(frame, pos + 2, size)
        (count,) = _I32.unpack_from(frame, pos)
        pos += 4
        for _ in range(_bounded(count, len(frame) - pos)):
            if version >= 2:
                index, error, offset, append_ms = _RESULT_V2.unpack_from(frame, pos)
                pos += 22
            else:
                index, error, offset = _RESULT_V0.unpack_from(frame, pos)
                append_ms = -1
                pos += 14
            pos += 8 if version >= 5 else 0
            if version >= 8:
                pos = _skip_record_errors(frame, pos)
            results[topic, index] = error, offset, append_ms
    return results


def _skip_record_errors(frame: Buffer, pos: int) -> int:
    (count,) = _I32.unpack_from(frame, pos)
    pos += 4
    for _ in range(_bounded(count, len(frame) - pos)):
        (size,) = _I16.unpack_from(frame, pos + 4)
        pos += 6 + max(size, 0)
    size = int.from_bytes(frame[pos : pos + 2], "big", signed=True)
    return pos + 2 + max(size, 0)


def _walk_flexible_response(frame: Buffer, pos: int, version: int) -> Results:
    results: Results = {}
    topics, pos = _uvarint(frame, pos)
    for _ in range(_bounded(topics - 1, len(frame) - pos)):
        size, pos = (17, pos) if version >= FIRST_TOPIC_ID else _uvarint(frame, pos)
        topic, pos = _name(frame, pos, size - 1)
        count, pos = _uvarint(frame, pos)
        for _ in range(_bounded(count - 1, len(frame) - pos)):
            index, error, offset, append_ms, more = _RESULT_V9.unpack_from(frame, pos)
            pos += _RESULT_V9.size
            if more != _NOTHING_MORE:
                pos = _skip_flexible_errors(frame, pos - len(more))
            results[topic, index] = error, offset, append_ms
        pos = skip_tags(frame, pos)
    return results


def _skip_flexible_errors(frame: Buffer, pos: int) -> int:
    errors, pos = _uvarint(frame, pos)
    for _ in range(_bounded(errors - 1, len(frame) - pos)):
        size, pos = _uvarint(frame, pos + 4)
        pos = skip_tags(frame, pos + max(size - 1, 0))
    size, pos = _uvarint(frame, pos)
    return skip_tags(frame, pos + max(size - 1, 0))


def _bounded(count: int, room: int) -> int:
    if not 0 <= count <= room:
        raise RemoteProtocolError(f"array of {count} items in {room} bytes")
    return count


def _few(count: int, room: int, most: int) -> int:
    if count > most:
        raise TooManyElements(f"a Produce request with more than {MOST_PARTITIONS} topics or partitions")
    return _bounded(count, room)


def _name(frame: Buffer, pos: int, size: int) -> tuple[TopicRef, int]:
    if size < 0 or pos + size > len(frame):
        raise RemoteProtocolError(f"topic of {size} bytes ends after its frame")
    return bytes(frame[pos : pos + size]), pos + size


def _uvarint(frame: Buffer, pos: int) -> tuple[int, int]:
    byte: int = frame[pos]
    if byte < 0x80:
        return byte, pos + 1
    value, shift = byte & 0x7F, 7
    while True:
        pos += 1
        byte = frame[pos]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, pos + 1
        shift += 7
        if shift > 28:
            raise RemoteProtocolError("unsigned varint of more than 5 bytes")


def skip_tags(frame: Buffer, pos: int) -> int:
    """The position after a section of tagged fields (KIP-482) that begins at ``pos``."""
    if not frame[pos]:
        return pos + 1  # none, as nearly always
    count, pos = _uvarint(frame, pos)
    if count > _MOST_TAGS:
        raise RemoteProtocolError(f"{count} tagged fields in one place of a Produce request")
    for _ in range(count):
        _, pos = _uvarint(frame, pos)
        size, pos = _uvarint(frame, pos)
        pos += size
        if pos > len(frame):
            raise RemoteProtocolError(f"tagged field of {size} bytes ends after its frame")
    return pos
