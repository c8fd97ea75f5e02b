"""Batches in doubt, as an instance lists them in the lane log: for the next process, and for other instances.

An instance that stops, or whose client goes elsewhere, knows which batches that client may send again. The list says
where each of them was written first, so it also holds batches whose retry was matched and whose response was lost once
more: such a retry leaves nothing in the log. One list is of one producer at one instance, whichever of its producer ids
wrote the batches. It is in the entry that the instance wrote last of that producer; the newest list counts.
"""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple, TypeAlias

from xxhash import xxh3_128_digest

from kproxy.codec._generated.producer_state_value import ProducerStateValueBatch, ProducerStateValuePartition
from kproxy.codec.produce_layout import PartitionRef

#: What the list of one entry may take, in bytes; a topic's name of 249 bytes included, that is 200 batches at least.
MOST_BYTES: Final = 65_536
_BATCH_BYTES: Final = 24
_PARTITION_BYTES: Final = 24
_OFFSET_BYTES: Final = 8


BatchPlace: TypeAlias = tuple[PartitionRef, int, int, int]
"""A partition, and the producer id, epoch and sequence of a batch there."""


class ListedBatch(NamedTuple):
    """A batch in the log that a client may send again."""

    #: The topic as the client names it, and the partition.
    key: PartitionRef
    producer_id: int
    epoch: int
    sequence: int
    #: -1: the broker did not say where it is.
    base_offset: int
    #: Since when it is in doubt, in ms since 1970.
    since_ms: int
    #: Its connection ended in good order after the response.
    clean: bool
    #: Of the records that are in doubt, where that is a part of the batch; empty: all are.
    offsets: tuple[int, ...] = ()

    @property
    def place(self) -> BatchPlace:
        """The name by which it is known in all logs."""
        return self.key, self.producer_id, self.epoch, self.sequence


class InDoubt(NamedTuple):
    """All batches of one producer that were in doubt at an instance at ``at_ms`` (ms since 1970)."""

    at_ms: int
    batches: tuple[ListedBatch, ...] = ()
    #: There was no room for all.
    is_cut: bool = False

    @property
    def mark(self) -> bytes:
        """Two lists have the same one if they have the same batches; empty if there are none."""
        return xxh3_128_digest(repr(self[1:]).encode()) if self.batches or self.is_cut else b""

    def moved_to(self, at_ms: int) -> "InDoubt":
        """The same by another clock: all has been in doubt for as long at ``at_ms``."""
        if at_ms == self.at_ms:
            return self
        by = at_ms - self.at_ms
        batches = tuple(batch._replace(since_ms=batch.since_ms + by) for batch in self.batches)
        return InDoubt(at_ms, batches, self.is_cut)


NOTHING: Final[tuple[ListedBatch, ...]] = ()


def listed(batches: Iterable[ListedBatch], at_ms: int) -> InDoubt:
    """The list, as far as there is room: the newest first, and of these first what the client surely repeats."""
    room = MOST_BYTES
    kept: list[ListedBatch] = []
    groups: set[tuple[PartitionRef, int]] = set()
    for batch in sorted(_each_once(batches), key=lambda batch: (batch.clean, -batch.since_ms, -batch.base_offset)):
        group = batch.key, batch.producer_id
        if group not in groups:
            groups.add(group)
            room -= _PARTITION_BYTES + len(batch.key[0])
        room -= _BATCH_BYTES + _OFFSET_BYTES * len(batch.offsets)
        if room < 0:
            return InDoubt(at_ms, tuple(sorted(kept)), is_cut=True)
        kept.append(batch)
    return InDoubt(at_ms, tuple(sorted(kept)))


def _each_once(batches: Iterable[ListedBatch]) -> Iterable[ListedBatch]:
    """One for each batch in the log: parts of it may be in doubt for different reasons."""
    found: dict[BatchPlace, ListedBatch] = {}
    for batch in batches:
        other = found.setdefault(batch.place, batch)
        if other is not batch:
            is_part = batch.offsets and other.offsets
            found[batch.place] = batch._replace(
                since_ms=max(batch.since_ms, other.since_ms),
                clean=batch.clean and other.clean,
                offsets=tuple(sorted({*batch.offsets, *other.offsets})) if is_part else (),
            )
    return found.values()


def to_rows(batches: Iterable[ListedBatch]) -> list[ProducerStateValuePartition]:
    """The list, as it is stored: by partition and producer id."""
    rows: dict[tuple[PartitionRef, int], ProducerStateValuePartition] = {}
    for batch in batches:
        (topic, index), producer_id = group = batch.key, batch.producer_id
        row = rows.setdefault(group, ProducerStateValuePartition(topic, index, producer_id))
        place = batch.epoch, batch.sequence, batch.base_offset
        row.batches.append(ProducerStateValueBatch(*place, batch.since_ms, batch.clean, list(batch.offsets)))
    return list(rows.values())


def of_rows(rows: Iterable[ProducerStateValuePartition]) -> tuple[ListedBatch, ...]:
    """The list that was stored. Batches of one partition share its name: there may be thousands in memory."""
    return tuple(batch for row in rows for batch in _of_row(row, (bytes(row.topic), row.partition)))


def _of_row(row: ProducerStateValuePartition, key: PartitionRef) -> Iterator[ListedBatch]:
    for batch in row.batches:
        place = row.producer_id, batch.epoch, batch.sequence, batch.base_offset
        yield ListedBatch(key, *place, batch.since_ms, batch.clean, tuple(batch.offsets))
