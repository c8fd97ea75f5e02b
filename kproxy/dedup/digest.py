"""The marks of a record that its copies share: a hash of key, value and headers, and the timestamp of the client."""

from collections.abc import Iterator
from typing import NamedTuple

from xxhash import xxh3_128_digest

from kproxy.codec.batch import RawRecord, crc_ok, iter_raw_records, read_header
from kproxy.codec.records import LOG_APPEND_TIME, DecompressionLimit
from kproxy.errors import RemoteProtocolError

#: The record has no time of its client's: magic 0, or the broker put its own in its place (LogAppendTime).
UNTIMED = -1


class Digest(NamedTuple):
    """One record, as far as it takes to know it again."""

    content: bytes
    """128 bits of xxh3 over key, value and headers, as format v2 has them: clients and brokers write them alike."""
    timestamp_ms: int
    """The client's CreateTime, or ``UNTIMED``."""


def have_same_time(one: Digest, other: Digest) -> bool:
    """Whether two records have the same timestamp, given by their client."""
    return one.timestamp_ms == other.timestamp_ms and one.timestamp_ms != UNTIMED


def read_batch(
    batch: bytes | bytearray | memoryview, *, arrival_ms: int | None, max_decompressed_bytes: int
) -> list[tuple[Digest, RawRecord]]:
    """The records of a batch of format v2; none if it is damaged or too large: then it is left to the broker to say so.

    ``arrival_ms``: the batch was converted when it came, and this is the time of records that had none.
    """
    try:
        return read_whole(batch, arrival_ms=arrival_ms, max_decompressed_bytes=max_decompressed_bytes)
    except DecompressionLimit:
        return []


def read_whole(
    batch: bytes | bytearray | memoryview, *, arrival_ms: int | None, max_decompressed_bytes: int
) -> list[tuple[Digest, RawRecord]]:
    """As ``read_batch``. DecompressionLimit: it is too large."""
    try:
        return list(_read(batch, arrival_ms, max_decompressed_bytes))
    except DecompressionLimit:
        raise
    except RemoteProtocolError:
        return []


def read_marks(
    batch: bytes | bytearray | memoryview, max_decompressed_bytes: int
) -> tuple[list[tuple[bytes, int]], list[int]]:
    """As ``read_whole``, only content and timestamp of each ``Digest`` as plain tuples, and the offsets.

    Python's collector looks at each named tuple, however many there are. The records themselves may take far more, and
    are not kept in memory together.
    """
    marks: list[tuple[bytes, int]] = []
    offsets: list[int] = []
    try:
        for (content, timestamp_ms), record in _read(batch, None, max_decompressed_bytes):
            marks.append((content, timestamp_ms))
            offsets.append(record.offset)
    except DecompressionLimit:
        raise
    except RemoteProtocolError:
        return [], []
    return marks, offsets


def _read(
    batch: bytes | bytearray | memoryview, arrival_ms: int | None, max_decompressed_bytes: int
) -> Iterator[tuple[Digest, RawRecord]]:
    header = read_header(batch)
    if not crc_ok(batch, 0, len(batch)):
        return
    timed = not header.attributes & LOG_APPEND_TIME
    for record in iter_raw_records(header, batch, max_decompressed_bytes):
        yield _digest(record, timed=timed and record.timestamp != arrival_ms), record


def first_content(batch: bytes | bytearray | memoryview, max_decompressed_bytes: int) -> bytes | None:
    """``Digest.content`` of the first record of a batch of format v2; None if it can't be read."""
    try:
        first = next(iter_raw_records(read_header(batch), batch, max_decompressed_bytes), None)
    except RemoteProtocolError:
        return None
    return None if first is None else _digest(first, timed=False).content


def _digest(record: RawRecord, *, timed: bool) -> Digest:
    return Digest(xxh3_128_digest(record.body), record.timestamp if timed else UNTIMED)
