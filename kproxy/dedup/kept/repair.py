"""Settles an error that a broker has about the numbers of a kept producer: what to look at, and what to answer.

A broker says OUT_OF_ORDER_SEQUENCE_NUMBER and the like for many causes, of which one is that the log has lost
acknowledged records (KIP-98). The procedure ``repair`` finds out which it is. The shell drives it: it carries out each
step that the procedure yields, and sends in the result.
"""

from collections.abc import Generator, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from kproxy.codec.messages import ErrorCode
from kproxy.codec.sequence import advance, distance
from kproxy.dedup.kept.ids import successor
from kproxy.dedup.kept.numbers import is_before
from kproxy.dedup.kept.producers import KeptPartition
from kproxy.dedup.kept.steps import (
    FOUND_OLDER,
    OLD_EPOCH,
    REPAIRED,
    SEND_AGAIN,
    Check,
    FenceOff,
    Find,
    FindRecords,
    FoundRecords,
    KeptBatch,
    LeaderView,
    Look,
    Remembered,
    Send,
    Step,
    Told,
)
from kproxy.dedup.producer_ids import LAST_EPOCH

#: Ids are searched for beyond the newest that is known: the broker may have forgotten some.
_MORE_IDS: Final = 8
#: The number of times that a batch is sent before its client has to send it again.
_MOST_SENDS: Final = 3

Repair: TypeAlias = Generator[Step, Any, Told]


class _Newest(NamedTuple):
    """The newest of a producer's ids that the leader remembers, and what it remembers of it."""

    generation: int
    state: Remembered | None
    #: All ids up to that one.
    ids: tuple[int, ...]
    #: Nothing that an earlier process, or another instance, has written is before this offset.
    since: int = 0
    seen: LeaderView = LeaderView({})


class _Way(NamedTuple):
    """A way to send a batch: under the id of a generation, without so many records that are in the log."""

    generation: int
    first: int = 0


def repair(batch: KeptBatch, partition: KeptPartition, first: Told, connection: int) -> Repair:
    """Find out what an error means, and what becomes of the batch.

    ``first``: the broker's response to it, SEND_AGAIN: it was not sent; ``connection``: the serial number of that over
    which it came.
    """
    if partition.has_left(batch.epoch):
        return Told(OLD_EPOCH, cause="old_epoch")
    told = first
    was_told = first.error_code == SEND_AGAIN and is_told(batch, partition)
    place = partition.place(batch.sequence) if was_told else -1
    if place >= 0:
        ids = tuple(successor(batch.producer_id, nth) for nth in range(partition.generation + 1))
        if not (yield Check(place, ids, batch.epoch, batch.sequence, batch.last)):
            return Told(0, place, cause="written")
    for _ in range(_MOST_SENDS):
        newest = yield from _look(batch, partition)
        state = newest.state
        settled = yield from _settle(batch, partition, newest, first, connection)
        if isinstance(settled, Told):
            return settled
        partition.sent_under = max(partition.sent_under, settled.generation)
        sent: Told = yield Send(successor(batch.producer_id, settled.generation), settled.first)
        told = sent if not settled.first else sent._replace(base_offset=-1)
        cause = "sent_alone" if first.error_code == SEND_AGAIN else _cause(batch, state)
        if first.error_code == SEND_AGAIN:
            first = sent
        if not told.error_code:
            partition.generation = settled.generation
            partition.begins(batch.epoch)
        if told.error_code not in REPAIRED:
            return told._replace(cause=cause)
        if state is None and told.error_code == first.error_code:
            break  # a broker before 2.5: it takes no other sequence than 0
    return told._replace(cause="unsettled")


def is_told(batch: KeptBatch, partition: KeptPartition) -> bool:
    """Whether the client has a success for all records of a batch."""
    return partition.was_told(batch.epoch, batch.sequence) and partition.was_told(batch.epoch, batch.last)


def _fence(batch: KeptBatch, partition: KeptPartition) -> Generator[Step, Any, None]:
    """Fence off what may arrive under the id in use, or one that would be used next, and an earlier epoch.

    Another process that the client has left may have begun the next one.
    """
    last = max(partition.generation, partition.sent_under) + (partition.told_by is None)
    for generation in range(partition.generation, last + 1):
        yield FenceOff(successor(batch.producer_id, generation), batch.epoch)
    partition.fences(batch.epoch, last)


def _cause(batch: KeptBatch, state: Remembered | None) -> str:
    if state is None:
        return "forgotten"
    return "epoch_raised" if state.epoch > batch.epoch else "out_of_order"


def _look(batch: KeptBatch, partition: KeptPartition) -> Generator[Step, Any, _Newest]:
    """Find the newest of a producer's ids that the broker remembers: another process may have begun it.

    Where something was written before, as far as is known, the id is fenced off first, to look once. A look before the
    fence shows in one of six simulated cases that all which was in doubt is in the log, so that nothing need be fenced
    off; in the other five it would have to be repeated after the fence.
    """
    if partition.is_unfenced and partition.told_to >= 0 and batch.epoch == partition.epoch:
        yield from _fence(batch, partition)
    ids: tuple[int, ...] = ()
    while True:
        ids = tuple(successor(batch.producer_id, nth) for nth in range(len(ids) + partition.generation + _MORE_IDS))
        seen: LeaderView = yield Look(ids)
        newest = max((nth for nth, producer_id in enumerate(ids) if producer_id in seen.states), default=-1)
        if newest < len(ids) - 1:
            break
    if newest > partition.generation:
        newest = _begun(ids[: newest + 1], seen.states)
    partition.generation = max(partition.generation, newest)
    at = partition.generation
    is_unknown = newest < 0 and partition.told_to < 0
    return _Newest(at, seen.states.get(ids[at]), ids[: at + 1], seen.end if is_unknown else 0, seen)


def _begun(ids: tuple[int, ...], states: Mapping[int, Remembered]) -> int:
    """Return the number of the newest id; where that was only fenced off below an epoch, of one that has batches of it.

    Another instance has begun the epoch under that one.
    """
    newest = states[ids[-1]]
    if newest.last >= 0:
        return len(ids) - 1
    same = [nth for nth, one in enumerate(ids) if one in states and states[one].epoch == newest.epoch]
    return max((nth for nth in same if states[ids[nth]].last >= 0), default=len(ids) - 1)


def _settle(
    batch: KeptBatch, partition: KeptPartition, newest: _Newest, first: Told, connection: int
) -> Generator[Step, Any, Told | _Way]:
    """Judge a batch by what the leader remembers; a way to send it: not before it is known to be of its client's epoch.

    Where the leader has a newer one, the client may have raised it at another instance, which compares, and sends.
    """
    settled = yield from _judge(batch, partition, newest, first, connection)
    is_outdated = newest.state is not None and newest.state.epoch > batch.epoch
    if isinstance(settled, _Way) and is_outdated and not partition.is_current(batch.sequence, connection):
        return Told(SEND_AGAIN, cause="outdated")
    return settled


def _judge(
    batch: KeptBatch, partition: KeptPartition, newest: _Newest, first: Told, connection: int
) -> Generator[Step, Any, Told | _Way]:
    """Judge a batch by what the leader remembers, as if all that it remembers was its client's own."""
    if partition.has_left(batch.epoch):
        return Told(OLD_EPOCH, cause="old_epoch")
    state = newest.state
    last = state.last if state is not None and state.epoch == batch.epoch else -1
    if last >= 0:
        partition.begins(batch.epoch)
    elif partition.older_from >= 0:
        return (yield from _settle_first(batch, partition, newest, connection))
    if state is not None and state.epoch > batch.epoch:
        return (yield from _when_fenced(batch, partition, newest, connection))
    return (yield from _settle_next(batch, partition, newest, first, last, connection))


def _settle_next(
    batch: KeptBatch, partition: KeptPartition, newest: _Newest, first: Told, last: int, connection: int
) -> Generator[Step, Any, Told | _Way]:
    """Judge a batch by the last sequence of its epoch that the leader remembers, -1: none."""
    state = newest.state
    if first.error_code == SEND_AGAIN and last >= 0 and batch.sequence == advance(last, 1):
        return _Way(newest.generation)
    if batch.epoch == partition.epoch and partition.told >= 0 and (last < 0 or is_before(last, partition.told)):
        lost = yield from _lost(partition, last, newest.ids)
        if lost is not None:
            return lost
        last = partition.told  # the broker has forgotten it
    if last >= 0 and not is_before(last, batch.last):
        return (yield from _when_written(batch, partition, newest, first))
    if last >= 0 and not is_before(last, batch.sequence):
        begun = yield from _when_begun(batch, partition, newest, last)
        if begun is not None:
            return begun
    if state is None and partition.is_doubted(batch.epoch, batch.sequence):
        offset = yield from _find(batch, partition, newest)
        if offset is not None:
            return Told(0, offset, cause="written")
    knows_nothing = state is None and last < 0
    if knows_nothing or batch.sequence == (advance(last, 1) if last >= 0 else 0):
        return _Way(newest.generation)
    return (yield from _gap(batch, partition, newest, connection))


def _settle_first(
    batch: KeptBatch, partition: KeptPartition, newest: _Newest, connection: int
) -> Generator[Step, Any, Told | _Way]:
    """Judge a batch under whose epoch nothing is written yet: its client may have sent its records under earlier ones.

    First nothing of these may arrive any more: they are fenced off. A batch of which records seem to be in the log, and
    which may only have equal ones there, waits for those before it as any other: else it would begin an id under which
    these are refused for ever.
    """
    if partition.is_unfenced and (newest.state is None or newest.state.epoch < batch.epoch):
        yield from _fence(batch, partition)
        newest = (yield from _look(batch, partition))._replace(since=newest.since)
    state, seen = newest.state, newest.seen
    floor = max(partition.floor, newest.since)
    is_begun = partition.was_told(batch.epoch, batch.sequence)
    since = floor if is_begun else max(partition.older_from, floor)
    records: FoundRecords = yield FindRecords(newest.ids, batch.last, since, floor, seen)
    found = records.older
    is_whole = found.records == batch.records
    expected = advance(partition.told, 1) if partition.told >= 0 else 0
    begins = not batch.sequence and not found.records and (state is None or state.epoch <= batch.epoch)
    way = _Way(newest.generation + (not begins))
    # what precedes a batch that is in the log may have been found by another process: its client does not repeat that
    follows = is_begun or batch.sequence == expected or (is_whole and not partition.is_preceded(batch.sequence))
    if not follows:
        settled = yield from _gap(batch, partition, newest, connection)
        if isinstance(settled, Told):
            return settled
        way = settled
    if is_whole:
        return Told(0, found.offset, cause=FOUND_OLDER, end=found.end)
    if is_told(batch, partition):
        lost = yield from _lost(partition, -1, newest.ids)
        return lost or Told(0, cause="written")
    return way._replace(first=found.records)


def _when_begun(
    batch: KeptBatch, partition: KeptPartition, newest: _Newest, last: int
) -> Generator[Step, Any, _Way | None]:
    """Leave out the first records of a batch if they are in the log, up to the last sequence there; None: they are not.

    librdkafka regroups records into other batches after it has given some up, and each record keeps its sequence.
    """
    begun = distance(batch.sequence, last) + 1
    found: FoundRecords = yield _records(newest, last, partition.floor)
    is_there = found.own == begun or (batch.epoch > 0 and found.older.records == begun)
    return _Way(newest.generation, begun) if is_there else None


def _records(newest: _Newest, last: int, floor: int) -> FindRecords:
    """Search for a batch's records in all that its client may repeat."""
    return FindRecords(newest.ids, last, floor, floor, newest.seen)


def _search(batch: KeptBatch, partition: KeptPartition, newest: _Newest) -> Find:
    """Search from the end of what the client has a success for: a batch with later numbers is after that."""
    is_later = batch.epoch == partition.epoch and partition.told >= 0 and is_before(partition.told, batch.sequence)
    return Find(newest.ids, max(partition.told_to, 0) if is_later else 0)


def _find(batch: KeptBatch, partition: KeptPartition, newest: _Newest) -> Generator[Step, Any, int | None]:
    """Find the offset of a batch, -1: its records are not next to each other; None: not all of them are in the log."""
    offset: int | None = yield _search(batch, partition, newest)
    if offset is None or offset >= 0:
        return offset
    found = yield from _find_parts(batch, partition, newest, is_written=True)
    return None if found is None else offset


def _find_parts(
    batch: KeptBatch, partition: KeptPartition, newest: _Newest, *, is_written: bool
) -> Generator[Step, Any, Told | None]:
    """Find the records of a batch in other batches, or under earlier epochs; None: not all of them are in the log.

    ``is_written``: its last records are there under its numbers.
    """
    found: FoundRecords = yield _records(newest, batch.last, partition.floor)
    if found.own == batch.records:
        return Told(0, cause="written")
    if not (is_written or batch.epoch) or found.older.records != batch.records:
        return None
    return Told(0, cause="written") if is_written else Told(0, found.older.offset, cause=FOUND_OLDER)


def _when_written(
    batch: KeptBatch, partition: KeptPartition, newest: _Newest, first: Told
) -> Generator[Step, Any, Told | _Way]:
    """Answer a batch that others followed. It may be missing, unless the log shows it, or the client has a success.

    One that was not sent is sent if it is not found and the broker may know it.
    """
    offset: int | None = yield _search(batch, partition, newest)
    if offset is not None and offset >= 0:
        return Told(0, offset, cause="written")
    found = yield from _find_parts(batch, partition, newest, is_written=offset is not None)
    if found is not None:
        return found
    if first.error_code == SEND_AGAIN and newest.state is not None:
        return _Way(newest.generation)
    if is_told(batch, partition):
        return Told(0, cause="written")
    return first._replace(cause="unsettled")


def _when_fenced(
    batch: KeptBatch, partition: KeptPartition, newest: _Newest, connection: int
) -> Generator[Step, Any, Told | _Way]:
    """Continue under another id: another program has raised the epoch, or the client itself at another instance."""
    offset = yield from _find(batch, partition, newest)
    if offset is not None:
        return Told(0, offset, cause="epoch_raised")
    told = partition.told if batch.epoch == partition.epoch else -1
    if told >= 0 and is_before(advance(told, 1), batch.sequence):
        return (yield from _gap(batch, partition, newest, connection, is_fenced=True))
    return _Way(newest.generation + 1)


def _lost(partition: KeptPartition, last: int, ids: tuple[int, ...]) -> Generator[Step, Any, Told | None]:
    """Say so if records are missing for which the client has a success."""
    if partition.told_to < 0:
        return None
    sequence = partition.last_record
    if not (yield Check(partition.told_to - 1, ids, partition.epoch, sequence, sequence)):
        return None
    return Told(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, lost=partition.lost_from(last), cause="lost")


def _gap(
    batch: KeptBatch, partition: KeptPartition, newest: _Newest, connection: int, *, is_fenced: bool = False
) -> Generator[Step, Any, Told | _Way]:
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
    return _Way(newest.generation + 1)
