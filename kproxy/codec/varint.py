"""Zigzag varints as used inside record format v2 (KIP-98; Kafka's ``ByteUtils``)."""

from typing import Final

from kproxy.codec.records import CorruptRecord

_MASK_64: Final = (1 << 64) - 1
_MAX_BYTES: Final = 10


def encode_varint(value: int) -> bytes:
    """The zigzag varint of a signed integer of at most 64 bits: 1 to 10 bytes, the lowest seven bits first."""
    rest = ((value << 1) ^ (value >> 63)) & _MASK_64
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


class _Varints(dict[int, bytes]):
    """Encodings of small numbers, kept from their first use; a larger one is not kept, so the table has a bound."""

    def __missing__(self, value: int) -> bytes:
        encoded = encode_varint(value)
        if -64 <= value < 8192:
            self[value] = encoded
        return encoded


# A lookup costs a tenth of an encoding, and nearly every number in a batch is a short length or a small delta.
VARINTS: Final[dict[int, bytes]] = _Varints()

# What a varint of one byte says.
ZIGZAG: Final = tuple((byte >> 1) ^ -(byte & 1) for byte in range(0x80))


def read_varint(buf: bytes | memoryview, pos: int) -> tuple[int, int]:
    """Decode the zigzag varint (up to 64 bits) at ``pos``; returns ``(value, position after it)``.

    Raises ``CorruptRecord`` when it is cut short or longer than ten bytes.
    """
    try:
        first = buf[pos]
        if first < 0x80:
            return ZIGZAG[first], pos + 1
        second = buf[pos + 1]
        if second < 0x80:
            result = first & 0x7F | second << 7
            return (result >> 1) ^ -(result & 1), pos + 2
    except IndexError as error:
        raise CorruptRecord("varint cut short") from error
    result = shift = 0
    for byte in buf[pos : pos + _MAX_BYTES]:
        pos += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (result >> 1) ^ -(result & 1), pos
        shift += 7
    raise CorruptRecord("varint cut short or too long")
