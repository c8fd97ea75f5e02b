"""The batches of a Fetch response that a reader may see, judged by their headers alone.

A batch of one of kproxy's transactions is seen if its epoch was committed and no other copy of it counts; the first one
that is undecided ends the response: that is the last stable offset. Kafka's own transactions are judged by the broker's
list of aborted ones, as consumers do (``CompletedFetch``). Markers and empty batches are never shown, at any isolation
level: some clients deliver the records of the first, and fail or stall at the second.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from struct import Struct
from typing import Final, NamedTuple, TypeAlias

from kproxy.codec.batch import BatchHeader, Record, build_batch, iter_records, read_header
from kproxy.codec.batch_header import extend
from kproxy.codec.batch_reader import entry_size, walk_batches
from kproxy.codec.records import CONTROL, MAGIC_OFFSET, TRANSACTIONAL, CorruptRecord
from kproxy.txn.ids import TXN_BITS, Producer, is_transactional_producer_id
from kproxy.txn.verdict import Decisions, Verdict

Buffer: TypeAlias = bytes | bytearray | memoryview

_OFFSET: Final = Struct(">q")
#: Of a batch's header: base offset, last offset delta.
_OFFSETS: Final = Struct(">q15xi")
_MAGIC_V2: Final = 2
#: Above all producer ids.
_NONE: Final = 1 << 63
_MOST_OFFSET: Final = (1 << 63) - 1
#: Key and value of the record in an end marker (Kafka's ``EndTransactionMarker``): version and type; coordinator epoch.
_ABORT_KEY: Final = bytes(4)
_MARKER_VALUE: Final = bytes(6)
_MOST_MARKER_BYTES: Final = 1 << 10


class Aborted(NamedTuple):
    """One of Kafka's own transactions that was aborted, and the first offset that it wrote in the partition."""

    producer_id: int
    first_offset: int


@dataclass(slots=True)
class Seen:
    """The part of a record set that may be seen."""

    #: Everything before it is in ``pieces`` or hidden for good; where ``undecided`` is set, the last stable offset.
    next_offset: int
    #: Whole batches, in order; views of the record set where nothing was changed.
    pieces: list[Buffer] = field(default_factory=list)
    #: Whether something was left out, other than a batch that was cut off at the end anyway.
    changed: bool = False
    #: The producer of the batch that ended it, because nothing is decided of it yet.
    undecided: Producer | None = None
    #: The leader epoch of the last batch that was hidden; -1 if there was none.
    leader_epoch: int = -1
    #: The bytes that were hidden for good.
    hidden_bytes: int = 0


def visible(
    record_set: Buffer,
    *,
    topic: str,
    partition: int,
    first_offset: int,
    aborted: Iterable[Aborted],
    decisions: Decisions | None,
    reads_natively: bool = False,
) -> Seen:
    """The batches that a reader that asked from ``first_offset`` on may see.

    If that is everything, the very record set is the only piece; otherwise a batch cut off at its end is left out. The
    same holds for a reader that ``reads_natively`` (skips markers, and drops aborted batches by the broker's list
    itself) as long as no batch of kproxy's transactions is in it. The offsets of a visible batch are extended over the
    hidden batches after it, so that a reader continues after them. ``aborted`` is the broker's list for this record
    set. ``decisions`` None: data of kproxy's transactions are shown. Raises ``RemoteProtocolError`` if it is no record
    set.
    """
    aborted = list(aborted)
    kproxys = _NONE if decisions is None else TXN_BITS
    plain_end = _plain_end(record_set, natively=reads_natively, some_aborted=bool(aborted), kproxys=kproxys)
    if plain_end is not None:
        return Seen(max(first_offset, plain_end), [record_set])
    walk = _Walk(Seen(first_offset), topic, partition, aborted, decisions)
    for entry in entries(record_set):
        if not walk.take(entry):
            break
    walk.end()
    return walk.seen


def _plain_end(record_set: Buffer, *, natively: bool, some_aborted: bool, kproxys: int) -> int | None:
    """The offset after a record set of which the reader may be given everything; None if that needs a full check.

    Most are such; so this reads each header once and nothing else. -1 if there is no whole batch. ``kproxys`` is the
    lowest producer id of transactions that have to be judged.
    """
    special = 0 if natively else CONTROL | TRANSACTIONAL if some_aborted else CONTROL
    walked = walk_batches(record_set, special, kproxys)
    if walked is None:
        return None
    (before, last, pos), end = walked, len(record_set)
    # what is left, if it is of an older format, may be whole though it is short
    if end - pos > MAGIC_OFFSET and record_set[pos + MAGIC_OFFSET] != _MAGIC_V2:
        return None
    last = before if pos > end else last
    if last < 0:
        return -1
    base_offset, delta = _OFFSETS.unpack_from(record_set, last)
    return int(base_offset + delta + 1)


def entries(record_set: Buffer) -> Iterator[memoryview]:
    """The whole entries and batches of a record set. Raises ``RemoteProtocolError`` if it is none."""
    view, pos = memoryview(record_set), 0
    while (size := entry_size(view, pos)) and size <= len(view) - pos:
        yield view[pos : pos + size]
        pos += size


def has_transactions(record_set: Buffer) -> bool:
    """Whether a batch of one of kproxy's transactions is in it, whatever was decided. Raises as ``entries``."""
    if walk_batches(record_set, 0, TXN_BITS) is not None:
        return False
    headers = (read_header(entry) for entry in entries(record_set) if entry[MAGIC_OFFSET] == _MAGIC_V2)
    return any(is_transactional_producer_id(header.producer_id) and not header.is_control for header in headers)


def undecided_in(entry: memoryview, decisions: Decisions) -> Producer | None:
    """The producer of a batch of one of kproxy's transactions that is undecided, else None. Raises as ``entries``."""
    if entry[MAGIC_OFFSET] != _MAGIC_V2:
        return None
    header = read_header(entry)
    return _producer_of(header) if _verdict(header, decisions) is Verdict.UNDECIDED else None


def marker(next_offset: int, leader_epoch: int) -> bytearray:
    """A batch that shows nothing and stands right before ``next_offset``: the end marker of an aborted transaction."""
    return build_batch(
        [Record(0, -1, _ABORT_KEY, _MARKER_VALUE)],
        base_offset=next_offset - 1,
        is_control=True,
        is_transactional=True,
        partition_leader_epoch=leader_epoch,
    )


class _Walk:
    """One pass over a record set."""

    __slots__ = ("_aborted", "_aborting", "_decisions", "_last", "_partition", "_topic", "seen")

    def __init__(
        self, seen: Seen, topic: str, partition: int, aborted: Iterable[Aborted], decisions: Decisions | None
    ) -> None:
        self.seen = seen
        self._topic = topic
        self._partition = partition
        self._aborted = deque(sorted(aborted, key=lambda each: each.first_offset))
        #: Producer ids of the aborted transactions that the walk is in the midst of.
        self._aborting: set[int] = set()
        self._decisions = decisions
        #: The header of the last piece, if its offsets can be extended over hidden batches after it.
        self._last: BatchHeader | None = None

    def take(self, entry: memoryview) -> bool:
        """Takes the next whole entry; False if nothing from it on may be seen yet."""
        seen = self.seen
        if entry[MAGIC_OFFSET] != _MAGIC_V2:
            self._show(entry, None, _next(_OFFSET.unpack_from(entry)[0]))
            return True
        header = read_header(entry)
        behind = _next(header.base_offset + header.last_offset_delta)
        if header.record_count and _verdict(header, self._decisions) is Verdict.UNDECIDED:
            seen.changed, seen.undecided = True, _producer_of(header)
            seen.next_offset = max(seen.next_offset, header.base_offset)
            return False
        if self._is_hidden(header, entry):
            seen.changed, seen.leader_epoch = True, header.partition_leader_epoch
            seen.hidden_bytes += len(entry)
            seen.next_offset = max(seen.next_offset, behind)
        else:
            self._show(entry, header, behind)
        return True

    def end(self) -> None:
        """Extends the offsets of the last visible batch over the hidden ones after it."""
        seen, last = self.seen, self._last
        if last is not None and seen.next_offset > last.base_offset + last.last_offset_delta + 1:
            # The epoch of what is hidden, too: else the older epoch would seem to reach up to there (KIP-320).
            epoch = max(last.partition_leader_epoch, seen.leader_epoch)
            seen.pieces[-1:] = extend(memoryview(seen.pieces[-1]), seen.next_offset, epoch)

    def _show(self, entry: memoryview, header: BatchHeader | None, behind: int) -> None:
        self.seen.pieces.append(entry)
        self.seen.next_offset = max(self.seen.next_offset, behind)
        self._last = header

    def _is_hidden(self, header: BatchHeader, entry: memoryview) -> bool:
        natively = self._is_natively_aborted(header, entry)
        if natively or header.is_control or not header.record_count:
            return True
        verdict = _verdict(header, self._decisions)
        if self._decisions is None or verdict is not Verdict.COMMITTED:
            return verdict is Verdict.ABORTED
        return self._decisions.is_other_copy(
            *_producer_of(header), self._topic, self._partition, header.base_sequence, header.base_offset
        )

    def _is_natively_aborted(self, header: BatchHeader, entry: memoryview) -> bool:
        last_offset = header.base_offset + header.last_offset_delta
        while self._aborted and self._aborted[0].first_offset <= last_offset:
            self._aborting.add(self._aborted.popleft().producer_id)
        if header.producer_id not in self._aborting:
            return False
        if header.is_control:
            if _is_abort(entry):
                self._aborting.discard(header.producer_id)
            return True
        return header.is_transactional


def _next(offset: int) -> int:
    """The offset after the last one of an entry or batch. CorruptRecord if there is none, as in no log."""
    if offset >= _MOST_OFFSET:
        raise CorruptRecord(f"a record at offset {offset}")
    return offset + 1


def _verdict(header: BatchHeader, decisions: Decisions | None) -> Verdict | None:
    """None for what is not of a transaction of kproxy's; brokers' markers with its producer ids are not."""
    if decisions is None or header.is_control or not is_transactional_producer_id(header.producer_id):
        return None
    return decisions.verdict(header.producer_id, header.producer_epoch)


def _producer_of(header: BatchHeader) -> Producer:
    return Producer(header.producer_id, header.producer_epoch)


def _is_abort(entry: memoryview) -> bool:
    record = next(iter_records(entry, max_decompressed_bytes=_MOST_MARKER_BYTES, include_control=True), None)
    return record is not None and record.key is not None and record.key[2:4] == _ABORT_KEY[2:4]
