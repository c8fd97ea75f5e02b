"""Record sets of a Fetch response to message sets of magic 0 or 1, for consumers that know nothing newer."""

import zlib
from collections.abc import Hashable, Mapping
from itertools import pairwise
from struct import Struct
from struct import error as StructError
from types import MappingProxyType
from typing import Final, NamedTuple

from kproxy.codec import compression
from kproxy.codec.batch import HEADER_SIZE, BatchHeader, build_batch, read_header
from kproxy.codec.batch_reader import entry_size, records_of
from kproxy.codec.conversion_memo import ConversionMemo
from kproxy.codec.message_set import iter_entry, read_entry
from kproxy.codec.records import LOG_APPEND_TIME, MAGIC_OFFSET, NO_TIMESTAMP, CorruptRecord
from kproxy.codec.varint import ZIGZAG, read_varint

DEFAULT_TRANSCODE: Final[Mapping[int, int]] = MappingProxyType({compression.ZSTD: compression.GZIP})
"""zstd (KIP-110) needs magic 2: clients that need an older format cannot have it."""

_ENTRY: Final = Struct(">qiI").pack
_I32: Final = Struct(">i").pack
_HEAD_1: Final = Struct(">BBq").pack
_NULL: Final = b"\xff\xff\xff\xff"
_MANY: Final = 2**31 - 1
_CHUNK: Final = 1 << 14  # records whose pieces are joined at a time, so that they never outweigh what they hold


class Downconverted(NamedTuple):
    """A message set, and the offset after the last batch that was examined: the next offset to read."""

    data: bytes
    next_offset: int
    record_count: int


def from_v2(
    record_set: bytes | bytearray | memoryview,
    *,
    magic: int,
    first_offset: int,
    max_decompressed_bytes: int,
    max_bytes: int,
    max_records: int = _MANY,
    transcode: Mapping[int, int] = DEFAULT_TRANSCODE,
    memo: ConversionMemo | None = None,
) -> Downconverted:
    """Convert batches of any magic. Batches of ``magic`` or older are passed on unchanged.

    Left out are headers, control batches, records below ``first_offset``, and a last batch that is cut off. A
    compressed batch becomes one wrapper with the batch's codec, or with the codec that ``transcode`` gives for it. The
    set ends after a whole entry. It ends before a batch that would exceed ``max_bytes`` or ``max_records``; the first
    batch that has records is always included. ``memo`` caches the result of each batch.

    Raises ``RemoteProtocolError`` when the record set is malformed (``max_decompressed_bytes`` is the limit for each
    batch), ``LocalProtocolError`` when ``transcode`` leaves a codec that ``magic`` does not have.
    """
    view = memoryview(record_set)
    converter = _Converter(magic, first_offset, transcode, max_decompressed_bytes, memo)
    out: list[bytes | memoryview] = []
    total = records = pos = 0
    next_offset = first_offset
    while (size := entry_size(view, pos)) and size <= len(view) - pos and (total < max_bytes or not out):
        data, count, behind = converter.convert(view[pos : pos + size])
        if data:
            if out and (total + len(data) > max_bytes or records + count > max_records):
                break
            out.append(data)
            total += len(data)
            records += count
        next_offset = max(next_offset, behind)
        pos += size
    return Downconverted(b"".join(out), next_offset, records)


class _Converter:
    """What holds for all entries of one conversion."""

    __slots__ = ("_first_offset", "_magic", "_max_decompressed", "_memo", "_transcode")

    def __init__(
        self,
        magic: int,
        first_offset: int,
        transcode: Mapping[int, int],
        max_decompressed: int,
        memo: ConversionMemo | None,
    ) -> None:
        self._memo = memo
        self._magic = magic
        self._first_offset = first_offset
        self._transcode = transcode
        self._max_decompressed = max_decompressed

    def convert(self, entry: memoryview) -> tuple[bytes | memoryview, int, int]:
        """Convert one whole entry or batch; returns ``(bytes, records in them, offset behind it)``."""
        try:
            return self._convert(entry)
        except StructError as error:
            raise CorruptRecord("offsets or times of an entry or batch that no record can have") from error

    def _convert(self, entry: memoryview) -> tuple[bytes | memoryview, int, int]:
        if entry[MAGIC_OFFSET] < 2:
            return self._convert_legacy(entry)
        header = read_header(entry)
        behind = header.base_offset + header.last_offset_delta + 1
        if header.is_control or not header.record_count or behind <= self._first_offset:
            return b"", 0, behind
        if self._memo is None:
            return (*self._converted(header, entry), behind)
        return (*self._memo.get(self._key(header, entry), lambda: self._converted(header, entry)), behind)

    def _key(self, header: BatchHeader, entry: memoryview) -> Hashable:
        """All that the entries of a batch depend on; not its end, which hidden batches after it change."""
        skipped = max(0, self._first_offset - header.base_offset)
        kept = header._replace(length=0, partition_leader_epoch=0, crc=0, last_offset_delta=0)
        return self._magic, skipped, self._transcode.get(header.codec), kept, bytes(entry[HEADER_SIZE:])

    def _converted(self, header: BatchHeader, entry: memoryview) -> tuple[bytes, int]:
        return self._message_set(header, records_of(header, entry, self._max_decompressed), header.codec)

    def _convert_legacy(self, data: memoryview) -> tuple[bytes | memoryview, int, int]:
        """Brokers keep segments of old formats for as long as retention lets them."""
        entry = read_entry(data, 0, check_crc=False)
        behind = entry.offset + 1
        if behind <= self._first_offset:
            return b"", 0, behind
        records = [one for one in iter_entry(data, self._max_decompressed) if one.offset >= self._first_offset]
        if entry.magic <= self._magic and entry.codec not in self._transcode:
            return data, len(records), behind
        if any(one.offset >= two.offset for one, two in pairwise(records)):
            raise CorruptRecord("offsets inside a wrapper do not rise")
        if not records:
            return b"", 0, behind
        batch = build_batch(records, base_offset=records[0].offset, timestamp_type=1 if entry.is_log_append_time else 0)
        return (*self._message_set(read_header(batch), bytes(batch[HEADER_SIZE:]), entry.codec), behind)

    def _message_set(self, header: BatchHeader, payload: bytes, codec: int) -> tuple[bytes, int]:
        """The entries, or the one wrapper, that say the same as a batch with these records (decompressed)."""
        codec = self._transcode.get(codec, codec)
        layout = _Layout(
            magic=self._magic,
            attributes=header.attributes & LOG_APPEND_TIME if self._magic else 0,
            # KIP-31: inside a wrapper magic 1 counts from the wrapper's first offset, so that brokers can renumber it.
            origin=0 if self._magic == 1 and codec != compression.NONE else header.base_offset,
            first_delta=self._first_offset - header.base_offset,
            base_time=header.base_timestamp,
            fixed_time=header.max_timestamp if header.is_log_append_time else None,
        )
        data, count, last, latest = _convert_all(payload, header.record_count, layout)
        if count and codec != compression.NONE:
            value = compression.compress(codec, data, magic=self._magic)
            data = _wrapper(value, self._magic, layout.attributes | codec, header.base_offset + last, latest)
        return data, count


def _wrapper(value: bytes, magic: int, attributes: int, offset: int, timestamp: int) -> bytes:
    fixed = _HEAD_1(1, attributes, timestamp) if magic else bytes((0, attributes))
    body = b"%b%b%b%b" % (fixed, _NULL, _I32(len(value)), value)
    return _ENTRY(offset, len(body) + 4, zlib.crc32(body)) + body


class _Layout(NamedTuple):
    """How the records of one batch are read and its entries written: offsets relative to the batch, times in ms."""

    magic: int
    attributes: int
    origin: int
    first_delta: int
    base_time: int
    fixed_time: int | None


def _convert_all(data: bytes, count: int, layout: _Layout) -> tuple[bytes, int, int, int]:
    """The entries for all records of a batch; returns ``(bytes, how many, last offset delta, latest timestamp)``."""
    chunks: list[bytes] = []
    pos = kept = last = 0
    latest = NO_TIMESTAMP
    try:
        for done in range(0, count, _CHUNK):
            parts, pos, last, latest = _convert_some(data, pos, min(_CHUNK, count - done), layout, last, latest)
            kept += len(parts) // 2
            chunks.append(b"".join(parts))
    except (IndexError, StructError) as error:
        raise CorruptRecord("record cut short, or with an absurd number") from error
    if pos != len(data):
        raise CorruptRecord("batch has bytes after its last record")
    return b"".join(chunks), kept, last, latest


def _convert_some(
    data: bytes, pos: int, count: int, layout: _Layout, last: int, latest: int
) -> tuple[list[bytes], int, int, int]:
    """Two pieces for each of the next ``count`` records, with the position after them and the new ``last, latest``.

    It is one long function, since a call for each number would double the cost. Raises ``IndexError`` when cut short,
    ``struct.error`` for a time or an offset beyond 64 bits, besides ``RemoteProtocolError``.
    """
    varint, zigzag = read_varint, ZIGZAG
    crc32, pack_entry, pack_i32, pack_head = zlib.crc32, _ENTRY, _I32, _HEAD_1
    magic, attributes, origin, first_delta, base_time, fixed_time = layout
    stop = len(data)
    out: list[bytes] = []
    for _ in range(count):
        size, pos = (zigzag[data[pos]], pos + 1) if data[pos] < 0x80 else varint(data, pos)
        end = pos + size
        pos += 1  # the record's attributes, which have no meaning yet
        time, pos = (zigzag[data[pos]], pos + 1) if data[pos] < 0x80 else varint(data, pos)
        delta, pos = (zigzag[data[pos]], pos + 1) if data[pos] < 0x80 else varint(data, pos)
        key_size, pos = (zigzag[data[pos]], pos + 1) if data[pos] < 0x80 else varint(data, pos)
        key = data[pos : pos + key_size] if key_size > 0 else b""
        pos += len(key)
        value_size, pos = (zigzag[data[pos]], pos + 1) if data[pos] < 0x80 else varint(data, pos)
        value = data[pos : pos + value_size] if value_size > 0 else b""
        pos += len(value)
        if key_size < -1 or value_size < -1 or pos >= end or end > stop:
            raise CorruptRecord("lengths inside a record contradict each other")
        pos = end
        if delta < first_delta:
            continue
        time = base_time + time if fixed_time is None else fixed_time
        latest = time if time > latest else latest
        last = delta
        body = b"%b%b%b%b%b" % (
            pack_head(1, attributes, time) if magic else b"\0\0",
            pack_i32(key_size),
            key,
            pack_i32(value_size),
            value,
        )
        out += pack_entry(origin + delta, len(body) + 4, crc32(body)), body
    return out, pos, last, latest
