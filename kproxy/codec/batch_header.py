"""The header of a record batch in format v2 (magic 2, KIP-98): reading it, stamping it, its checksum.

Layout as in Kafka's ``DefaultRecordBatch``: a header of 61 bytes, then the records, compressed as one block if at all.
The checksum is CRC-32C and covers everything from the attributes (byte 21) to the end.
"""

from struct import Struct
from typing import Final, NamedTuple

from kproxy.codec.accelerator import accelerated
from kproxy.codec.crc32c import crc32c, mend
from kproxy.codec.records import CODEC_MASK, CONTROL, LOG_APPEND_TIME, TRANSACTIONAL
from kproxy.errors import RemoteProtocolError

HEADER_SIZE: Final = 61
"""Bytes before the first record."""
LOG_OVERHEAD: Final = 12
"""Bytes of offset and length, which the length field does not count; the same in every format."""

_HEADER: Final = Struct(">qiibIhiqqqhii")
_CRC: Final = Struct(">I")
_LEADER_EPOCH_AT: Final = 12
_LEADER_EPOCH: Final = Struct(">i")
_CRC_AT: Final = 17
_CRC_FROM: Final = 21
_STAMP: Final = Struct(">qhi")
_STAMP_FROM: Final = 43
_STAMP_END: Final = 57
_STAMP_AT: Final = slice(_STAMP_FROM, _STAMP_END)
NO_STAMP: Final = b"\xff" * (_STAMP_END - _STAMP_FROM)
"""What a batch without a producer id has in place of one."""
#: What the length field counts at least, and of it what lies before the end of the stamp.
_SHORTEST: Final = HEADER_SIZE - LOG_OVERHEAD
_LENGTH_BEFORE_STAMP_END: Final = _STAMP_END - LOG_OVERHEAD
_LAST_DELTA: Final = Struct(">i")
_LAST_DELTA_AT: Final = 23
_MOST_DELTA: Final = (1 << 31) - 1
_BEFORE_STAMP: Final = Struct(">8xi4xbI22x14s")
_ATTRIBUTES_END: Final = 23
_BEFORE_ATTRIBUTES: Final = Struct(">8xi4xbIh")
_ATTRIBUTES: Final = Struct(">h")


class BatchHeader(NamedTuple):
    """The header fields in wire order; ``length`` counts the bytes that follow it (size minus 12). Times are in ms."""

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


@accelerated
def stamp(batch: bytearray | memoryview, producer_id: int, producer_epoch: int, base_sequence: int) -> None:
    """Write the producer's identity into a batch, in place, and mend the checksum.

    The payload is not read: a batch whose checksum was wrong before is wrong after. Raises ``RemoteProtocolError`` when
    the batch is not whole.
    """
    size = len(batch)
    if size < HEADER_SIZE:
        raise RemoteProtocolError("record batch header cut short")
    length, magic, crc, old = _BEFORE_STAMP.unpack_from(batch)
    if magic != 2 or not _SHORTEST <= length <= size - LOG_OVERHEAD:
        raise RemoteProtocolError("record batch is not whole, or not of magic 2")
    new = _STAMP.pack(producer_id, producer_epoch, base_sequence)
    batch[_STAMP_AT] = new
    _CRC.pack_into(batch, _CRC_AT, mend(crc, old, new, length - _LENGTH_BEFORE_STAMP_END))


def extend(batch: memoryview, next_offset: int, leader_epoch: int) -> tuple[bytearray, memoryview]:
    """A whole batch whose offsets reach up to ``next_offset``, as if compaction had left gaps there: header and rest.

    ``leader_epoch``: of the last of these offsets. The checksum, which does not cover it, is mended as in ``stamp``. As
    far as 31 bits allow, if that is too far.
    """
    header = bytearray(batch[:HEADER_SIZE])
    read = read_header(header)
    old = bytes(header[_LAST_DELTA_AT : _LAST_DELTA_AT + _LAST_DELTA.size])
    new = _LAST_DELTA.pack(min(next_offset - 1 - read.base_offset, _MOST_DELTA))
    header[_LAST_DELTA_AT : _LAST_DELTA_AT + _LAST_DELTA.size] = new
    _CRC.pack_into(header, _CRC_AT, mend(read.crc, old, new, len(batch) - _LAST_DELTA_AT - _LAST_DELTA.size))
    _LEADER_EPOCH.pack_into(header, _LEADER_EPOCH_AT, leader_epoch)
    return header, batch[HEADER_SIZE:]


def set_transactional(buf: bytearray | memoryview, is_transactional: bool, pos: int = 0) -> None:
    """Set or clear the isTransactional bit of the batch at ``pos``, in place, and mend the checksum.

    The payload is not read.

    Raises ``RemoteProtocolError`` when the batch is not whole.
    """
    if pos < 0 or len(buf) - pos < HEADER_SIZE:
        raise RemoteProtocolError("record batch header cut short")
    length, magic, crc, attributes = _BEFORE_ATTRIBUTES.unpack_from(buf, pos)
    if magic != 2 or length < HEADER_SIZE - LOG_OVERHEAD or length + LOG_OVERHEAD > len(buf) - pos:
        raise RemoteProtocolError("record batch is not whole, or not of magic 2")
    wanted = attributes | TRANSACTIONAL if is_transactional else attributes & ~TRANSACTIONAL
    if attributes != wanted:
        old, new = _ATTRIBUTES.pack(attributes), _ATTRIBUTES.pack(wanted)
        buf[pos + _CRC_FROM : pos + _ATTRIBUTES_END] = new
        _CRC.pack_into(buf, pos + _CRC_AT, mend(crc, old, new, length + LOG_OVERHEAD - _ATTRIBUTES_END))


def crc_ok(buf: bytes | bytearray | memoryview, pos: int, end: int) -> bool:
    """Whether the CRC-32C of the batch that fills ``buf[pos:end]`` is right; False too when it is too short."""
    if pos < 0 or end > len(buf) or end - pos < HEADER_SIZE:
        return False
    stored: int = _CRC.unpack_from(buf, pos + _CRC_AT)[0]
    return crc32c(memoryview(buf)[pos + _CRC_FROM : end]) == stored


def stored_crc(batch: bytes | bytearray | memoryview) -> int:
    """The checksum in a batch's header, right or not; 0 if the batch is too short to have one."""
    return int.from_bytes(batch[_CRC_AT:_CRC_FROM], "big")


def assemble_plain(
    payload: bytes | memoryview, *, codec: int, count: int, base_timestamp: int, max_timestamp: int
) -> bytearray:
    """A batch of ``count`` records without a producer id, at offset 0; ``payload``: these, already compressed."""
    header = BatchHeader(
        base_offset=0,
        length=0,
        partition_leader_epoch=-1,
        magic=2,
        crc=0,
        attributes=codec,
        last_offset_delta=count - 1,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        record_count=count,
    )
    return assemble(header, payload)


def assemble(header: BatchHeader, payload: bytes | bytearray | memoryview) -> bytearray:
    """Join a header, whose ``length`` and ``crc`` are filled in here, and the (already compressed) records."""
    out = bytearray(HEADER_SIZE)
    out += payload
    _HEADER.pack_into(out, 0, *header._replace(length=len(out) - LOG_OVERHEAD, magic=2, crc=0))
    _CRC.pack_into(out, _CRC_AT, crc32c(memoryview(out)[_CRC_FROM:]))
    return out
