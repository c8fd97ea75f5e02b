"""The batches of format v2 in a Produce frame: what their headers say, without a look at the records."""

from collections.abc import Iterator
from struct import Struct
from typing import Final, TypeAlias

from kproxy.codec.accelerator import accelerated
from kproxy.codec.batch import HEADER_SIZE, LOG_OVERHEAD, NO_STAMP
from kproxy.codec.messages import ErrorCode
from kproxy.codec.produce_layout import PartitionData, ProduceLayout
from kproxy.dedup.producer_ids import KPROXY_BIT, is_kproxy_producer_id

#: Of format v2's header: length, magic, attributes, last offset delta, the producer's stamp, record count.
_BATCH = Struct(">8xi4xb4xhi16x14si")
#: The same, with the stamp as producer id, epoch and sequence.
_STAMPED = Struct(">8xi4xb4xhi16xqhii")
MAGIC_AT = 16
_PRODUCER_ID_AT = 43
_PRODUCER_ID = Struct(">q")
#: Of the first byte of a producer id: set in each that kproxy assigns.
_KPROXYS = KPROXY_BIT >> 56
_CONTROL = 0x20
#: Error, records, attributes, producer id, epoch, first sequence.
BatchHead: TypeAlias = tuple[int, int, int, int, int, int]
_NOT_WHOLE: Final[BatchHead] = (ErrorCode.INVALID_RECORD, 0, 0, -1, -1, -1)
_ANOTHER_FORMAT: Final[BatchHead] = (ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, 0, 0, -1, -1, -1)


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
    for _, start, end in layout.partitions:
        if end - start >= HEADER_SIZE and frame[start + MAGIC_AT] == 2 and frame[start + _PRODUCER_ID_AT] & _KPROXYS:
            (producer_id,) = _PRODUCER_ID.unpack_from(frame, start + _PRODUCER_ID_AT)
            if is_kproxy_producer_id(producer_id):
                return True
    return False


def producer_ids(frame: bytearray, layout: ProduceLayout) -> Iterator[tuple[PartitionData, int]]:
    """Yield the producer id of each batch of a request; -1: it has none. Other formats have no such field."""
    for place in layout.partitions:
        _, start, end = place
        if end - start >= HEADER_SIZE and frame[start + MAGIC_AT] == 2:
            (producer_id,) = _PRODUCER_ID.unpack_from(frame, start + _PRODUCER_ID_AT)
            yield place, producer_id


def check_batch(frame: bytearray, place: PartitionData) -> tuple[int, int]:
    """An error for what a broker would refuse too and that can't be stamped, or 0; and the number of records."""
    error, records, _, _, _, _ = read_batch_head(frame, place)
    return error, records


def read_batch_head(frame: bytearray, place: PartitionData) -> BatchHead:
    """As ``check_batch``, and what the header says of the producer."""
    _, start, end = place
    if end - start < HEADER_SIZE:
        return _NOT_WHOLE
    length, magic, attributes, last_delta, producer_id, epoch, sequence, records = _STAMPED.unpack_from(frame, start)
    if magic != 2:
        return _ANOTHER_FORMAT
    if length != end - start - LOG_OVERHEAD or attributes & _CONTROL or not 0 < records == last_delta + 1:
        return _NOT_WHOLE
    return 0, records, attributes, producer_id, epoch, sequence
