"""Snapshots of a partition of the transaction log: written by any instance that has read it, loaded by later ones.

SNAPSHOT(S, writer, k of n) states the views of all records before offset S. It changes no view, so it may be written by
any instance, twice, or late. What lies before S may be deleted once *all* of its chunks are acknowledged. A reader that
finds the log to begin at L > 0 knows nothing until it has met every chunk of a snapshot with S >= L; then it applies
the records from S on. The explorer (``verification.explorer.broken_snapshots``) shows what these words are for.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import Final, NamedTuple

from kproxy.codec._generated.transaction_snapshot import TransactionSnapshot
from kproxy.errors import RemoteProtocolError
from kproxy.txn.log_records import Entry, RawRecord, encode
from kproxy.txn.snapshot_views import decode_views, encode_views
from kproxy.txn.view import IdView, LogPosition

#: Bytes of the views in a chunk: a batch with one chunk stays well below the 1 MiB that topics take.
CHUNK_BYTES: Final = 500_000
#: A snapshot is due after so many records, or bytes of them; and after several times its own size.
_DUE_RECORDS: Final = 50_000
_DUE_BYTES: Final = 16 << 20
_DUE_SIZES: Final = 4


def is_due(records: int, size: int, last_size: int) -> bool:
    """Whether a snapshot should be taken.

    ``records``, ``size``: what came since the last one (bytes of keys and values); ``last_size``: its own bytes, or 0.
    """
    return (records >= _DUE_RECORDS or size >= _DUE_BYTES) and size >= _DUE_SIZES * last_size


def snapshot_records(
    views: Iterable[IdView],
    up_to: int,
    writer: bytes,
    chunk_bytes: int = CHUNK_BYTES,
    rejected: Collection[int] = (),
) -> list[RawRecord]:
    """The chunks of a snapshot, in order: ``views`` are what all records before ``up_to`` say, and no other.

    ``rejected``: the producer ids that those records reject. ``writer`` (16 bytes) tells this snapshot from others,
    also of the same instance.
    """
    data = encode_views(views, rejected)
    parts = [data[at : at + chunk_bytes] for at in range(0, len(data), chunk_bytes)]
    return [
        encode(Entry("", TransactionSnapshot(up_to, writer, number, len(parts), part)))
        for number, part in enumerate(parts)
    ]


class _Chunks:
    """Chunks that have come, until all of one snapshot are there."""

    def __init__(self) -> None:
        self._come: dict[tuple[int, bytes, int], dict[int, bytes]] = {}

    def take(self, chunk: TransactionSnapshot) -> bytes | None:
        """The whole snapshot if this was what lacked of it. RemoteProtocolError if there is no such chunk."""
        if not 0 <= chunk.chunk < chunk.chunks:
            raise RemoteProtocolError(f"chunk {chunk.chunk} of {chunk.chunks}")
        key = (chunk.up_to, chunk.writer, chunk.chunks)
        come = self._come.setdefault(key, {})
        come[chunk.chunk] = chunk.views
        if len(come) < chunk.chunks:
            return None
        # older ones are of no use any more, whatever may come of them
        self._come = {other: chunks for other, chunks in self._come.items() if other[0] > chunk.up_to}
        return b"".join(come[number] for number in range(chunk.chunks))


class Step(NamedTuple):
    """The next step of a reader."""

    views: Sequence[IdView]
    """Views to begin with: the state of the log before the first of ``records``."""
    records: Sequence[tuple[Entry, LogPosition]]
    """Records to apply, in order."""
    rejected: Collection[int] = ()
    """Rejected producer ids to begin with, like ``views``."""


_NOTHING: Final = Step((), ())


class PartitionLoader:
    """Reads one partition from its log start on, and returns what may be applied.

    While it is not sure, it holds the records: at most those between two snapshots, as long as nothing is deleted
    before a snapshot is whole.
    """

    def __init__(self, start: int) -> None:
        """``start``: the log start offset; a snapshot after it has the state of earlier records."""
        #: Whether what is applied is all that the log says up to here.
        self.is_sure = start == 0
        #: Records and bytes since the newest whole snapshot (or the start), and that one's offset and bytes.
        self.records = 0
        self.size = 0
        self.up_to = start
        self.last_size = 0
        self._chunks = _Chunks()
        self._held: list[tuple[Entry, LogPosition]] = []

    @property
    def is_due(self) -> bool:
        """Whether somebody should take a snapshot."""
        return self.is_sure and is_due(self.records, self.size, self.last_size)

    def take(self, entry: Entry, at: LogPosition, size: int) -> Step:
        """The next record, with the bytes of its key and value. RemoteProtocolError if it is damaged."""
        if isinstance(entry.body, TransactionSnapshot):
            return self._snapshot(entry.body, at)
        self.records += 1
        self.size += size
        if self.is_sure:
            return Step((), ((entry, at),))
        self._held.append((entry, at))
        return _NOTHING

    def begin_without(self) -> Step:
        """Continues with the records that the log still has: no snapshot states those before."""
        held, self.is_sure, self._held = self._held, True, []
        return Step((), held)

    def _snapshot(self, chunk: TransactionSnapshot, at: LogPosition) -> Step:
        if chunk.up_to < 0:
            raise RemoteProtocolError(f"snapshot up to {chunk.up_to} at offset {at.offset}")
        if chunk.up_to > at.offset:
            return _NOTHING  # of a log that was truncated or recreated in the meantime
        whole = self._chunks.take(chunk)
        if whole is None or chunk.up_to < self.up_to:
            return _NOTHING
        views, rejected = ([], []) if self.is_sure else decode_views(whole)
        held = [(entry, stand) for entry, stand in self._held if stand.offset >= chunk.up_to]
        self.is_sure, self._held = True, []
        self.records = self.size = 0
        self.up_to, self.last_size = chunk.up_to, len(whole)
        return Step(views, held, rejected)
