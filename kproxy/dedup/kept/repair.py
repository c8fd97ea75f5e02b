"""Settles an error that a broker has about the numbers of a kept producer: what to look at, and what to answer.

A broker says OUT_OF_ORDER_SEQUENCE_NUMBER and the like for many causes, of which one is that the log has lost
acknowledged records (KIP-98). The procedure ``repair`` finds out which it is. The shell drives it: it carries out each
step that the procedure yields, and sends in the result.
"""

from collections.abc import Generator, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from kproxy.codec.messages import ErrorCode
from kproxy.codec.sequence import advance
from kproxy.dedup.kept.ids import successor
from kproxy.dedup.kept.producers import KeptPartition, Missing, is_before
from kproxy.dedup.producer_ids import LAST_EPOCH

#: Errors of a broker where a producer's numbers are not the ones that it expects.
REPAIRED: Final = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.UNKNOWN_PRODUCER_ID,
    }
)
#: Ids are searched for beyond the newest that is known: the broker may have forgotten some.
_MORE_IDS: Final = 8
#: The number of times that a batch is sent before its client has to send it again.
_MOST_SENDS: Final = 3
#: A client sends a batch again that was refused so, after those that it sent before: nothing of it is in the log.
SEND_AGAIN: Final = ErrorCode.NOT_ENOUGH_REPLICAS
#: A batch that its client had left out comes after others that followed it; no client sends it again.
LEFT_OUT: Final = ErrorCode.INVALID_RECORD


class KeptBatch(NamedTuple):
    """A batch of a kept producer, as its client has numbered it."""

    producer_id: int
    epoch: int
    sequence: int
    records: int
    #: When it came (``KeptPartition.arrivals``).
    arrival: int = 0

    @property
    def last(self) -> int:
        """The sequence of its last record."""
        return advance(self.sequence, self.records - 1)


class Look(NamedTuple):
    """Ask the partition's leader what it remembers of these producer ids; a mapping from id to ``Remembered``."""

    producer_ids: tuple[int, ...]


class Remembered(NamedTuple):
    """A broker's state of a producer on a partition; -1 as ``last``: nothing written in this epoch."""

    epoch: int
    last: int


class Find(NamedTuple):
    """Search the log for the batch, written under one of these ids at ``since`` or later; its offset, or -1."""

    producer_ids: tuple[int, ...]
    since: int = 0


class Check(NamedTuple):
    """Read the record at an offset; whether it is lost: not deleted by retention, and not one of these producers'."""

    offset: int
    producer_ids: tuple[int, ...]


class FenceOff(NamedTuple):
    """Fence a producer id below an epoch, so that no copy of what was sent under it is written any more."""

    producer_id: int
    epoch: int


class Send(NamedTuple):
    """Send the batch to the partition's leader under this id; a ``Told``."""

    producer_id: int


class Told(NamedTuple):
    """The response about a batch, to the client or to kproxy."""

    error_code: int
    base_offset: int = -1
    log_append_time_ms: int = -1
    #: The acknowledged records that are missing.
    lost: Missing | None = None
    #: The cause, for the counters.
    cause: str = ""


Step: TypeAlias = Look | Find | Check | FenceOff | Send
Repair: TypeAlias = Generator[Step, Any, Told]


class _Newest(NamedTuple):
    """The newest of a producer's ids that the leader remembers, and what it remembers of it."""

    generation: int
    state: Remembered | None
    #: All ids up to that one.
    ids: tuple[int, ...]


def repair(batch: KeptBatch, partition: KeptPartition, first: Told, connection: int) -> Repair:
    """Find out what an error means, and what becomes of the batch.

    ``first``: the broker's response to it, SEND_AGAIN: it was not sent; ``connection``: the serial number of that over
    which it came.
    """
    told = first
    place = partition.place(batch.sequence) if first.error_code == SEND_AGAIN else -1
    if place >= 0 and batch.epoch == partition.epoch:
        ids = tuple(successor(batch.producer_id, nth) for nth in range(partition.generation + 1))
        if not (yield Check(place, ids)):
            return Told(0, place, cause="written")
    for _ in range(_MOST_SENDS):
        newest = yield from _look(batch, partition)
        state = newest.state
        settled = yield from _settle(batch, partition, newest, first, connection)
        if isinstance(settled, Told):
            return settled
        sent: Told = yield Send(successor(batch.producer_id, settled))
        told = sent
        cause = "sent_alone" if first.error_code == SEND_AGAIN else _cause(batch, state)
        if first.error_code == SEND_AGAIN:
            first = sent
        if not told.error_code:
            partition.generation = settled
        if told.error_code not in REPAIRED:
            return told._replace(cause=cause)
        if state is None and told.error_code == first.error_code:
            break  # a broker before 2.5: it takes no other sequence than 0
    return told._replace(cause="unsettled")


def _cause(batch: KeptBatch, state: Remembered | None) -> str:
    if state is None:
        return "forgotten"
    return "epoch_raised" if state.epoch > batch.epoch else "out_of_order"


def _look(batch: KeptBatch, partition: KeptPartition) -> Generator[Step, Any, _Newest]:
    """Find the newest of a producer's ids that the broker remembers: another process may have begun it."""
    ids: tuple[int, ...] = ()
    while True:
        ids = tuple(successor(batch.producer_id, nth) for nth in range(len(ids) + partition.generation + _MORE_IDS))
        seen: Mapping[int, Remembered] = yield Look(ids)
        newest = max((nth for nth, producer_id in enumerate(ids) if producer_id in seen), default=-1)
        if newest < len(ids) - 1:
            break
    partition.generation = max(partition.generation, newest)
    at = partition.generation
    return _Newest(at, seen.get(ids[at]), ids[: at + 1])


def _settle(
    batch: KeptBatch, partition: KeptPartition, newest: _Newest, first: Told, connection: int
) -> Generator[Step, Any, Told | int]:
    """Judge a batch by what the leader remembers; a generation: send it under the id of that."""
    state = newest.state
    if state is not None and state.epoch > batch.epoch:
        return (yield from _when_fenced(batch, partition, newest, connection))
    last = state.last if state is not None and state.epoch == batch.epoch else -1
    if first.error_code == SEND_AGAIN and last >= 0 and batch.sequence == advance(last, 1):
        return newest.generation
    if batch.epoch == partition.epoch and partition.told >= 0 and (last < 0 or is_before(last, partition.told)):
        lost = yield from _lost(partition, last, newest.ids)
        if lost is not None:
            return lost
        last = partition.told  # the broker has forgotten it
    if last >= 0 and not is_before(last, batch.last):
        return (yield from _when_written(batch, partition, newest, first))
    if state is None and partition.is_doubted(batch.epoch, batch.sequence):
        offset = yield _find(batch, partition, newest)
        if offset >= 0:
            return Told(0, offset, cause="written")
    knows_nothing = state is None and last < 0
    if knows_nothing or batch.sequence == (advance(last, 1) if last >= 0 else 0):
        return newest.generation
    return (yield from _gap(batch, partition, newest, connection))


def _find(batch: KeptBatch, partition: KeptPartition, newest: _Newest) -> Find:
    """Search from the end of what the client has a success for: a batch with later numbers is after that."""
    is_later = batch.epoch == partition.epoch and partition.told >= 0 and is_before(partition.told, batch.sequence)
    return Find(newest.ids, max(partition.told_to, 0) if is_later else 0)


def _when_written(
    batch: KeptBatch, partition: KeptPartition, newest: _Newest, first: Told
) -> Generator[Step, Any, Told | int]:
    """Answer a batch that others followed. It may be missing, unless the log shows it, or the client has a success.

    One that was not sent is sent if it is not found and the broker may know it.
    """
    offset = yield _find(batch, partition, newest)
    if offset < 0 and first.error_code == SEND_AGAIN and newest.state is not None:
        return newest.generation
    if offset < 0 and not partition.was_told(batch.epoch, batch.sequence):
        return first._replace(cause="unsettled")
    return Told(0, offset, cause="written")


def _when_fenced(
    batch: KeptBatch, partition: KeptPartition, newest: _Newest, connection: int
) -> Generator[Step, Any, Told | int]:
    """Continue under another id, unless the client itself has a newer epoch."""
    if partition.epoch > batch.epoch:
        return Told(ErrorCode.INVALID_PRODUCER_EPOCH, cause="old_epoch")
    offset = yield _find(batch, partition, newest)
    if offset >= 0:
        return Told(0, offset, cause="epoch_raised")
    told = partition.told if batch.epoch == partition.epoch else -1
    if told >= 0 and is_before(advance(told, 1), batch.sequence):
        return (yield from _gap(batch, partition, newest, connection, is_fenced=True))
    return newest.generation + 1


def _lost(partition: KeptPartition, last: int, ids: tuple[int, ...]) -> Generator[Step, Any, Told | None]:
    """Say so if records are missing for which the client has a success."""
    if partition.told_to < 0 or not (yield Check(partition.told_to - 1, ids)):
        return None
    return Told(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, lost=partition.lost_from(last), cause="lost")


def _gap(
    batch: KeptBatch, partition: KeptPartition, newest: _Newest, connection: int, *, is_fenced: bool = False
) -> Generator[Step, Any, Told | int]:
    """Wait for the batches before, or continue without them if their client has left them out.

    A client repeats in order. Where it repeats a batch after a refusal, and nothing before it, the rest is given up. A
    copy of that may still be in flight to the broker: it is fenced off first.
    """
    insists = batch.sequence == partition.first or partition.insists(batch.sequence, connection)
    if not insists or any(is_before(one, batch.sequence) for one in partition.open):
        is_followed = partition.is_followed(batch.sequence, batch.arrival)
        partition.gap_at, partition.gap_by = -1 if is_followed else batch.sequence, connection
        return Told(SEND_AGAIN, cause="waits_for_others")
    if batch.epoch <= LAST_EPOCH and not is_fenced:
        yield FenceOff(newest.ids[-1], batch.epoch + 1)
    partition.first, partition.gap_at = batch.sequence, -1
    return newest.generation + 1
