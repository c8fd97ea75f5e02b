"""The batches of format v2 in a Produce frame: what their headers say, without a look at the records."""

from struct import Struct

from kproxy.codec.accelerator import accelerated
from kproxy.codec.batch import HEADER_SIZE, LOG_OVERHEAD, NO_STAMP
from kproxy.codec.messages import ErrorCode
from kproxy.codec.produce_layout import PartitionData, ProduceLayout
from kproxy.dedup.producer_ids import is_kproxy_producer_id

#: Of format v2's header: length, magic, attributes, last offset delta, the producer's stamp, record count.
_BATCH = Struct(">8xi4xb4xhi16x14si")
MAGIC_AT = 16
_PRODUCER_ID_AT = 43
_CONTROL = 0x20


@accelerated
def new_batches(frame: bytearray, layout: ProduceLayout) -> list[int] | None:
    """How many records each batch has, if all are whole, of format v2 and without a producer id; None: look closer."""
    counts: list[int] = []
    for _, start, end in layout.partitions:
        size = end - start
        if size < HEADER_SIZE:
            return None
        length, magic, attributes, last_delta, stamp, records = _BATCH.unpack_from(frame, start)
        if magic != 2 or stamp != NO_STAMP or attributes & _CONTROL:
            return None
        if length != size - LOG_OVERHEAD or not 0 < records == last_delta + 1:
            return None
        counts.append(records)
    return counts


def has_producer_id(frame: bytearray, layout: ProduceLayout) -> bool:
    """Whether a batch of a request has a producer id: its client is idempotent itself."""
    for _, start, end in layout.partitions:
        if end - start >= HEADER_SIZE and frame[start + MAGIC_AT] == 2 and frame[start + _PRODUCER_ID_AT] < 0x80:
            return True
    return False


def has_kproxy_id(frame: bytearray, layout: ProduceLayout) -> bool:
    """Whether a batch of a request has a producer id that only kproxy assigns."""
    return any(
        is_kproxy_producer_id(
            int.from_bytes(frame[place.start + _PRODUCER_ID_AT : place.start + _PRODUCER_ID_AT + 8], "big", signed=True)
        )
        for place in layout.partitions
        if place.end - place.start >= HEADER_SIZE and frame[place.start + MAGIC_AT] == 2
    )


def check_batch(frame: bytearray, place: PartitionData) -> tuple[int, int]:
    """An error for what a broker would refuse too and that can't be stamped, or 0; and the number of records."""
    if place.end - place.start < HEADER_SIZE:
        return ErrorCode.INVALID_RECORD, 0
    length, magic, attributes, last_delta, _, records = _BATCH.unpack_from(frame, place.start)
    if magic != 2:
        return ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, 0
    whole = length + LOG_OVERHEAD == place.end - place.start
    if not whole or attributes & _CONTROL or records < 1 or last_delta != records - 1:
        return ErrorCode.INVALID_RECORD, 0
    return 0, records
