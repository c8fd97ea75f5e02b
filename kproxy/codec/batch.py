"""Record batches of format v2 (magic 2, KIP-98): header, stamp, checksum, writing; and reading of every format.

Layout as in Kafka's ``DefaultRecordBatch``: a header of 61 bytes, then the records, compressed as one block if at all.
The checksum is CRC-32C and covers everything from the attributes (byte 21) to the end.
"""

from collections.abc import Iterator, Sequence
from struct import Struct
from typing import Final, NamedTuple

from kproxy.codec import compression
from kproxy.codec.crc32c import crc32c, mend
from kproxy.codec.message_set import iter_entry
from kproxy.codec.records import (
    CODEC_MASK,
    CONTROL,
    LOG_APPEND_TIME,
    MAGIC_OFFSET,
    TRANSACTIONAL,
    CorruptRecord,
    Record,
)
from kproxy.codec.varint import VARINTS, read_varint
from kproxy.errors import LocalProtocolError, RemoteProtocolError

HEADER_SIZE: Final = 61
"""Bytes before the first record."""
LOG_OVERHEAD: Final = 12
"""Bytes of offset and length, which the length field does not count; the same in every format."""

_HEADER: Final = Struct(">qiibIhiqqqhii")
_CRC: Final = Struct(">I")
_CRC_AT: Final = 17
_CRC_FROM: Final = 21
_STAMP: Final = Struct(">qhi")
_STAMP_FROM: Final = 43
_STAMP_END: Final = 57
_BEFORE_STAMP: Final = Struct(">8xi4xbI22x14s")


class BatchHeader(NamedTuple):
    """The header fields in wire order; ``length`` counts the bytes behind itself (size minus 12), times in ms."""

    base_offset: int
    length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        """Bytes of the whole batch."""
        return LOG_OVERHEAD + self.length

    @property
    def codec(self) -> int:
        """The compression codec, 0 to 7."""
        return self.attributes & CODEC_MASK

    @property
    def is_control(self) -> bool:
        """Whether the batch holds a transaction marker instead of data."""
        return bool(self.attributes & CONTROL)

    @property
    def is_transactional(self) -> bool:
        """Whether the batch belongs to one of Kafka's own transactions."""
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_log_append_time(self) -> bool:
        """Whether ``max_timestamp`` (the broker's clock) holds for every record."""
        return bool(self.attributes & LOG_APPEND_TIME)


def read_header(buf: bytes | bytearray | memoryview, pos: int = 0) -> BatchHeader:
    """Decode the header at ``pos``; whether the rest of the batch is there is for the caller to see (``size``).

    Raises ``RemoteProtocolError`` when 61 bytes are not there, the magic is not 2, or its figures contradict.
    """
    if pos < 0 or len(buf) - pos < HEADER_SIZE:
        raise RemoteProtocolError("record batch header cut short")
    header = BatchHeader._make(_HEADER.unpack_from(buf, pos))
    if header.magic != 2:
        raise RemoteProtocolError(f"record batch has magic {header.magic}, not 2")
    if header.length < HEADER_SIZE - LOG_OVERHEAD or not 0 <= header.record_count <= header.last_offset_delta + 1:
        raise RemoteProtocolError("record batch header contradicts itself")
    return header


def stamp(buf: bytearray | memoryview, producer_id: int, producer_epoch: int, base_sequence: int, pos: int = 0) -> None:
    """Write the producer's identity into the batch at ``pos``, in place, and mend the checksum.

    The payload is not read: a batch whose checksum was wrong before is wrong after. Raises ``RemoteProtocolError`` when
    the batch is not whole.
    """
    if pos < 0 or len(buf) - pos < HEADER_SIZE:
        raise RemoteProtocolError("record batch header cut short")
    length, magic, crc, old = _BEFORE_STAMP.unpack_from(buf, pos)
    behind = length - (_STAMP_END - LOG_OVERHEAD)
    if magic != 2 or behind < HEADER_SIZE - _STAMP_END or length + LOG_OVERHEAD > len(buf) - pos:
        raise RemoteProtocolError("record batch is not whole, or not of magic 2")
    new = _STAMP.pack(producer_id, producer_epoch, base_sequence)
    buf[pos + _STAMP_FROM : pos + _STAMP_END] = new
    _CRC.pack_into(buf, pos + _CRC_AT, mend(crc, old, new, behind))


def crc_ok(buf: bytes | bytearray | memoryview, pos: int, end: int) -> bool:
    """Whether the CRC-32C of the batch that fills ``buf[pos:end]`` is right; False too when it is too short."""
    if pos < 0 or end > len(buf) or end - pos < HEADER_SIZE:
        return False
    stored: int = _CRC.unpack_from(buf, pos + _CRC_AT)[0]
    return crc32c(memoryview(buf)[pos + _CRC_FROM : end]) == stored


def assemble(header: BatchHeader, payload: bytes | bytearray) -> bytearray:
    """Join a header, whose ``length`` and ``crc`` are filled in here, and the (already compressed) records."""
    out = bytearray(HEADER_SIZE)
    out += payload
    _HEADER.pack_into(out, 0, *header._replace(length=len(out) - LOG_OVERHEAD, magic=2, crc=0))
    _CRC.pack_into(out, _CRC_AT, crc32c(memoryview(out)[_CRC_FROM:]))
    return out


def build_batch(
    records: Sequence[Record],
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


def _body(record: Record) -> bytes:
    """Key, value and headers of a record as format v2 has them."""
    if not record.headers:
        return b"%b%b\0" % (_nullable(record.key), _nullable(record.value))
    parts = [_nullable(record.key), _nullable(record.value), VARINTS[len(record.headers)]]
    for name, value in record.headers:
        parts += _nullable(name.encode()), _nullable(value)
    return b"".join(parts)


def _nullable(data: bytes | None) -> bytes:
    return b"\x01" if data is None else VARINTS[len(data)] + data


def iter_records(
    buf: bytes | bytearray | memoryview, *, max_decompressed_bytes: int, include_control: bool = False
) -> Iterator[Record]:
    """Yield the records of every entry and batch, whatever their magic; a last one that is cut off is left out.

    Control batches are left out unless ``include_control``. At most ``max_decompressed_bytes`` for each batch.
    Checksums are not checked (``crc_ok``). Raises ``RemoteProtocolError`` (``CorruptRecord`` and the others of
    ``kproxy.codec.records``) when the bytes are no record set.
    """
    view = memoryview(buf)
    pos = 0
    while (size := entry_size(view, pos)) and size <= len(view) - pos:
        entry = view[pos : pos + size]
        if entry[MAGIC_OFFSET] == 2:
            header = read_header(entry)
            if include_control or not header.is_control:
                yield from _iter_batch(header, entry, max_decompressed_bytes)
        else:
            yield from iter_entry(entry, max_decompressed_bytes)
        pos += size


def entry_size(view: memoryview, pos: int) -> int:
    """Bytes of the entry or batch at ``pos``, or 0 when not even its magic byte is there; it may itself be cut off.

    Raises ``CorruptRecord`` when the size is impossible.
    """
    if len(view) - pos <= MAGIC_OFFSET:
        return 0
    size = LOG_OVERHEAD + int.from_bytes(view[pos + 8 : pos + LOG_OVERHEAD], "big", signed=True)
    magic = view[pos + MAGIC_OFFSET]
    if magic > 2 or size < (26, 34, HEADER_SIZE)[magic]:
        raise CorruptRecord(f"entry of magic {magic} with {size} bytes")
    return size


def records_of(header: BatchHeader, batch: memoryview, max_decompressed_bytes: int) -> bytes:
    """The decompressed records of one whole batch, headers and all, as one block."""
    return bytes(compression.decompress(header.codec, batch[HEADER_SIZE:], max_bytes=max_decompressed_bytes))


def _iter_batch(header: BatchHeader, batch: memoryview, max_decompressed_bytes: int) -> Iterator[Record]:
    data = records_of(header, batch, max_decompressed_bytes)
    fixed_timestamp = header.max_timestamp if header.is_log_append_time else None
    pos = 0
    for _ in range(header.record_count):
        size, pos = read_varint(data, pos)
        end = pos + size
        if size < 1 or end > len(data):
            raise CorruptRecord("record reaches beyond its batch")
        timestamp, pos = read_varint(data, pos + 1)
        delta, pos = read_varint(data, pos)
        key, pos = _read_nullable(data, pos)
        value, pos = _read_nullable(data, pos)
        headers, pos = _read_headers(data, pos)
        if pos != end:
            raise CorruptRecord("record length does not fit its content")
        if fixed_timestamp is None:
            timestamp += header.base_timestamp
        else:
            timestamp = fixed_timestamp
        yield Record(header.base_offset + delta, timestamp, key, value, headers)
    if pos != len(data):
        raise CorruptRecord("batch has bytes behind its last record")


def _read_nullable(data: bytes, pos: int) -> tuple[bytes | None, int]:
    size, pos = read_varint(data, pos)
    if size == -1:
        return None, pos
    if size < 0 or size > len(data) - pos:
        raise CorruptRecord("field reaches beyond its batch")
    return data[pos : pos + size], pos + size


def _read_headers(data: bytes, pos: int) -> tuple[tuple[tuple[str, bytes | None], ...], int]:
    count, pos = read_varint(data, pos)
    if count == 0:
        return (), pos
    if count < 0 or count > len(data) - pos:
        raise CorruptRecord("impossible number of record headers")
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        name, pos = _read_nullable(data, pos)
        value, pos = _read_nullable(data, pos)
        if name is None:
            raise CorruptRecord("record header without a name")
        try:
            headers.append((name.decode(), value))
        except UnicodeDecodeError as error:
            raise CorruptRecord("record header name is not UTF-8") from error
    return tuple(headers), pos
