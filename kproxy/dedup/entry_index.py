"""Finds of the unconfirmed batches of a partition those that are like a request, and those that are not read back yet.

Where several programs of one name have ended, thousands of small batches may be unconfirmed, and each request of those
that follow is compared with them until it is known what its client sends.
"""

from array import array
from bisect import bisect_left
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import Final

from kproxy.dedup.unconfirmed import UnconfirmedBatch

#: Fewer entries are not sorted.
LEAST_ENTRIES: Final = 32
#: More records are not sorted: that would take long, and entries with many records are few.
MOST_RECORDS: Final = 32_768
_RECORD_BYTES: Final = 12
_ENTRY_BYTES: Final = 16


class EntryIndex:
    """The entries of one partition, until one is added or taken out."""

    def __init__(self, entries: Sequence[UnconfirmedBatch]) -> None:
        """``entries``: in their order."""
        self._entries = tuple(entries)
        self._unread = [entry for entry in entries if entry.digests is None]
        #: The keys of all records (``Digests.keys``), sorted, and of which entry each is; None until they are needed.
        self._keys: array[int] | None = None
        self._places = array("I")

    @property
    def size(self) -> int:
        """The approximate bytes of memory that it takes."""
        return len(self._keys or ()) * _RECORD_BYTES + len(self._entries) * _ENTRY_BYTES

    def unread(self) -> list[UnconfirmedBatch]:
        """The entries that are not read back yet."""
        if self._unread:
            self._unread = [entry for entry in self._unread if entry.digests is None]
        return self._unread

    def alike(self, keys: AbstractSet[int]) -> Sequence[UnconfirmedBatch]:
        """The entries in their order, as far as they have a record with one of these keys; maybe others beside them."""
        known = self._sorted()
        if known is None:
            return self._entries
        found: set[int] = set()
        for key in keys:
            at = bisect_left(known, key)
            while at < len(known) and known[at] == key:
                found.add(self._places[at])
                at += 1
        return [self._entries[at] for at in sorted(found)]

    def _sorted(self) -> "array[int] | None":
        if self._keys is None and len(self._entries) >= LEAST_ENTRIES and not self.unread():
            read = [entry.digests for entry in self._entries if entry.digests is not None]  # all are
            if sum(map(len, read)) <= MOST_RECORDS:
                rows = sorted((key, at) for at, digests in enumerate(read) for key in digests.keys)
                self._keys = array("Q", [key for key, _ in rows])
                self._places = array("I", [at for _, at in rows])
        return self._keys
