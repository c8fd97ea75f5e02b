"""Message sets of old formats in one Produce request, as batches of format v2: at once where that is short.

Converting takes about 1 us for each record. A long conversion is left to the shell (``Convert``), which runs it
beside its loop, so that other clients do not wait for it.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple, TypeAlias

from kproxy.codec.message_formats import ConvertedBatch, Room, to_v2
from kproxy.codec.messages import ErrorCode
from kproxy.codec.produce_layout import ProduceLayout
from kproxy.codec.records import DecompressionLimit, UnsupportedCodec
from kproxy.errors import RemoteProtocolError

#: Records within the wrappers of one request: more is answered MESSAGE_TOO_LARGE.
MOST_RECORDS: Final = 500_000
#: What is converted at once, about 20 ms: the bytes of the request, the content of its wrappers, and their records.
_SHORT_FRAME: Final = 1 << 20
_SHORT_CONTENT: Final = 2 << 20
_SHORT_RECORDS: Final = 20_000

#: The batches of a partition, none if it is empty; or the error code to answer.
ConvertedPart: TypeAlias = Sequence[ConvertedBatch] | int


class Converted(NamedTuple):
    """A request as batches of format v2."""

    #: The time that records without a timestamp got, in ms since 1970.
    arrival_ms: int
    #: In the order of the request's partitions.
    parts: Sequence[ConvertedPart]

    @property
    def size(self) -> int:
        """Bytes of all batches."""
        return sum(len(batch.data) for part in self.parts if not isinstance(part, int) for batch in part)


class Conversion:
    """What has to be done to convert one request."""

    def __init__(
        self, frame: bytearray, layout: ProduceLayout, arrival_ms: int, max_batch_bytes: int, max_bytes: int
    ) -> None:
        """``max_bytes``: what the content of all wrappers of the request may take."""
        self._view = memoryview(frame)
        self._layout = layout
        self._arrival_ms = arrival_ms
        self._max_batch_bytes = max_batch_bytes
        self._max_bytes = max_bytes

    def at_once(self) -> Converted | None:
        """The request converted; None if that would take long."""
        if len(self._view) > _SHORT_FRAME:
            return None
        short = self._max_bytes > _SHORT_CONTENT
        try:
            return self._convert(Room(min(self._max_bytes, _SHORT_CONTENT), _SHORT_RECORDS), gives_up=True)
        except DecompressionLimit:
            return None if short else self.whole()

    def whole(self) -> Converted:
        """The request converted, however long that takes; may be called in another thread."""
        return self._convert(Room(self._max_bytes, MOST_RECORDS), gives_up=False)

    def _convert(self, room: Room, *, gives_up: bool) -> Converted:
        parts: list[ConvertedPart] = []
        for place in self._layout.partitions:
            try:
                data = self._view[place.start : place.end] if place.start >= 0 else b""
                parts.append(to_v2(data, arrival_ms=self._arrival_ms, max_batch_bytes=self._max_batch_bytes, room=room))
            except DecompressionLimit:
                if gives_up:
                    raise
                parts.append(int(ErrorCode.MESSAGE_TOO_LARGE))
            except RemoteProtocolError as error:
                parts.append(_error(error))
        return Converted(self._arrival_ms, parts)


def _error(error: RemoteProtocolError) -> int:
    """What to answer a client whose message set can't be converted."""
    if isinstance(error, UnsupportedCodec):
        return int(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
    return int(ErrorCode.CORRUPT_MESSAGE)
