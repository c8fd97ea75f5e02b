"""Batches of a Fetch response, and which of them may be unconfirmed after a crash."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from math import inf
from struct import Struct
from typing import Final, NamedTuple

from kproxy.codec.batch import LOG_OVERHEAD, BatchHeader, read_header
from kproxy.codec.sequence import SEQUENCE_SPACE, advance
from kproxy.errors import RemoteProtocolError

#: A producer's last batches, or those of its last moments, whichever are more: most likely their responses were lost.
TAIL_BATCHES: Final = 5
TAIL_MS: Final = 2_000
#: Records of this time were made when they were sent, as far as anybody can tell: their age says something.
_PRESENT_MS: Final = 3_600_000
#: A producer that has written 2^31 records to a partition wrote the one before less than so many offsets ago.
_NEAR: Final = 1000

#: In place of the ids of producers that count as one.
_TOGETHER: Final = -1

_PREFIX: Final = Struct(">qi")
_MAGIC_AT: Final = 16
_MAGIC_V2: Final = 2


class Depth(NamedTuple):
    """The depth to which a producer's batches are of interest; the last ``batches`` always are."""

    #: Those before are not that are older than its last one by so much.
    window_ms: int
    #: This is judged by the records' timestamps only where the last one is of about this time, in ms since 1970:
    #: records of the past may be sent at any rate. None: always.
    now_ms: int | None = None
    batches: int = TAIL_BATCHES

    def since_ms(self, last_ms: int) -> float:
        """The oldest timestamp of interest; ``last_ms``: that of the last batch."""
        if self.now_ms is not None and abs(self.now_ms - last_ms) > _PRESENT_MS:
            return -inf
        return last_ms - self.window_ms


#: For what was in flight a moment ago.
LAST: Final = Depth(TAIL_MS)


class Batch(NamedTuple):
    """A record batch of format v2 from a log; ``data`` is the whole of it, header included."""

    header: BatchHeader
    data: bytes

    @property
    def next_offset(self) -> int:
        """The offset after its last record."""
        return self.header.base_offset + self.header.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """The sequence of its last record, also where compaction has removed that."""
        return advance(self.header.base_sequence, self.header.last_offset_delta)


def split_batches(data: bytes | memoryview, first: int) -> tuple[list[Batch], int]:
    """The whole batches in a record set that was read from offset ``first``, and the offset to read on from.

    What is cut at the end is left out. So are messages of formats 0 and 1, which no idempotent producer wrote.
    RemoteProtocolError if it is no record set.
    """
    batches: list[Batch] = []
    following, pos = first, 0
    while len(data) - pos > _MAGIC_AT:
        base_offset, length = _PREFIX.unpack_from(data, pos)
        if length <= _MAGIC_AT - LOG_OVERHEAD:
            raise RemoteProtocolError("record set with an impossible length")
        end = pos + LOG_OVERHEAD + length
        if end > len(data):
            break
        last = base_offset
        if data[pos + _MAGIC_AT] == _MAGIC_V2:
            header = read_header(data, pos)
            last += header.last_offset_delta
            if last >= first:
                batches.append(Batch(header, bytes(data[pos:end])))
        following, pos = max(following, last + 1), end
    return batches, following


def tail_of(
    batches: Iterable[Batch],
    first_epochs: Mapping[int, int | None],
    depth: Depth = LAST,
    low: int = 0,
    *,
    together: bool = False,
) -> tuple[list[Batch], bool]:
    """Each producer's last batches out of a log's (in order), markers left out; and whether older ones can't be any.

    ``first_epochs``: by producer id the epoch at whose sequence 0 its batches of interest begin, None if unknown.
    ``low``: the offset from which on the log was read. A producer's time is that of its own batches: its clients'
    clocks may differ from any other. ``together``: they count as one producer.
    """
    own: dict[int, list[Batch]] = {producer_id: [] for producer_id in first_epochs}
    begun: set[int] = set()
    for batch in batches:
        producer_id = batch.header.producer_id
        if producer_id in own:
            if _is_first(batch, first_epochs[producer_id], own[producer_id], low):
                begun.add(producer_id)
            if not batch.header.is_control:
                own[producer_id].append(batch)
    if together:
        own = {_TOGETHER: sorted(chain.from_iterable(own.values()), key=lambda batch: batch.header.base_offset)}
        begun.clear()
    kept: list[Batch] = []
    enough = True
    for producer_id, found in own.items():
        tail = _tail(found, depth)
        kept += tail
        enough = enough and (len(found) > len(tail) or producer_id in begun)
    return sorted(kept, key=lambda batch: batch.header.base_offset), enough


def _is_first(batch: Batch, epoch: int | None, before: Sequence[Batch], low: int) -> bool:
    """Whether what lies before is of no interest: it is the first one, or one of an earlier epoch.

    ``before``: what was read of the same producer before it, from offset ``low`` on.
    """
    header = batch.header
    if epoch is None or header.producer_epoch > epoch:
        return False
    if header.producer_epoch < epoch:
        return True
    return not (header.base_sequence or header.is_control or _may_follow_the_last(header, before, low))


def _may_follow_the_last(header: BatchHeader, before: Sequence[Batch], low: int) -> bool:
    """Whether sequence 0 may come after the last one, 2^31-1: then as many records of the producer lie before.

    A topic that was created again while its producer wrote so many is left out of account.
    """
    if header.base_offset < SEQUENCE_SPACE:
        return False
    return low > header.base_offset - _NEAR or any(
        other.header.producer_epoch == header.producer_epoch for other in before[-1:]
    )


def holds(batches: Sequence[Batch], producer_id: int, epoch: int, last_sequence: int) -> bool:
    """Whether the batch that ends at this sequence is among these; so it is where nothing was written (-1)."""
    return last_sequence < 0 or any(
        (batch.header.producer_id, batch.header.producer_epoch, batch.last_sequence)
        == (producer_id, epoch, last_sequence)
        for batch in reversed(batches)
    )


def last_batches(batches: Iterable[Batch]) -> set[int]:
    """The last of each producer's batches (in order), by base offset; markers are none."""
    own: dict[int, list[Batch]] = {}
    for batch in batches:
        if not batch.header.is_control:
            own.setdefault(batch.header.producer_id, []).append(batch)
    return {batch.header.base_offset for found in own.values() for batch in _tail(found, LAST)}


def _tail(batches: Sequence[Batch], depth: Depth) -> Sequence[Batch]:
    # not the newest timestamp: where a clock was set back, those before it would hide what followed
    since = depth.since_ms(batches[-1].header.max_timestamp) if batches else 0
    kept = min(depth.batches, len(batches))
    while kept < len(batches) and batches[-kept - 1].header.max_timestamp >= since:
        kept += 1
    return batches[len(batches) - kept :]
