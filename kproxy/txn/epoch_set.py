"""A set of epochs of one producer id: a bitmap, since an id that lives for months decides millions of transactions."""

from collections.abc import Iterator


class EpochSet:
    """Epochs from 0 to 32,767; 4 KiB at most."""

    __slots__ = ("_bits",)

    def __init__(self, bits: bytes = b"") -> None:
        """``bits`` as ``to_bytes`` gave them."""
        self._bits = bytearray(bits)

    def add(self, epoch: int) -> None:
        """Puts an epoch in."""
        at = epoch >> 3
        if at >= len(self._bits):
            self._bits.extend(bytes(at + 1 - len(self._bits)))
        self._bits[at] |= 1 << (epoch & 7)

    def __contains__(self, epoch: int) -> bool:
        at = epoch >> 3
        return 0 <= at < len(self._bits) and bool(self._bits[at] >> (epoch & 7) & 1)

    def __iter__(self) -> Iterator[int]:
        return (8 * at + bit for at, byte in enumerate(self._bits) if byte for bit in range(8) if byte >> bit & 1)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, EpochSet) and self.to_bytes() == other.to_bytes()

    __hash__ = None  # type: ignore[assignment]  # it changes

    def to_bytes(self) -> bytes:
        """The bitmap, without zeros at its end."""
        return bytes(self._bits).rstrip(b"\0")
