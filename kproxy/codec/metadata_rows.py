"""Metadata responses of which only the brokers are changed: what follows them stays the bytes that it was.

A response names each partition with its replicas; to decode and encode 5,000 of them takes five times as long.
"""

from struct import Struct
from typing import Final, Self

from kproxy.budget import RequestBudget
from kproxy.codec._generated.metadata import (
    MetadataResponse,
    MetadataResponseTopic,
    _read_metadata_response_broker,
    _write_metadata_response_broker,
)
from kproxy.codec.primitive_writers import write_length, write_structs
from kproxy.codec.primitives import (
    ZERO_UUID,
    Buffer,
    read_compact_nullable_string,
    read_length,
    read_nullable_string,
    read_structs,
    skip_tags,
)

_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_FIRST_CONTROLLER: Final = 1
_FIRST_CLUSTER_ID: Final = 2
_FIRST_THROTTLE: Final = 3
_FIRST_OFFLINE_REPLICAS: Final = 5
_FIRST_LEADER_EPOCH: Final = 7
_FIRST_OPERATIONS: Final = 8
_LAST_CLUSTER_OPERATIONS: Final = 10
_FIRST_FLEXIBLE: Final = 9
_FIRST_TOPIC_ID: Final = 10
_FIRST_ERROR: Final = 13
_ID_BYTES: Final = 16
#: The fewest bytes that a broker, a topic and a partition take.
_LEAST: Final = (10, 8, 18)
#: Varints below this take one byte.
_ONE_BYTE: Final = 128


class MetadataBrokers(MetadataResponse):
    """A response whose topics have error codes, names and ids, but no partitions.

    All but the brokers is written as it was read. To be written in the version in which it was read.
    """

    __slots__ = ("rest",)

    #: What follows the brokers.
    rest: memoryview

    @classmethod
    def _read(cls, buf: Buffer, pos: int, version: int, budget: RequestBudget) -> tuple[Self, int]:
        made, compact = cls(), version >= _FIRST_FLEXIBLE
        if version >= _FIRST_THROTTLE:
            (made.throttle_time_ms,) = _INT32.unpack_from(buf, pos)
            pos += _INT32.size
        length, pos = read_length(buf, pos, compact, False, _LEAST[0])
        made.brokers, pos = read_structs(buf, pos, version, length, budget, _read_metadata_response_broker)
        start = pos
        if version >= _FIRST_CLUSTER_ID:
            made.cluster_id, pos = _string(buf, pos, compact)
        if version >= _FIRST_CONTROLLER:
            (made.controller_id,) = _INT32.unpack_from(buf, pos)
            pos += _INT32.size
        length, pos = read_length(buf, pos, compact, False, _LEAST[1])
        made.topics, pos = read_structs(buf, pos, version, length, budget, _read_topic)
        if _FIRST_OPERATIONS <= version <= _LAST_CLUSTER_OPERATIONS:
            pos += _INT32.size
        if version >= _FIRST_ERROR:
            (made.error_code,) = _INT16.unpack_from(buf, pos)
            pos += _INT16.size
        if compact:
            pos = skip_tags(buf, pos)
        made.rest = memoryview(buf)[start:pos]
        return made, pos

    def _write(self, out: bytearray, version: int) -> None:
        if version >= _FIRST_THROTTLE:
            out += _INT32.pack(self.throttle_time_ms)
        brokers = write_length(out, self.brokers, version >= _FIRST_FLEXIBLE, False)
        write_structs(out, version, brokers, _write_metadata_response_broker)
        out += self.rest


def _string(buf: Buffer, pos: int, compact: bool) -> tuple[str | None, int]:
    return (read_compact_nullable_string if compact else read_nullable_string)(buf, pos)


def _read_topic(buf: Buffer, pos: int, version: int, budget: RequestBudget) -> tuple[MetadataResponseTopic, int]:
    compact, topic_id = version >= _FIRST_FLEXIBLE, ZERO_UUID
    (error_code,) = _INT16.unpack_from(buf, pos)
    name, pos = _string(buf, pos + _INT16.size, compact)
    if version >= _FIRST_TOPIC_ID:
        topic_id, pos = bytes(buf[pos : pos + _ID_BYTES]), pos + _ID_BYTES
    pos += version >= _FIRST_CONTROLLER  # whether it is internal
    length, pos = read_length(buf, pos, compact, False, _LEAST[2])
    pos = (_after_flexible if compact else _after_fixed)(buf, pos, version, length)
    if version >= _FIRST_OPERATIONS:
        pos += _INT32.size
    if compact:
        pos = skip_tags(buf, pos)
    return MetadataResponseTopic(error_code=error_code, name=name, topic_id=topic_id), pos


def _after_flexible(buf: Buffer, pos: int, version: int, partitions: int) -> int:
    """Where partitions end whose arrays have varints for lengths."""
    for _ in range(partitions):
        pos += 14  # error code, index, leader and its epoch
        for _ in range(3):  # replicas, those in sync, those offline
            count = buf[pos]
            if 0 < count < _ONE_BYTE:
                pos += 4 * count - 3
            else:
                length, pos = read_length(buf, pos, True, False, _INT32.size)
                pos += _INT32.size * length
        if buf[pos]:
            pos = skip_tags(buf, pos)
        else:
            pos += 1
    return pos


def _after_fixed(buf: Buffer, pos: int, version: int, partitions: int) -> int:
    """Where partitions end before version 9, whose arrays have lengths of 4 bytes."""
    start = 14 if version >= _FIRST_LEADER_EPOCH else 10
    arrays = 3 if version >= _FIRST_OFFLINE_REPLICAS else 2
    for _ in range(partitions):
        pos += start
        for _ in range(arrays):
            length, pos = read_length(buf, pos, False, False, _INT32.size)
            pos += _INT32.size * length
    return pos
