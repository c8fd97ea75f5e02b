"""A shortcut for Produce frames that look like the one before: most producers send to one partition many times.

Nothing is decided here that ``kproxy.codec.produce_layout`` would not say, too; a frame of another shape gets None.
"""

from struct import Struct

from kproxy.codec.produce_layout import Buffer, PartitionData, PartitionResult, ProduceLayout, TopicRef

_API_AND_VERSION = slice(4, 8)
_CLIENT_ID_AT = 12
_I32 = Struct(">i")
_RESULT = Struct(">hqq")
_FIRST_APPEND_TIME = 2
_FIRST_FLEXIBLE = 9


class RequestShape:
    """The bytes that a Produce request for one partition has in common with the next one (v0-v8)."""

    __slots__ = ("_api", "_head", "_layout", "_partition", "_size_at", "_topic", "version")

    def __init__(self, frame: bytearray, layout: ProduceLayout, version: int) -> None:
        """Of a frame (prefix included) with one partition, as ``walk_request`` saw it."""
        self.version = version
        self._layout = layout
        self._topic, self._partition = layout.partitions[0][:2]
        self._size_at = layout.partitions[0].start - 4
        self._api = bytes(frame[_API_AND_VERSION])
        self._head = bytes(frame[_CLIENT_ID_AT : self._size_at])

    @classmethod
    def of(cls, frame: bytearray, layout: ProduceLayout, version: int) -> "RequestShape | None":
        """The shape of a request; None if it is not of the kind that this shortcut knows."""
        if version >= _FIRST_FLEXIBLE or len(layout.partitions) != 1 or layout.partitions[0].start < 0:
            return None
        return cls(frame, layout, version)

    def layout(self, frame: bytearray) -> ProduceLayout | None:
        """The layout of a frame of this shape, whatever its correlation id and records; good until the next call."""
        size_at = self._size_at
        if frame[_CLIENT_ID_AT:size_at] != self._head or frame[_API_AND_VERSION] != self._api:
            return None
        start, end = size_at + 4, len(frame)
        if end < start or _I32.unpack_from(frame, size_at)[0] != end - start:
            return None
        known = self._layout
        known.partitions[0] = PartitionData(self._topic, self._partition, start, end)
        return known


class ResponseShape:
    """The bytes before the result in a Produce answer for one partition (v0-v8)."""

    __slots__ = ("_head", "_partition", "_topic")

    def __init__(self, topic: TopicRef, partition: int) -> None:
        """Of an answer that names this partition alone."""
        self._topic = topic
        self._partition = partition
        self._head = _I32.pack(1) + len(topic).to_bytes(2, "big") + topic + _I32.pack(1) + _I32.pack(partition)

    def result(self, frame: Buffer, body: int, version: int) -> PartitionResult | None:
        """The result in an answer whose body begins at ``body``; None if it has another shape."""
        at = body + len(self._head)
        if not _FIRST_APPEND_TIME <= version < _FIRST_FLEXIBLE or frame[body:at] != self._head:
            return None
        if len(frame) < at + _RESULT.size:
            return None
        error_code, base_offset, log_append_time_ms = _RESULT.unpack_from(frame, at)
        return PartitionResult(self._topic, self._partition, error_code, base_offset, log_append_time_ms)
