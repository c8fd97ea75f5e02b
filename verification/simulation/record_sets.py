"""Record sets as producers of three generations write them."""

import struct
import zlib
from collections.abc import Sequence
from typing import Final

from kproxy.codec import compression
from kproxy.codec.batch import Record, build_batch
from verification.simulation.contents import Content

_HEAD: Final = struct.Struct(">qiI")


def record_set(
    magic: int, codec: int, rows: Sequence[tuple[int, Content]], number: tuple[int, int, int] | None = None
) -> bytes:
    """Rows of (timestamp in ms, content) in one batch or message set; before format 2 without headers.

    ``number``: the producer id, epoch and first sequence of an idempotent client.
    """
    if magic == 2:
        records = [Record(n, time, one.key, one.value, one.headers) for n, (time, one) in enumerate(rows)]
        if number is None:
            return bytes(build_batch(records, codec=codec))
        producer_id, epoch, sequence = number
        return bytes(
            build_batch(records, codec=codec, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
        )
    inner = b"".join(_entry(n, magic, 0, time, one.key, one.value) for n, (time, one) in enumerate(rows))
    if not codec:
        return inner
    value = compression.compress(codec, inner, magic=magic)
    return _entry(len(rows) - 1, magic, codec, rows[-1][0], None, value)


def _entry(offset: int, magic: int, attributes: int, timestamp: int, key: bytes | None, value: bytes) -> bytes:
    body = struct.pack(">bb", magic, attributes) + (struct.pack(">q", timestamp) if magic else b"")
    body += struct.pack(">i", -1 if key is None else len(key)) + (key or b"")
    body += struct.pack(">i", len(value)) + value
    return _HEAD.pack(offset, len(body) + 4, zlib.crc32(body)) + body
