"""Record batches of format v2: the facade of what reads, stamps and checks them, and what writes them."""

from collections.abc import Sequence

from kproxy.codec import compression
from kproxy.codec.batch_header import (
    HEADER_SIZE,
    LOG_OVERHEAD,
    NO_STAMP,
    BatchHeader,
    assemble,
    crc_ok,
    read_header,
    set_transactional,
    stamp,
    stored_crc,
)
from kproxy.codec.batch_reader import iter_raw_records, iter_records
from kproxy.codec.records import CONTROL, LOG_APPEND_TIME, TRANSACTIONAL, RawRecord, Record
from kproxy.codec.varint import VARINTS
from kproxy.errors import LocalProtocolError

__all__ = [
    "HEADER_SIZE",
    "LOG_OVERHEAD",
    "NO_STAMP",
    "BatchHeader",
    "RawRecord",
    "Record",
    "build_batch",
    "crc_ok",
    "encode_headers",
    "iter_raw_records",
    "iter_records",
    "read_header",
    "set_transactional",
    "stamp",
    "stored_crc",
]


def build_batch(
    records: Sequence[Record | RawRecord],
    *,
    codec: int = 0,
    base_offset: int = 0,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    timestamp_type: int = 0,
    is_control: bool = False,
    is_transactional: bool = False,
    partition_leader_epoch: int = -1,
) -> bytearray:
    """Write one batch. The records' offsets count relative to the first one's, which gets ``base_offset``.

    ``timestamp_type`` 1 is LogAppendTime. Raises ``LocalProtocolError`` when there is no record, the offsets do not
    rise, or the codec is unknown.
    """
    if not records:
        raise LocalProtocolError("a record batch needs a record")
    first_offset, base_timestamp = records[0].offset, records[0].timestamp
    varints = VARINTS
    parts: list[bytes] = []
    previous = -1
    for record in records:
        delta = record.offset - first_offset
        if delta <= previous:
            raise LocalProtocolError("the offsets of a batch must rise")
        previous = delta
        body = b"\0%b%b%b" % (varints[record.timestamp - base_timestamp], varints[delta], _body(record))
        parts += varints[len(body)], body
    header = BatchHeader(
        base_offset=base_offset,
        length=0,
        partition_leader_epoch=partition_leader_epoch,
        magic=2,
        crc=0,
        attributes=codec | LOG_APPEND_TIME * timestamp_type | TRANSACTIONAL * is_transactional | CONTROL * is_control,
        last_offset_delta=previous,
        base_timestamp=base_timestamp,
        max_timestamp=max(record.timestamp for record in records),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=len(records),
    )
    return assemble(header, compression.compress(codec, b"".join(parts)))


def _body(record: Record | RawRecord) -> bytes:
    """Key, value and headers of a record as format v2 has them."""
    if isinstance(record, RawRecord):
        return record.body
    return b"%b%b%b" % (_nullable(record.key), _nullable(record.value), encode_headers(record.headers))


def encode_headers(headers: Sequence[tuple[str, bytes | None]]) -> bytes:
    """The headers of a record as they end it in format v2."""
    if not headers:
        return b"\0"
    parts = [VARINTS[len(headers)]]
    for name, value in headers:
        parts += _nullable(name.encode()), _nullable(value)
    return b"".join(parts)


def _nullable(data: bytes | None) -> bytes:
    return b"\x01" if data is None else VARINTS[len(data)] + data
