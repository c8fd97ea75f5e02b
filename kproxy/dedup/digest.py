"""The marks of a record that its copies share: a hash of key, value and headers, and the timestamp of the client."""

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from operator import itemgetter
from struct import Struct
from typing import Final, NamedTuple, overload

#: The record has no time of its client's: magic 0, or the broker put its own in its place (LogAppendTime).
UNTIMED = -1

#: Bytes of ``Digest.content``.
CONTENT_BYTES: Final = 16
_CONTENT: Final = Struct(f"{CONTENT_BYTES}s")
_FIRST: Final = itemgetter(0)
_TIME_BYTES: Final = 8
_KEY_BYTES: Final = 8
#: What a block takes beside its records, in bytes; measured.
_BLOCK_BYTES: Final = 250
#: A block with so many more records than are searched is sorted first, once.
_FEW: Final = 16


class Digest(NamedTuple):
    """One record, as far as it takes to know it again."""

    content: bytes
    """128 bits of xxh3 over key, value and headers, as format v2 has them: clients and brokers write them alike."""
    timestamp_ms: int
    """The client's CreateTime, or ``UNTIMED``."""


def have_same_time(one: Digest, other: Digest) -> bool:
    """Whether two records have the same timestamp, given by their client."""
    return one.timestamp_ms == other.timestamp_ms and one.timestamp_ms != UNTIMED


class Digests(Sequence[Digest]):
    """The digests of records in one block, 24 bytes for each: as objects they would take ten times as much."""

    __slots__ = ("_keys", "block", "times")

    def __init__(self, block: bytes = b"", times: "array[int] | None" = None) -> None:
        """``block``: the contents, one after another; ``times``: the timestamps in ms, from then on its own."""
        self.block: Final = block
        self.times: array[int] = array("q") if times is None else times
        #: A part of each content, sorted; None until it is needed.
        self._keys: array[int] | None = None

    @classmethod
    def of(cls, records: Iterable[Digest]) -> "Digests":
        """These, in their order."""
        rows = list(records)
        return cls(b"".join([row.content for row in rows]), array("q", [row.timestamp_ms for row in rows]))

    @property
    def size(self) -> int:
        """The approximate bytes of memory that these take."""
        each = CONTENT_BYTES + _TIME_BYTES + (_KEY_BYTES if self._keys is not None else 0)
        return _BLOCK_BYTES + len(self.times) * each

    def contents(self) -> Iterator[bytes]:
        """``Digest.content`` of each: one at a time, since all of them would take three times as much as the block."""
        return map(_FIRST, _CONTENT.iter_unpack(self.block))

    @property
    def keys(self) -> frozenset[int]:
        """A part of each content (``has_any``)."""
        return frozenset(self._all_keys())

    def has_any(self, keys: AbstractSet[int]) -> bool:
        """Whether one of these records has one of these ``keys``: if none has, none has the content of one of these."""
        if len(self.times) <= len(keys) * _FEW:
            return not keys.isdisjoint(self._all_keys())
        if self._keys is None:
            self._keys = array("Q", sorted(self._all_keys()))
        known = self._keys
        return any((at := bisect_left(known, key)) < len(known) and known[at] == key for key in keys)

    def copy(self) -> "Digests":
        """The same with timestamps of their own, which may be changed."""
        return Digests(self.block, self.times[:])

    def chosen(self, places: Iterable[int]) -> "Digests":
        """Those at some places, in that order."""
        block, times, contents, chosen = self.block, self.times, bytearray(), array("q")
        for at in places:
            contents += block[at * CONTENT_BYTES : (at + 1) * CONTENT_BYTES]
            chosen.append(times[at])
        return Digests(bytes(contents), chosen)

    def _all_keys(self) -> "array[int]":
        return array("Q", self.block)[::2]

    def __len__(self) -> int:
        return len(self.times)

    @overload
    def __getitem__(self, at: int) -> Digest: ...
    @overload
    def __getitem__(self, at: slice) -> "Digests": ...
    def __getitem__(self, at: int | slice) -> "Digest | Digests":
        if isinstance(at, slice):
            return self.chosen(range(*at.indices(len(self.times))))
        time = self.times[at]
        start = range(0, len(self.block), CONTENT_BYTES)[at]
        return Digest(self.block[start : start + CONTENT_BYTES], time)

    def __iter__(self) -> Iterator[Digest]:
        return map(Digest, self.contents(), self.times)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Digests):
            return NotImplemented
        return self.times == other.times and self.block == other.block

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Digests.of({list(self)})"
