"""CRC-32C (Castagnoli) of record format v2, and how to mend one without reading what it covers.

A CRC is linear: with the same length, crc(a) xor crc(b) depends on a xor b only, and bytes that are equal contribute
nothing but a shift. So when a few header bytes change, the new checksum follows from the old one, from those bytes, and
from the *number* of bytes behind them. A payload that was damaged before stays damaged: its checksum stays wrong.
"""

from typing import Final

from crc32c import crc32c as crc32c

_INVERT: Final = 0xFFFFFFFF
_ZEROS: Final = memoryview(bytes(1 << 20))


def shift(delta: int, length: int) -> int:
    """Carry a checksum difference (32 bits) over ``length`` following bytes that are equal on both sides.

    The library inverts the register on the way in and out; inverting once more outside leaves the bare linear map,
    which one run over zero bytes then computes at hardware speed.
    """
    state = delta ^ _INVERT
    while length > len(_ZEROS):
        state = crc32c(_ZEROS, state)
        length -= len(_ZEROS)
    return crc32c(_ZEROS[:length], state) ^ _INVERT


def mend(crc: int, old: bytes, new: bytes, behind: int) -> int:
    """The checksum after ``old`` was replaced by ``new`` (as long) with ``behind`` unchanged bytes after it."""
    return crc ^ shift(crc32c(old, _INVERT) ^ crc32c(new, _INVERT), behind)
