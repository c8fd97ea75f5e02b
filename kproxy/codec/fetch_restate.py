"""Fetch responses changed in place: a response is mostly records, and a copy of them costs more than all else."""

from collections.abc import Iterator, Sequence
from struct import Struct
from typing import Final

from kproxy.codec.primitives import (
    Buffer,
    read_compact_nullable_records,
    read_compact_string,
    read_length,
    read_nullable_records,
    read_string,
    skip_tags,
)

_OFFSET: Final = Struct(">q")
_FIRST_LOG_START: Final = 5
_FIRST_SESSION: Final = 7
_FIRST_REPLICA_CHOICE: Final = 11
_FIRST_FLEXIBLE: Final = 12
_FIRST_TOPIC_ID: Final = 13
_ID_BYTES: Final = 16
#: A row's index, error code and high watermark.
_BEFORE_STABLE: Final = 14
#: An aborted transaction without its tags.
_ABORTED_BYTES: Final = 16


def restate(frame: bytearray, pos: int, version: int, stable: Sequence[int]) -> None:
    """Puts last stable offsets into a response whose body begins at ``pos``: one for each row, in their order.

    ``version`` is 4 or later. The response has been decoded before.
    """
    for at, offset in zip(list(_positions(frame, pos, version)), stable, strict=True):
        _OFFSET.pack_into(frame, at, offset)


def _positions(buf: Buffer, pos: int, version: int) -> Iterator[int]:
    """Where each row has its last stable offset."""
    flexible = version >= _FIRST_FLEXIBLE
    pos += 10 if version >= _FIRST_SESSION else 4
    topics, pos = read_length(buf, pos, flexible, False, 0)
    for _ in range(topics):
        if version >= _FIRST_TOPIC_ID:
            pos += _ID_BYTES
        else:
            _, pos = (read_compact_string if flexible else read_string)(buf, pos)
        rows, pos = read_length(buf, pos, flexible, False, 0)
        for _ in range(rows):
            yield pos + _BEFORE_STABLE
            pos = _row_end(buf, pos + _BEFORE_STABLE + _OFFSET.size, version)
        if flexible:
            pos = skip_tags(buf, pos)


def _row_end(buf: Buffer, pos: int, version: int) -> int:
    """Where a row ends; ``pos``: where its last stable offset does."""
    flexible = version >= _FIRST_FLEXIBLE
    if version >= _FIRST_LOG_START:
        pos += _OFFSET.size
    aborted, pos = read_length(buf, pos, flexible, True, 0)
    for _ in range(aborted):
        pos += _ABORTED_BYTES
        if flexible:
            pos = skip_tags(buf, pos)
    if version >= _FIRST_REPLICA_CHOICE:
        pos += 4
    _, pos = (read_compact_nullable_records if flexible else read_nullable_records)(buf, pos)
    if flexible:
        pos = skip_tags(buf, pos)
    return pos
