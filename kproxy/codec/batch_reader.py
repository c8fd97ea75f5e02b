"""Reading the records of a record set, whatever the formats of its batches."""

from collections.abc import Iterator
from struct import Struct
from typing import TYPE_CHECKING, Final

from kproxy.codec import compression
from kproxy.codec.accelerator import accelerated
from kproxy.codec.batch_header import HEADER_SIZE, LOG_OVERHEAD, BatchHeader, read_header
from kproxy.codec.message_set import MIN_SIZE, iter_entry
from kproxy.codec.records import MAGIC_OFFSET, CorruptRecord, RawRecord, Record
from kproxy.codec.varint import read_varint

if TYPE_CHECKING:
    from array import array

#: Of a batch's header: length, magic, attributes, producer id, record count.
_GLANCE: Final = Struct(">8xi4xb4xh20xq6xi")
#: What follows the offset of an entry or batch: the bytes after these.
_SIZE: Final = Struct(">i")
_OFFSET_BYTES: Final = 8
_LEAST_LENGTH: Final = _GLANCE.size - LOG_OVERHEAD
_MIN_SIZE: Final = (*MIN_SIZE, HEADER_SIZE)


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
    if magic > 2 or size < _MIN_SIZE[magic]:
        raise CorruptRecord(f"entry of magic {magic} with {size} bytes")
    return size


@accelerated
def walk_batches(
    record_set: bytes | bytearray | memoryview, special: int, producer_ids_below: int
) -> tuple[int, int, int] | None:
    """Walks over the headers of a record set, none of which is read further; where it ends, and the batches before it.

    Returns the places of the last two headers (-1: there is none) and the end of the last batch, which may be after
    that of the record set. None if a header is not of format v2, has one of the ``special`` attributes, no record, or
    a producer id that is not below that.
    """
    glance, pos, last, before = _GLANCE.unpack_from, 0, -1, -1
    least_length, overhead, last_start = _LEAST_LENGTH, LOG_OVERHEAD, len(record_set) - _GLANCE.size
    while pos <= last_start:
        length, magic, attributes, producer_id, count = glance(record_set, pos)
        if magic != 2 or attributes & special or producer_id >= producer_ids_below:
            return None
        if count < 1 or length < least_length:
            return None
        before, last = last, pos
        pos += overhead + length
    return before, last, pos


def end_of_first(record_set: bytes | bytearray | memoryview, most: int) -> int:
    """Where the first ``most`` entries and batches of a record set end; its length if it has no more.

    Sizes that are impossible are left to those that read it.
    """
    pos, end, size_of = 0, len(record_set) - MAGIC_OFFSET, _SIZE.unpack_from
    for _ in range(most):
        if pos >= end:
            break
        size = size_of(record_set, pos + _OFFSET_BYTES)[0]
        if size < 0:
            break
        pos += LOG_OVERHEAD + size
    else:
        return min(pos, len(record_set))
    return len(record_set)


def records_of(header: BatchHeader, batch: memoryview, max_decompressed_bytes: int) -> bytes:
    """The decompressed records of one whole batch, headers and all, as one block."""
    return bytes(compression.decompress(header.codec, batch[HEADER_SIZE:], max_bytes=max_decompressed_bytes))


def least_timestamp(batch: memoryview, max_decompressed_bytes: int) -> int:
    """The smallest timestamp in a whole batch of format v2, in ms: the header has only the first and the largest.

    Raises ``RemoteProtocolError`` as ``iter_records`` does. Of each record only its length and timestamp are read.
    """
    header = read_header(batch)
    data = records_of(header, batch, max_decompressed_bytes)
    pos = least = 0
    for _ in range(header.record_count):
        size, pos = read_varint(data, pos)
        if size < 1 or size > len(data) - pos:
            raise CorruptRecord("record reaches beyond its batch")
        delta, _ = read_varint(data, pos + 1)
        if delta < least:
            least = delta
        pos += size
    return header.base_timestamp + least


def iter_raw_records(
    header: BatchHeader, batch: bytes | bytearray | memoryview, max_decompressed_bytes: int
) -> Iterator[RawRecord]:
    """Yield the records of one whole batch of format v2. What is in a body may be malformed.

    Raises as ``iter_records`` does.
    """
    return iter_block(header, records_of(header, memoryview(batch), max_decompressed_bytes))


def iter_block(header: BatchHeader, block: bytes, ends: "array[int] | None" = None) -> Iterator[RawRecord]:
    """As ``iter_raw_records``, of the records that ``records_of`` returns.

    ``ends``: where the body of each ends in the block is appended before it is yielded.
    """
    fixed_timestamp = header.max_timestamp if header.is_log_append_time else None
    pos = 0
    for _ in range(header.record_count):
        size, pos = read_varint(block, pos)
        end = pos + size
        if size < 1 or end > len(block):
            raise CorruptRecord("record reaches beyond its batch")
        timestamp, pos = read_varint(block, pos + 1)
        delta, pos = read_varint(block, pos)
        if pos > end:
            raise CorruptRecord("record length does not fit its content")
        if fixed_timestamp is None:
            timestamp += header.base_timestamp
        else:
            timestamp = fixed_timestamp
        if ends is not None:
            ends.append(end)
        yield RawRecord(header.base_offset + delta, timestamp, block[pos:end])
        pos = end
    if pos != len(block):
        raise CorruptRecord("batch has bytes after its last record")


def _iter_batch(header: BatchHeader, batch: memoryview, max_decompressed_bytes: int) -> Iterator[Record]:
    for offset, timestamp, body in iter_raw_records(header, batch, max_decompressed_bytes):
        key, pos = _read_nullable(body, 0)
        value, pos = _read_nullable(body, pos)
        headers, pos = _read_headers(body, pos)
        if pos != len(body):
            raise CorruptRecord("record length does not fit its content")
        yield Record(offset, timestamp, key, value, headers)


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
