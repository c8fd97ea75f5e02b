"""Single batches as a log needs them: checked on arrival, stamped, recompressed, built as markers."""

import struct
from typing import Final, NamedTuple

import crc32c

from kproxy.codec import compression
from kproxy.codec.batch import HEADER_SIZE, BatchHeader, crc_ok, iter_records, read_header
from kproxy.codec.batch_header import assemble
from kproxy.codec.batch_reader import records_of
from kproxy.codec.messages import ErrorCode
from kproxy.codec.records import CODEC_MASK, CONTROL, LOG_APPEND_TIME, TRANSACTIONAL
from kproxy.errors import RemoteProtocolError

_CRC_AT: Final = 17
_ATTRIBUTES_AT: Final = 21
_MAX_TIMESTAMP_AT: Final = 35
_PRODUCER_ID_AT: Final = 43
_CODECS: Final = {
    "uncompressed": compression.NONE,
    "gzip": compression.GZIP,
    "snappy": compression.SNAPPY,
    "lz4": compression.LZ4,
    "zstd": compression.ZSTD,
}
_MOST: Final = 2**63 - 1
MAX_DECOMPRESSED_BYTES: Final = 64 << 20


class StoredBatch(NamedTuple):
    """A batch as the log keeps it: offset and leader epoch filled in."""

    last_offset: int
    base_offset: int
    leader_epoch: int
    max_timestamp: int
    data: bytes


def one_batch(data: memoryview) -> BatchHeader | ErrorCode:
    """Return the header of the one batch that ``data`` must be, or the error of what it is instead."""
    if len(data) < HEADER_SIZE or data[16] != 2:
        return ErrorCode.INVALID_RECORD
    try:
        header = read_header(data)
    except RemoteProtocolError:
        return ErrorCode.INVALID_RECORD if crc_ok(data, 0, len(data)) else ErrorCode.CORRUPT_MESSAGE
    return header if header.length + 12 == len(data) else ErrorCode.INVALID_RECORD


def is_transactional(data: memoryview) -> bool:
    """Tell whether the record set begins with a batch of a producer that claims to be in a transaction."""
    if len(data) < HEADER_SIZE or data[16] != 2 or not data[_ATTRIBUTES_AT + 1] & TRANSACTIONAL:
        return False
    return bool(data[_PRODUCER_ID_AT] < 0x80)


def records_error(data: memoryview, header: BatchHeader, *, keyed: bool) -> ErrorCode:
    """Return the error of a batch whose records cannot be stored as they are; NONE if they can.

    :param keyed: every record must have a key, as compacted topics want it.
    """
    offset = header.base_offset
    try:
        for record in iter_records(data, max_decompressed_bytes=MAX_DECOMPRESSED_BYTES):
            if record.offset != offset or (keyed and record.key is None):
                return ErrorCode.INVALID_RECORD
            if not -_MOST - 1 <= record.timestamp <= _MOST:
                return ErrorCode.INVALID_TIMESTAMP
            offset += 1
    except RemoteProtocolError:
        return ErrorCode.INVALID_RECORD
    return ErrorCode.NONE


def stamp_append_time(data: bytearray, now: int) -> None:
    """Give every record of a batch the broker's time, in place, as ``message.timestamp.type=LogAppendTime`` does."""
    data[_ATTRIBUTES_AT + 1] |= LOG_APPEND_TIME
    struct.pack_into(">q", data, _MAX_TIMESTAMP_AT, now)
    struct.pack_into(">I", data, _CRC_AT, crc32c.crc32c(memoryview(data)[_ATTRIBUTES_AT:]))


def recompressed(data: bytearray, header: BatchHeader, compression_type: str) -> bytearray:
    """Return the batch in the codec of a topic's ``compression.type``; one that has it already is left as it is.

    :raises RemoteProtocolError: the records cannot be decompressed.
    """
    codec = _CODECS[compression_type]
    if header.codec == codec:
        return data
    records = records_of(header, memoryview(data), MAX_DECOMPRESSED_BYTES)
    attributes = header.attributes & ~CODEC_MASK | codec
    return assemble(header._replace(attributes=attributes), compression.compress(codec, records))


def marker_batch(producer_id: int, epoch: int, commit: bool, coordinator_epoch: int, now: int) -> bytearray:
    """Build the control batch that ends a transaction: key (version, type), value (version, coordinator epoch)."""
    key = struct.pack(">hh", 0, int(commit))
    value = struct.pack(">hi", 0, coordinator_epoch)
    # attributes, timestamp delta, offset delta; key and value lengths; no headers: all varints below 64.
    record = bytes([0, 0, 0, 2 * len(key)]) + key + bytes([2 * len(value)]) + value + b"\0"
    record = bytes([2 * len(record)]) + record
    header = BatchHeader(0, 0, -1, 2, 0, CONTROL | TRANSACTIONAL, 0, now, now, producer_id, epoch, -1, 1)
    return assemble(header, record)
