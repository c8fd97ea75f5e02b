"""Cuts a byte stream into Kafka's frames: a 4-byte length, then that many bytes (Kafka's ``NetworkReceive``)."""

from struct import Struct
from typing import Final

from kproxy.codec.accelerator import accelerated
from kproxy.errors import RemoteProtocolError

_LENGTH = Struct(">i")
_API_KEY = Struct(">h")
PREFIX: Final = 4
_PRODUCE: Final = 0
_UNLIMITED: Final = 1 << 31
#: The first two bytes of a TLS connection (RFC 8446, 5.1), where a length is expected.
_TLS_HANDSHAKE: Final = 0x1603
#: What is set aside for a frame before more of it has come. A length alone costs the peer nothing, so this times the
#: number of connections must be far below the memory for all of them.
_FIRST_ALLOCATION: Final = 2048
_LARGEST_STEP: Final = 1 << 20
#: What such room is made of. New zeros for each step would be fresh memory each time: a page fault for every 4 KB.
_ZEROS: Final = memoryview(bytes(_LARGEST_STEP))


class FrameSplitter:
    """Cuts pieces of a byte stream into whole frames. Holds at most one frame, little more than its received bytes."""

    __slots__ = ("_filled", "_max_other_bytes", "_partial", "_size", "_start", "held", "max_frame_bytes")

    def __init__(self, max_frame_bytes: int, max_other_bytes: int | None = None) -> None:
        """``max_frame_bytes``: the longest frame allowed, without its prefix.

        ``max_other_bytes``: of clients' requests, the longest that is no Produce request; None: as long as any.
        """
        self._max_other_bytes = _UNLIMITED if max_other_bytes is None else max_other_bytes
        #: May be changed between two frames.
        self.max_frame_bytes = max_frame_bytes
        self._start = b""  # of a prefix that is not whole
        self._partial: bytearray | None = None
        self._filled = 0
        self._size = 0
        #: Bytes set aside for the frame that is not whole; 0: none has begun.
        self.held = 0

    def room(self) -> memoryview | None:
        """Where to read the rest of a begun frame to, without a copy; report it with ``filled``."""
        if self._partial is None:
            return None
        if self._filled == len(self._partial):
            self._grow()
        return memoryview(self._partial)[self._filled :]

    def filled(self, count: int) -> bytearray | None:
        """Notes ``count`` bytes read into ``room``; the frame, if it is whole now."""
        assert self._partial is not None
        self._filled += count
        return self._finished()

    def drop(self) -> None:
        """Frees what has come of the frame that is not whole; nothing more may be fed."""
        self._start, self._partial, self.held = b"", None, 0

    def feed(self, data: memoryview) -> list[bytearray]:
        """The whole frames, prefix included, after ``data`` came. RemoteProtocolError on a length out of range."""
        frames: list[bytearray] = []
        if self._partial is not None:
            take = min(len(data), self._size - self._filled)
            del self._partial[self._filled :]  # what was set aside; to append is cheaper than to fill in
            self._partial += data[:take]
            self.held = len(self._partial)
            whole = self.filled(take)
            if whole is None:
                return frames
            frames.append(whole)
            data = data[take:]
        elif self._start:
            data = memoryview(self._start + bytes(data))
            self._start, self.held = b"", 0
        pos = cut_whole(data, min(self.max_frame_bytes, self._max_other_bytes), frames)
        return frames if pos == len(data) else self._cut_rest(data, pos, frames)

    def _cut_rest(self, data: memoryview, pos: int, frames: list[bytearray]) -> list[bytearray]:
        end = len(data)
        while end - pos >= PREFIX:
            (length,) = _LENGTH.unpack_from(data, pos)
            if not 0 <= length <= self.max_frame_bytes:
                hint = "; the first bytes are those of TLS" if length >> 16 == _TLS_HANDSHAKE else ""
                raise RemoteProtocolError(f"frame of {length} bytes; at most {self.max_frame_bytes} are allowed{hint}")
            if length > self._max_other_bytes and not self._may_be_long(data, pos, length):
                break
            behind = pos + PREFIX + length
            if behind > end:
                self._begin(data[pos:], PREFIX + length)
                return frames
            frames.append(bytearray(data[pos:behind]))
            pos = behind
        if pos < end:
            self._start, self.held = bytes(data[pos:]), end - pos
        return frames

    def _may_be_long(self, data: memoryview, pos: int, length: int) -> bool:
        """Whether a long frame is a Produce request; False: more bytes are needed. RemoteProtocolError if it is not."""
        if len(data) - pos < PREFIX + _API_KEY.size:
            return False
        (api_key,) = _API_KEY.unpack_from(data, pos + PREFIX)
        if api_key != _PRODUCE:
            raise RemoteProtocolError(
                f"request of {length} bytes (API key {api_key}); at most {self._max_other_bytes} are allowed "
                "for all but Produce (request.max.bytes)"
            )
        return True

    def _begin(self, data: memoryview, size: int) -> None:
        self._size, self._filled = size, len(data)
        self._partial, self.held = bytearray(data), len(data)

    def _grow(self) -> None:
        """Makes room for some more, as much as came so far at most: in place, so that no frame is held twice."""
        assert self._partial is not None
        ahead = max(_FIRST_ALLOCATION, min(self._filled, _LARGEST_STEP))
        self._partial += _ZEROS[: min(self._size - self._filled, ahead)]
        self.held = len(self._partial)

    def _finished(self) -> bytearray | None:
        assert self._partial is not None
        if self._filled < self._size:
            return None
        frame, self._partial, self.held = self._partial, None, 0
        return frame


@accelerated
def cut_whole(data: memoryview, longest: int, frames: list[bytearray]) -> int:
    """Adds to ``frames`` those at the start of ``data`` that are whole and of a usual length; where the rest begins.

    ``longest``: the most bytes of a frame, without its prefix, that need no closer look.
    """
    pos, end = 0, len(data)
    while end - pos >= PREFIX:
        (length,) = _LENGTH.unpack_from(data, pos)
        after = pos + PREFIX + length
        if not 0 <= length <= longest or after > end:
            break
        frames.append(bytearray(data[pos:after]))
        pos = after
    return pos
