"""Message sets of old formats in one Produce request, as batches of format v2: at once where that is short.

Of the records in the wrappers of one request as many are converted as its budget has steps for: 500,000. With more it
is answered MESSAGE_TOO_LARGE.
"""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple, TypeAlias

from kproxy.budget import RECORD_SET_BYTES_IN_STEP, RequestBudget, UsedUp, Work
from kproxy.codec.message_formats import ConvertedBatch, to_v2
from kproxy.codec.messages import ErrorCode
from kproxy.codec.produce_layout import ProduceLayout
from kproxy.codec.records import UnsupportedCodec
from kproxy.errors import RemoteProtocolError

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


def conversion(
    frame: bytearray, layout: ProduceLayout, arrival_ms: int, max_batch_bytes: int, budget: RequestBudget
) -> Work[Converted]:
    """What has to be done to convert one request."""
    convert = partial(_convert, memoryview(frame), layout, arrival_ms, max_batch_bytes)
    return Work(budget, convert, len(frame) // RECORD_SET_BYTES_IN_STEP)


def _convert(
    view: memoryview, layout: ProduceLayout, arrival_ms: int, max_batch_bytes: int, budget: RequestBudget
) -> Converted:
    parts: list[ConvertedPart] = []
    for place in layout.partitions:
        try:
            data = view[place.start : place.end] if place.start >= 0 else b""
            parts.append(to_v2(data, arrival_ms=arrival_ms, max_batch_bytes=max_batch_bytes, budget=budget))
        except UsedUp:
            if budget.is_part:
                raise
            parts.append(int(ErrorCode.MESSAGE_TOO_LARGE))
        except RemoteProtocolError as error:
            parts.append(_error(error))
    return Converted(arrival_ms, parts)


def _error(error: RemoteProtocolError) -> int:
    """What to answer a client whose message set can't be converted."""
    if isinstance(error, UnsupportedCodec):
        return int(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
    return int(ErrorCode.CORRUPT_MESSAGE)
