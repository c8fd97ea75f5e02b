"""Batches of format v2 in another compression, for consumers that can't read the one in the log."""

from collections.abc import Mapping
from typing import Final

from kproxy.codec.batch_header import HEADER_SIZE, assemble, crc_ok, read_header
from kproxy.codec.batch_reader import walk_batches
from kproxy.codec.compression import compress, decompress
from kproxy.codec.conversion_memo import ConversionMemo
from kproxy.codec.produce_layout import Buffer
from kproxy.codec.records import CorruptRecord

_CODEC_MASK = 0x07
_MAGIC_AT = 16
_CODEC_AT = 22
_LENGTH_END = 12
#: Above all producer ids.
_ANY_PRODUCER: Final = 1 << 63


def recode(
    record_set: memoryview,
    transcode: Mapping[int, int],
    *,
    max_decompressed_bytes: int,
    memo: ConversionMemo | None = None,
) -> list[memoryview | bytearray]:
    """The record set in pieces. Each v2 batch whose codec is a key of ``transcode`` is compressed by its value instead.

    A batch that is older than v2, has no records, or is cut off at the end is not changed. Nor is a damaged batch: a
    new checksum would hide the damage from its reader. ``max_decompressed_bytes`` is the limit for each batch. ``memo``
    caches the result of each batch. Raises CorruptRecord or DecompressionLimit (both ``RemoteProtocolError``) for a
    batch that cannot be read.
    """
    pieces: list[memoryview | bytearray] = []
    pos, end = 0, len(record_set)
    while end - pos > HEADER_SIZE:
        size = _LENGTH_END + int.from_bytes(record_set[pos + 8 : pos + 12], "big", signed=True)
        if size <= _MAGIC_AT:
            raise CorruptRecord(f"batch of {size} bytes")
        if size > end - pos:
            break
        batch = record_set[pos : pos + size]
        pos += size
        pieces.append(_recoded(batch, transcode, max_decompressed_bytes, memo) if batch[_MAGIC_AT] == 2 else batch)
    pieces.append(record_set[pos:])
    return pieces


def has_codec(record_set: Buffer, codec: int) -> bool:
    """Whether a whole v2 batch of a record set is compressed by ``codec``; reads only the headers."""
    # no bit of the codec's number is set in any batch: so it is with most record sets
    if codec and walk_batches(record_set, codec, _ANY_PRODUCER) is not None:
        return False
    pos, end = 0, len(record_set)
    while end - pos > HEADER_SIZE:
        if record_set[pos + _MAGIC_AT] == 2 and record_set[pos + _CODEC_AT] & _CODEC_MASK == codec:
            return True
        pos += _LENGTH_END + max(int.from_bytes(record_set[pos + 8 : pos + 12], "big", signed=True), 0)
    return False


def _recoded(
    batch: memoryview, transcode: Mapping[int, int], limit: int, memo: ConversionMemo | None
) -> memoryview | bytearray:
    header = read_header(batch)
    codec = transcode.get(header.codec)
    if codec is None or codec == header.codec or not header.record_count or not crc_ok(batch, 0, len(batch)):
        return batch

    def make() -> bytes:
        return compress(codec, decompress(header.codec, batch[HEADER_SIZE:], max_bytes=limit))

    payload = make() if memo is None else memo.get((header.codec, codec, bytes(batch[HEADER_SIZE:])), make)
    return assemble(header._replace(attributes=header.attributes & ~_CODEC_MASK | codec), payload)
