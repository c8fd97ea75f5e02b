"""Writers of the wire types that the generated message codec is made of; ``primitives`` has the readers.

A writer appends to a ``bytearray``. What the protocol cannot say raises LocalProtocolError, or an error of ``struct``
or of the UTF-8 encoder that ``Message`` turns into one.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct, pack
from typing import TYPE_CHECKING, TypeVar

from kproxy.codec.accelerator import accelerated
from kproxy.codec.primitives import MAX_INT16
from kproxy.errors import LocalProtocolError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kproxy.codec.primitives import Buffer

T = TypeVar("T")
StructWriter = Callable[[bytearray, T, int], None]

_int16 = Struct(">h")
_int32 = Struct(">i")


@accelerated
def write_uvarint(out: bytearray, value: int) -> None:
    """Appends an unsigned varint."""
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def _utf8(value: str | None) -> bytes:
    if value is None:
        raise LocalProtocolError("null string where the version has none")
    data = value.encode()
    if len(data) > MAX_INT16:
        raise LocalProtocolError(f"string of {len(data)} bytes is longer than {MAX_INT16}")
    return data


def write_string(out: bytearray, value: str | None) -> None:
    """INT16 length and UTF-8; null refused."""
    data = _utf8(value)
    out += _int16.pack(len(data))
    out += data


def write_nullable_string(out: bytearray, value: str | None) -> None:
    """INT16 length and UTF-8; null is -1."""
    if value is None:
        out += b"\xff\xff"
    else:
        write_string(out, value)


@accelerated
def write_compact_string(out: bytearray, value: str | None) -> None:
    """Varint length + 1 and UTF-8; null refused."""
    data = _utf8(value)
    write_uvarint(out, len(data) + 1)
    out += data


def write_compact_nullable_string(out: bytearray, value: str | None) -> None:
    """Varint length + 1 and UTF-8; null is 0."""
    if value is None:
        out.append(0)
    else:
        write_compact_string(out, value)


def write_bytes(out: bytearray, value: Buffer | None) -> None:
    """INT32 length and the bytes; null refused."""
    if value is None:
        raise LocalProtocolError("null bytes where the version has none")
    out += _int32.pack(len(value))
    out += value


def write_nullable_bytes(out: bytearray, value: Buffer | None) -> None:
    """INT32 length and the bytes; null is -1."""
    if value is None:
        out += b"\xff\xff\xff\xff"
    else:
        write_bytes(out, value)


def write_compact_bytes(out: bytearray, value: Buffer | None) -> None:
    """Varint length + 1 and the bytes; null refused."""
    if value is None:
        raise LocalProtocolError("null bytes where the version has none")
    write_uvarint(out, len(value) + 1)
    out += value


def write_compact_nullable_bytes(out: bytearray, value: Buffer | None) -> None:
    """Varint length + 1 and the bytes; null is 0."""
    if value is None:
        out.append(0)
    else:
        write_compact_bytes(out, value)


def uuid_bytes(value: bytes) -> bytes:
    """The 16 bytes of a uuid, checked, since ``struct`` would cut or pad silently."""
    if len(value) != 16:
        raise LocalProtocolError(f"a uuid has 16 bytes, not {len(value)}")
    return value


@accelerated
def write_length(out: bytearray, value: list[T] | None, compact: bool, nullable: bool) -> list[T]:
    """Appends the count of an array, returns its elements (none if it is null)."""
    if value is None:
        if not nullable:
            raise LocalProtocolError("null array where the version has none")
        out += b"\0" if compact else b"\xff\xff\xff\xff"
        return []
    if compact:
        write_uvarint(out, len(value) + 1)
    else:
        out += _int32.pack(len(value))
    return value


@accelerated
def write_structs(out: bytearray, version: int, items: list[T], write: StructWriter[T]) -> None:
    """Appends structs, one after the other."""
    for item in items:
        write(out, item, version)


def write_strings(out: bytearray, items: list[str], compact: bool) -> None:
    """Appends strings, one after the other."""
    write = write_compact_string if compact else write_string
    for item in items:
        write(out, item)


def write_ints(out: bytearray, code: str, items: list[int]) -> None:
    """Appends integers of the ``struct`` format ``code``."""
    out += pack(f">{len(items)}{code}", *items)


def write_nullable_struct(out: bytearray, version: int, value: T | None, write: StructWriter[T]) -> None:
    """Appends 1 and the struct, or -1 if it is null."""
    if value is None:
        out.append(255)
    else:
        out.append(1)
        write(out, value, version)


@accelerated
def write_tags(out: bytearray, tags: Mapping[int, bytes]) -> None:
    """Appends tagged fields in the order of their tags."""
    if not tags:
        out.append(0)
        return
    write_uvarint(out, len(tags))
    for tag in sorted(tags):
        write_uvarint(out, tag)
        write_uvarint(out, len(tags[tag]))
        out += tags[tag]


def absent(name: str, version: int) -> LocalProtocolError:
    """The error for a field that has a value but no place in ``version``."""
    return LocalProtocolError(f"{name} cannot be said in version {version}")
