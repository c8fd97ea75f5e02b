"""A shortcut for Produce requests that begin like the one before: most producers change only the record sets.

Nothing is decided here that ``kproxy.codec.produce_layout`` would not say, too; a frame of another shape gets None.
"""

import struct
from collections.abc import Mapping
from typing import Final

from kproxy.codec.accelerator import accelerated
from kproxy.codec.produce_layout import FIRST_FLEXIBLE, FIRST_TOPIC_ID, PartitionData, ProduceLayout, TopicRef

_API_AND_VERSION: Final = slice(4, 8)
_CLIENT_ID_AT: Final = 12
_ACKS_AND_TIMEOUT_BYTES: Final = 6
_TOPIC_ID_BYTES: Final = 16
#: Topics, and partitions of one, that this shortcut knows: a varint of one byte counts them.
_MOST: Final = 0x7E
_I16: Final = struct.Struct(">h")
_I32: Final = struct.Struct(">i")
_INDEX_AND_SIZE: Final = struct.Struct(">ii")
#: A partition, and the varint after it: three bytes of it are enough for batches of up to 2 MiB.
_INDEX_AND_VARINT: Final = struct.Struct(">iBBB")


class _OtherShape(Exception):
    """The frame needs the whole walk."""


class RequestShape:
    """What the Produce requests of a client have in common: all bytes before their topics, and the topics' names.

    The partitions, their order, and the sizes of the record sets may change from one request to the next.
    """

    __slots__ = ("_api", "_head", "_layout", "_topics_at", "topics", "version")

    def __init__(self, frame: bytearray, layout: ProduceLayout, version: int) -> None:
        """Of a frame (prefix included), as ``walk_request`` saw it."""
        self.version = version
        self._layout = layout
        self.topics = {place.topic: place.topic for place in layout.partitions}
        self._topics_at = layout.acks_at + _ACKS_AND_TIMEOUT_BYTES
        self._api = frame[_API_AND_VERSION]
        self._head = frame[_CLIENT_ID_AT : self._topics_at]

    def layout(self, frame: bytearray) -> ProduceLayout | None:
        """The layout of a frame of this shape, whatever its correlation id and records; good until the next call."""
        if frame[_CLIENT_ID_AT : self._topics_at] != self._head or frame[_API_AND_VERSION] != self._api:
            return None
        try:
            if self.version >= FIRST_FLEXIBLE:
                name_bytes = _TOPIC_ID_BYTES if self.version >= FIRST_TOPIC_ID else 0
                self._layout.partitions = walk_flexible(frame, self._topics_at, name_bytes, self.topics, PartitionData)
            else:
                self._layout.partitions = self._plain(frame)
        except (struct.error, IndexError, _OtherShape):
            return None
        return self._layout

    def _plain(self, frame: bytearray) -> list[PartitionData]:
        """The partitions of versions 0 to 8."""
        places: list[PartitionData] = []
        (topics,) = _I32.unpack_from(frame, self._topics_at)
        pos = self._topics_at + 4
        for _ in _times(topics):
            (size,) = _I16.unpack_from(frame, pos)
            topic = _known(self.topics, frame, pos + 2, size)
            pos += 2 + size
            (count,) = _I32.unpack_from(frame, pos)
            pos += 4
            for _ in _times(count):
                index, size = _INDEX_AND_SIZE.unpack_from(frame, pos)
                start = pos + 8
                pos = start + size
                if size < 0 or pos > len(frame):
                    raise _OtherShape
                places.append(PartitionData((topic, index), start, pos))
        if pos != len(frame):
            raise _OtherShape
        return places


@accelerated
def walk_flexible(
    frame: bytearray, pos: int, name_bytes: int, topics: Mapping[bytes, TopicRef], made: type[PartitionData]
) -> list[PartitionData]:
    """The partitions from version 9 on: sizes and counts are varints of the number after, and there are tags.

    ``pos``: where the topics begin; ``name_bytes``: the size of a topic's name, 0 if it is before the name; ``made``:
    ``PartitionData``. Raises what ``RequestShape.layout`` catches where the frame has another shape.
    """
    places: list[PartitionData] = []
    pos += 1
    for _ in _times(frame[pos - 1] - 1):
        size = name_bytes
        if not size:
            size = frame[pos] - 1
            pos += 1
        topic = _known(topics, frame, pos, size)
        pos += size + 1
        for _ in _times(frame[pos - 1] - 1):
            index, first, second, third = _INDEX_AND_VARINT.unpack_from(frame, pos)
            if first < 0x80:
                start, size = pos + 5, first
            elif second < 0x80:
                start, size = pos + 6, first & 0x7F | second << 7
            elif third < 0x80:
                start, size = pos + 7, first & 0x7F | (second & 0x7F) << 7 | third << 14
            else:
                raise _OtherShape
            pos = start + size
            if not size or frame[pos - 1]:
                raise _OtherShape  # no record set, or tags after it
            places.append(made((topic, index), start, pos - 1))
        if frame[pos]:
            raise _OtherShape
        pos += 1
    if frame[pos] or pos + 1 != len(frame):
        raise _OtherShape
    return places


def _known(topics: Mapping[bytes, TopicRef], frame: bytearray, pos: int, size: int) -> TopicRef:
    topic = topics.get(bytes(frame[pos : pos + size]))
    if topic is None:
        raise _OtherShape
    return topic


def _times(count: int) -> range:
    if not 0 <= count <= _MOST:
        raise _OtherShape
    return range(count)
