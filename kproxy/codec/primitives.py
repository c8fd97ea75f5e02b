"""Readers of the wire types that the generated message codec is made of.

A reader takes ``(buf, pos)`` and returns ``(value, next position)``. Where bytes run out it may also return a position
*after the end* of the buffer: the next read there fails, and ``Message.decode`` compares the last position with the
length. So no string or byte slice needs a check of its own, and none can be longer than the buffer. ``struct.error``,
``IndexError`` and ``UnicodeDecodeError`` are turned into ``RemoteProtocolError`` by ``Message``. Varints and compact
types are those of KIP-482.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct, unpack_from
from typing import TypeVar

from kproxy.budget import RequestBudget
from kproxy.errors import RemoteProtocolError

Buffer = bytes | bytearray | memoryview
T = TypeVar("T")
StructReader = Callable[[Buffer, int, int, RequestBudget], tuple[T, int]]

ZERO_UUID = bytes(16)
MAX_VARINT_BYTES = 5
MAX_INT16 = 2**15 - 1
#: Tagged fields of one struct. Kafka's own have fewer than 10; each unknown one is kept.
MOST_TAGS = 100
#: Integers in one array that count as one element.
INTS_IN_ELEMENT = 16
WIDTHS = {"b": 1, "h": 2, "i": 4, "q": 8}

_int16 = Struct(">h")
_int32 = Struct(">i")


def read_uvarint(buf: Buffer, pos: int) -> tuple[int, int]:
    """An unsigned varint of at most 5 bytes, below 2^32."""
    byte = buf[pos]
    pos += 1
    if byte < 0x80:
        return byte, pos
    value, shift = byte & 0x7F, 7
    while shift < 7 * MAX_VARINT_BYTES:
        byte = buf[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > 0xFFFFFFFF:
                break
            return value, pos
        shift += 7
    raise RemoteProtocolError("unsigned varint does not fit in 32 bits")


def _null(what: str) -> RemoteProtocolError:
    return RemoteProtocolError(f"null {what} where the protocol wants one")


# Strings -------------------------------------------------------------------------------------------------------------


def read_nullable_string(buf: Buffer, pos: int) -> tuple[str | None, int]:
    """INT16 length and UTF-8; any negative length is null, as in Kafka's own readers."""
    length = _int16.unpack_from(buf, pos)[0]
    pos += 2
    if length < 0:
        return None, pos
    end = pos + length
    return str(buf[pos:end], "utf-8"), end


def read_string(buf: Buffer, pos: int) -> tuple[str, int]:
    """As ``read_nullable_string``, null refused."""
    length = _int16.unpack_from(buf, pos)[0]
    pos += 2
    if length < 0:
        raise _null("string")
    end = pos + length
    return str(buf[pos:end], "utf-8"), end


def read_compact_nullable_string(buf: Buffer, pos: int) -> tuple[str | None, int]:
    """Varint length + 1 and UTF-8; 0 is null. Kafka caps the length at 32767 bytes here too."""
    length, pos = read_uvarint(buf, pos)
    if not length:
        return None, pos
    if length > MAX_INT16 + 1:
        raise RemoteProtocolError(f"string of {length - 1} bytes is longer than {MAX_INT16}")
    end = pos + length - 1
    return str(buf[pos:end], "utf-8"), end


def read_compact_string(buf: Buffer, pos: int) -> tuple[str, int]:
    """As ``read_compact_nullable_string``, null refused."""
    value, pos = read_compact_nullable_string(buf, pos)
    if value is None:
        raise _null("string")
    return value, pos


# Bytes and record sets -----------------------------------------------------------------------------------------------


def _read_length(buf: Buffer, pos: int) -> tuple[int, int]:
    return _int32.unpack_from(buf, pos)[0], pos + 4


def _read_compact_length(buf: Buffer, pos: int) -> tuple[int, int]:
    length, pos = read_uvarint(buf, pos)
    return length - 1, pos


def _slice(buf: Buffer, pos: int, length: int) -> tuple[memoryview, int]:
    end = pos + length
    return memoryview(buf)[pos:end], end


def read_nullable_records(buf: Buffer, pos: int) -> tuple[memoryview | None, int]:
    """INT32 length and a view into ``buf``, not a copy; a negative length is null."""
    length, pos = _read_length(buf, pos)
    return (None, pos) if length < 0 else _slice(buf, pos, length)


def read_compact_nullable_records(buf: Buffer, pos: int) -> tuple[memoryview | None, int]:
    """Varint length + 1 and a view into ``buf``, not a copy; 0 is null."""
    length, pos = _read_compact_length(buf, pos)
    return (None, pos) if length < 0 else _slice(buf, pos, length)


def read_records(buf: Buffer, pos: int) -> tuple[memoryview, int]:
    """As ``read_nullable_records``, null refused."""
    length, pos = _read_length(buf, pos)
    if length < 0:
        raise _null("record set")
    return _slice(buf, pos, length)


def read_compact_records(buf: Buffer, pos: int) -> tuple[memoryview, int]:
    """As ``read_compact_nullable_records``, null refused."""
    length, pos = _read_compact_length(buf, pos)
    if length < 0:
        raise _null("record set")
    return _slice(buf, pos, length)


def read_nullable_bytes(buf: Buffer, pos: int) -> tuple[bytes | None, int]:
    """INT32 length and a copy of the bytes; a negative length is null."""
    view, pos = read_nullable_records(buf, pos)
    return (None if view is None else bytes(view)), pos


def read_compact_nullable_bytes(buf: Buffer, pos: int) -> tuple[bytes | None, int]:
    """Varint length + 1 and a copy of the bytes; 0 is null."""
    view, pos = read_compact_nullable_records(buf, pos)
    return (None if view is None else bytes(view)), pos


def read_bytes(buf: Buffer, pos: int) -> tuple[bytes, int]:
    """As ``read_nullable_bytes``, null refused."""
    view, pos = read_records(buf, pos)
    return bytes(view), pos


def read_compact_bytes(buf: Buffer, pos: int) -> tuple[bytes, int]:
    """As ``read_compact_nullable_bytes``, null refused."""
    view, pos = read_compact_records(buf, pos)
    return bytes(view), pos


# Arrays --------------------------------------------------------------------------------------------------------------


def read_length(buf: Buffer, pos: int, compact: bool, nullable: bool, least: int) -> tuple[int, int]:
    """The number of elements of an array, -1 if null.

    ``least`` is the fewest bytes that one element takes: a count that the rest of the buffer cannot hold is refused
    before anything is allocated for it.
    """
    length, pos = (_read_compact_length if compact else _read_length)(buf, pos)
    if length < 0:
        if not nullable:
            raise _null("array")
        return -1, pos
    if length * least > len(buf) - pos:
        raise RemoteProtocolError(f"array of {length} elements in {max(len(buf) - pos, 0)} bytes")
    return length, pos


def read_structs(
    buf: Buffer, pos: int, version: int, length: int, budget: RequestBudget, read: StructReader[T]
) -> tuple[list[T], int]:
    """``length`` structs, one after the other."""
    budget.take_elements(length)
    items = []
    for _ in range(length):
        item, pos = read(buf, pos, version, budget)
        items.append(item)
    return items, pos


def read_strings(buf: Buffer, pos: int, compact: bool, length: int, budget: RequestBudget) -> tuple[list[str], int]:
    """``length`` strings that may not be null."""
    budget.take_elements(length)
    read = read_compact_string if compact else read_string
    items = []
    for _ in range(length):
        item, pos = read(buf, pos)
        items.append(item)
    return items, pos


def read_ints(buf: Buffer, pos: int, code: str, length: int, budget: RequestBudget) -> tuple[list[int], int]:
    """``length`` integers of the ``struct`` format ``code``."""
    if length >= INTS_IN_ELEMENT:
        budget.take_elements(length // INTS_IN_ELEMENT)
    return list(unpack_from(f">{length}{code}", buf, pos)), pos + length * WIDTHS[code]


# Nullable structs ----------------------------------------------------------------------------------------------------


def read_nullable_struct(
    buf: Buffer, pos: int, version: int, budget: RequestBudget, read: StructReader[T]
) -> tuple[T | None, int]:
    """A struct after an INT8 that is negative if the struct is null."""
    if buf[pos] > 127:
        return None, pos + 1
    return read(buf, pos + 1, version, budget)


# Tagged fields -------------------------------------------------------------------------------------------------------


def read_tags(buf: Buffer, pos: int, budget: RequestBudget) -> tuple[dict[int, bytes], int]:
    """The raw tagged fields at the end of a flexible struct (KIP-482), by tag."""
    count, pos = _tag_count(buf, pos)
    if not count:
        return {}, pos
    budget.take_elements(count)
    return _read_tags(buf, pos, count)


def skip_tags(buf: Buffer, pos: int) -> int:
    """The position after tagged fields of which nothing is kept, as in a header."""
    count, pos = _tag_count(buf, pos)
    return _read_tags(buf, pos, count)[1] if count else pos


def _tag_count(buf: Buffer, pos: int) -> tuple[int, int]:
    count, pos = read_uvarint(buf, pos)
    if count > MOST_TAGS:
        raise RemoteProtocolError(f"{count} tagged fields in one struct")
    return count, pos


def _read_tags(buf: Buffer, pos: int, count: int) -> tuple[dict[int, bytes], int]:
    tags: dict[int, bytes] = {}
    for _ in range(count):
        tag, pos = read_uvarint(buf, pos)
        size, pos = read_uvarint(buf, pos)
        if tag in tags or pos + size > len(buf):
            raise RemoteProtocolError(f"tagged field {tag} comes twice or is cut")
        tags[tag] = bytes(buf[pos : pos + size])
        pos += size
    return tags, pos


def whole(result: tuple[T, int], raw: bytes) -> T:
    """The value read from a tagged field, which it must fill to the last byte."""
    value, pos = result
    if pos != len(raw):
        raise RemoteProtocolError("a tagged field has another size than it says")
    return value
