"""CRC-32C (Castagnoli) of record format v2, and how to mend one without reading what it covers.

A CRC is linear: with the same length, crc(a) xor crc(b) depends on a xor b only, and bytes that are equal contribute
nothing but a shift. So when a few header bytes change, the new checksum follows from the old one, from those bytes, and
from the *number* of bytes after them. A payload that was damaged before stays damaged: its checksum stays wrong.
"""

from functools import cache
from typing import Final

from crc32c import crc32c as crc32c

_INVERT: Final = 0xFFFFFFFF
#: Below 16 KiB, the usual batch, one run over zeros is as fast as what the tables save of it.
_RUN_BITS: Final = 14
_ZEROS: Final = memoryview(bytes(1 << _RUN_BITS))

_Operator = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[int, ...]]


def shift(delta: int, length: int) -> int:
    """Carry a checksum difference (32 bits) over ``length`` following bytes that are equal on both sides.

    The library inverts the register on the way in and out; inverting once more outside leaves the bare linear map,
    which a run over zero bytes computes at hardware speed. Longer runs are composed of powers of two.
    """
    while length >> _RUN_BITS:
        bit = length.bit_length() - 1
        low, second, third, high = _operator(bit)
        delta = low[delta & 0xFF] ^ second[delta >> 8 & 0xFF] ^ third[delta >> 16 & 0xFF] ^ high[delta >> 24]
        length -= 1 << bit
    return crc32c(_ZEROS[:length], delta ^ _INVERT) ^ _INVERT


def mend(crc: int, old: bytes, new: bytes, behind: int) -> int:
    """The checksum after ``old`` was replaced by ``new`` (as long) with ``behind`` unchanged bytes after it."""
    return crc ^ shift(crc32c(old, _INVERT) ^ crc32c(new, _INVERT), behind)


@cache
def _operator(bit: int) -> _Operator:
    """The shift by ``2**bit`` bytes, as a table for each byte of the difference. As many as a length has bits: few."""

    def table(place: int) -> tuple[int, ...]:
        if bit == _RUN_BITS:
            return tuple(crc32c(_ZEROS, (byte << place) ^ _INVERT) ^ _INVERT for byte in range(256))
        half = 1 << (bit - 1)
        return tuple(shift(shift(byte << place, half), half) for byte in range(256))

    return table(0), table(8), table(16), table(24)
