"""Answers to kproxy's own requests, found in a stream of which the rest is a client's."""

from struct import Struct
from typing import Final, NamedTuple

from kproxy.errors import RemoteProtocolError

#: Length and correlation id.
_HEAD: Final = Struct(">ii")
#: A response of SaslHandshake or SaslAuthenticate is never longer.
_MOST_OWN_BYTES: Final = 65_536


class Sifted(NamedTuple):
    """The result of received bytes: how many at the front belong to others, and the response that is complete now."""

    kept: int
    own: bytes | None


class AnswerSieve:
    """Follows the frames of a stream, and takes those with one correlation id out of it.

    The first bytes of a frame are held back until it can be told whose it is; the caller puts them in front again.
    """

    __slots__ = ("_left", "_own", "held")

    def __init__(self) -> None:
        #: Bytes of the frame at hand that have not come.
        self._left = 0
        self._own: bytearray | None = None
        #: To be put in front of what is read next; 7 bytes at most.
        self.held = b""

    def sift(self, data: memoryview, wanted: int | None) -> Sifted:
        """Takes the response under ``wanted`` out of ``data``, which begins with ``held``; others' bytes move up.

        RemoteProtocolError: no Kafka answer begins so.
        """
        keep = pos = 0
        own = None
        self.held = b""
        while pos < len(data):
            if not self._left:
                if len(data) - pos < _HEAD.size:
                    self.held = bytes(data[pos:])
                    break
                self._begin(data, pos, wanted)
            part = min(self._left, len(data) - pos)
            if self._own is not None:
                self._own += data[pos : pos + part]
            else:
                if keep != pos:
                    data[keep : keep + part] = bytes(data[pos : pos + part])
                keep += part
            pos += part
            self._left -= part
            if self._own is not None and not self._left:
                own, self._own = bytes(self._own), None
        return Sifted(keep, own)

    def _begin(self, data: memoryview, pos: int, wanted: int | None) -> None:
        length, correlation_id = _HEAD.unpack_from(data, pos)
        mine = correlation_id == wanted
        if length < _HEAD.size - 4 or (mine and length > _MOST_OWN_BYTES):
            raise RemoteProtocolError(f"the broker sent an answer of {length} bytes")
        self._left = 4 + length
        self._own = bytearray() if mine else None
