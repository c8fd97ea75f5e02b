"""The data in partitions of a transaction that another instance has begun, and what follows from them.

The log has the partitions, each announced before its first data, and the client's sequence of the first record in each.
All else is in the partitions. They are fenced before they are read: what the former instance acknowledged is in what is
read, and whatever it has in flight is refused.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from kproxy.codec.batch import BatchHeader, read_header
from kproxy.codec.records import MAGIC_OFFSET
from kproxy.codec.sequence import advance
from kproxy.codec.topic_partition import TopicPartition
from kproxy.errors import KproxyError
from kproxy.txn.ids import Producer
from kproxy.txn.view import IdView
from kproxy.txn.visibility import entries
from kproxy.txn.writes import PartitionWrites

#: Bytes that are read at a time.
_READ_BYTES: Final = 1 << 20
_MAGIC_V2: Final = 2


class Uncertain(KproxyError):
    """The data that were written are not certain: the transaction can only be aborted."""


class SentBatch(NamedTuple):
    """A batch of the client's that is in a partition: by the client's sequence."""

    sequence: int
    records: int
    base_offset: int


class Former(NamedTuple):
    """The data of an open transaction."""

    written: Mapping[Producer, Mapping[TopicPartition, PartitionWrites]]
    """The batches of each former epoch that has data, in order."""
    following: Mapping[TopicPartition, int]
    """The client's next sequence in each partition that the log names."""
    sent: Mapping[TopicPartition, Sequence[SentBatch]]
    """The client's batches that are in each partition, in order."""


@dataclass(slots=True)
class Scan:
    """Reads [position, end) of a partition for the batches of some epochs."""

    position: int
    end: int
    parts: Collection[Producer]
    #: By producer id the epoch of the marker that has to be met.
    fences: Mapping[int, int]
    found: dict[Producer, list[BatchHeader]] = field(default_factory=dict)
    met: set[int] = field(default_factory=set)
    is_cut: bool = False
    may_wait: bool = False

    @property
    def wish(self) -> tuple[int, int] | None:
        """The offset to read from next, and how many bytes; None: no more."""
        return (self.position, _READ_BYTES) if self.position < self.end else None

    def take(self, data: bytes | memoryview) -> int:
        """Takes a record set that was read from the offset of the wish; the bytes of whole batches in it."""
        size = 0
        for entry in entries(data):
            size += len(entry)
            following = int.from_bytes(entry[:8], "big") + 1
            if entry[MAGIC_OFFSET] == _MAGIC_V2:
                header = read_header(entry)
                following += header.last_offset_delta
                if following > self.position:
                    self.note(header)
            self.position = max(self.position, following)
        return size

    def note(self, header: BatchHeader) -> None:
        """Takes a batch of the partition, or a marker."""
        producer = Producer(header.producer_id, header.producer_epoch)
        if header.is_control:
            if self.fences.get(producer.producer_id) == producer.epoch:
                self.met.add(producer.producer_id)
        elif producer in self.parts:
            self.found.setdefault(producer, []).append(header)

    def cut(self, start: int) -> None:
        """Records that the log begins at ``start``: what lay before may have been the transaction's."""
        self.position, self.is_cut = start, True


def summary(view: IdView, parts: Sequence[Producer], scans: Mapping[TopicPartition, Scan]) -> Former:
    """The data that these epochs of an id wrote, in their order, from what their partitions hold. Uncertain."""
    written: dict[Producer, dict[TopicPartition, PartitionWrites]] = {}
    following: dict[TopicPartition, int] = {}
    sent: dict[TopicPartition, list[SentBatch]] = {}
    for place, scan in scans.items():
        if scan.is_cut or scan.met != set(scan.fences):
            raise Uncertain(f"{place[0]}-{place[1]} lacks records that were there when the transaction began")
        for part in parts:
            first = view.first_sequences.get(part, {}).get(place)
            headers = scan.found.get(part, [])
            if first is None:
                if place in view.bounds.get(part, ()) or headers:
                    raise Uncertain(f"the log does not say where the client began on {place[0]}-{place[1]}")
                continue
            if not headers:
                if place not in sent:
                    following[place] = first
                continue
            if sent.get(place) and following[place] != first:
                raise Uncertain(f"the client left out sequences on {place[0]}-{place[1]}")
            batches = _counted(place, first, headers)
            sent.setdefault(place, []).extend(batches)
            following[place] = advance(batches[-1].sequence, batches[-1].records)
            end = headers[-1].base_offset + headers[-1].last_offset_delta + 1
            written.setdefault(part, {})[place] = PartitionWrites(end, ())
    ordered = {part: written[part] for part in parts if part in written}
    return Former(ordered, following, sent)


def _counted(place: TopicPartition, first: int, headers: Sequence[BatchHeader]) -> list[SentBatch]:
    """The batches by the client's sequences. Uncertain unless each of kproxy's sequences is there once, in order."""
    batches: list[SentBatch] = []
    expected = 0
    for header in headers:
        count = header.last_offset_delta + 1
        if header.base_sequence != expected or header.record_count != count:
            raise Uncertain(f"{place[0]}-{place[1]} has copies of batches, or gaps")
        batches.append(SentBatch(advance(first, expected), count, header.base_offset))
        expected = advance(expected, count)
    return batches
