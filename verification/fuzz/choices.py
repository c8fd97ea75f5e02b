"""What a fuzzer's input says: numbers and pieces of bytes, one after the other."""

from collections.abc import Iterator
from typing import Final

_LENGTH_BYTES: Final = 2


class Choices:
    """Takes an input apart, from its first byte on. After its end numbers are 0 and pieces are empty."""

    __slots__ = ("_data", "_pos")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._pos = 0

    @property
    def more(self) -> bool:
        """Whether the end is not reached."""
        return self._pos < len(self._data)

    def take(self, size: int) -> bytes:
        """The next ``size`` bytes; fewer at the end."""
        taken = self._data[self._pos : self._pos + size]
        self._pos += len(taken)
        return taken

    def number(self, size: int = 1, *, signed: bool = False) -> int:
        """The next ``size`` bytes as a number, big-endian."""
        return int.from_bytes(self.take(size).ljust(size, b"\0"), "big", signed=signed)

    def piece(self) -> bytes:
        """Two bytes that say how long it is, and the piece."""
        return self.take(self.number(_LENGTH_BYTES))

    def rest(self) -> bytes:
        """All that is left."""
        return self.take(len(self._data) - self._pos)

    def pieces(self) -> Iterator[tuple[int, bytes]]:
        """A byte and a piece, again and again until the end."""
        while self.more:
            yield self.number(), self.piece()


def piece(data: bytes) -> bytes:
    """Bytes as ``Choices.piece`` reads them."""
    return len(data).to_bytes(_LENGTH_BYTES, "big") + data
