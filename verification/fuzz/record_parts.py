"""Record sets out of a fuzzer's bytes: as they are, or in batches and entries whose lengths and checksums are right.

Without these a fuzzer would hardly ever come past a checksum, and not into what is compressed.
"""

import zlib
from collections.abc import Sequence
from struct import Struct
from typing import Final

from kproxy.codec import compression
from kproxy.codec.batch import HEADER_SIZE, Record, build_batch
from kproxy.codec.batch_header import BatchHeader, assemble
from verification.fuzz.choices import Choices, piece

_HEADER: Final = Struct(">qiibIhiqqqhii")
_CODEC_MASK: Final = 7
#: How a piece begins: it is a batch, an entry, or bytes as they are; the lowest three bits choose the codec.
BATCH: Final = 0x80
ENTRY: Final = 0x40
#: Of an entry.
_MAGIC_1: Final = 0x20
#: What follows is compressed already, or is said to be.
COMPRESSED: Final = 0x10
#: Flags of an entry: it has a key; it has no value.
_KEY: Final = 1
_NO_VALUE: Final = 2
_LOG_APPEND_TIME: Final = 8
_KNOWN_CODECS: Final = 5
NOW: Final = 1_700_000_000_000


def record_set(said: Choices) -> bytes:
    """The pieces of an input as one record set."""
    return b"".join(_made(flag, data) for flag, data in said.pieces())


def _made(flag: int, data: bytes) -> bytes:
    if flag & BATCH:
        return _batch(flag & _CODEC_MASK, data, compresses=not flag & COMPRESSED)
    if flag & ENTRY:
        magic = 1 if flag & _MAGIC_1 else 0
        return _entry(magic, flag & _CODEC_MASK, data, compresses=not flag & COMPRESSED)
    return data


def _batch(codec: int, data: bytes, *, compresses: bool) -> bytes:
    """A batch whose length and checksum are right: the fields of its header, then its records."""
    fields = _HEADER.unpack(data[:HEADER_SIZE].ljust(HEADER_SIZE, b"\0"))
    header = BatchHeader._make(fields)
    header = header._replace(attributes=header.attributes & ~_CODEC_MASK | codec)
    payload = data[HEADER_SIZE:]
    if compresses and codec < _KNOWN_CODECS:
        payload = compression.compress(codec, payload)
    return bytes(assemble(header, payload))


def _entry(magic: int, codec: int, data: bytes, *, compresses: bool) -> bytes:
    """An entry of an old message set, or a wrapper: its offset, its time, its key, and its value or what it wraps."""
    said = Choices(data)
    offset, time, flags = said.take(8).ljust(8, b"\0"), said.take(8).ljust(8, b"\0"), said.number()
    key, value = said.piece() if flags & _KEY else None, None
    if not flags & _NO_VALUE:
        value = _wrapped(magic, codec, said) if codec and compresses else said.rest()
    body = (
        bytes([magic, codec | flags & _LOG_APPEND_TIME]) + (time if magic else b"") + _nullable(key) + _nullable(value)
    )
    return offset + (len(body) + 4).to_bytes(4, "big") + zlib.crc32(body).to_bytes(4, "big") + body


def _wrapped(magic: int, codec: int, said: Choices) -> bytes:
    inner = record_set(said)
    return compression.compress(codec, inner, magic=magic) if codec < compression.ZSTD else inner


def _nullable(data: bytes | None) -> bytes:
    return b"\xff\xff\xff\xff" if data is None else len(data).to_bytes(4, "big") + data


def batch_piece(codec: int, records: Sequence[Record], **fields: int | bool) -> bytes:
    """The piece of which a batch with these records is made."""
    batch = build_batch(records, **fields)  # type: ignore[arg-type]
    return bytes([BATCH | codec]) + piece(bytes(batch))


def entry_piece(magic: int, codec: int, offset: int, time: int, key: bytes | None, value: bytes) -> bytes:
    """The piece of which an entry is made; of a wrapper ``value`` is the pieces that it wraps."""
    flags = b"\0" if key is None else b"\1" + piece(key)
    data = offset.to_bytes(8, "big") + time.to_bytes(8, "big", signed=True) + flags + value
    return bytes([ENTRY | (_MAGIC_1 if magic else 0) | codec]) + piece(data)


def packed_piece(codec: int, records: Sequence[Record]) -> bytes:
    """The piece of which a batch with these records is made: what it holds is compressed before."""
    return bytes([BATCH | COMPRESSED | codec]) + piece(bytes(build_batch(records, codec=codec)))


def raw_piece(data: bytes) -> bytes:
    """The piece of which just these bytes are made."""
    return b"\0" + piece(data)


def sample_records(count: int = 3, first: int = 0) -> list[Record]:
    """Records with and without keys, values and headers."""
    headers = (("h", b"1"), ("i", None))
    return [
        Record(
            first + index,
            NOW + 2 * (index % 3),
            b"key" if index % 2 else None,
            None if index % 5 == 4 else b"value" * index,
            headers[: index % 3],
        )
        for index in range(count)
    ]
