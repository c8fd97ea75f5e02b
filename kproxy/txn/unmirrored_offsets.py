"""Group offsets that one transactional id has committed, until the broker's own group offsets have them.

Where a group can't be written (its coordinator refuses kproxy, say) they stay for as long as that lasts. So of each
partition only the newest offset is kept: within a transactional id a later transaction supersedes an earlier one, and
nobody asks for the earlier offset again. The earlier transaction itself is kept, without its offsets: a kproxy of an
older version keeps them until a MIRRORED record names the transaction, and would write them again otherwise.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final, TypeAlias

from kproxy.codec._generated.transaction_offsets import TransactionOffsets
from kproxy.codec.topic_partition import TopicPartition
from kproxy.txn.ids import Producer

Commit: TypeAlias = tuple[Producer, str]
"""The epoch of a committed transaction, and a group that it has moved."""

#: About what a record and an offset take in memory, without their strings.
_RECORD_BYTES: Final = 512
_ROW_BYTES: Final = 192


def offsets_bytes(record: TransactionOffsets) -> int:
    """An estimate of the memory that offsets take, in bytes."""
    size = _RECORD_BYTES + len(record.group_id) + len(record.member_id) + len(record.group_instance_id or "")
    for topic in record.topics:
        size += len(topic.name) + sum(_ROW_BYTES + len(row.metadata or "") for row in topic.partitions)
    return size


def places_of(record: TransactionOffsets) -> set[TopicPartition]:
    """The partitions that offsets are of."""
    return {(topic.name, row.index) for topic in record.topics for row in topic.partitions}


def superseded(record: TransactionOffsets, places: Collection[TopicPartition]) -> TransactionOffsets:
    """The offsets left when there are newer ones of these partitions; ``record`` itself is not changed."""
    topics = [
        topic.replaced(partitions=[row for row in topic.partitions if (topic.name, row.index) not in places])
        for topic in record.topics
    ]
    return record.replaced(topics=[topic for topic in topics if topic.partitions])


def with_newest(records: Iterable[TransactionOffsets], newest: TransactionOffsets) -> list[TransactionOffsets]:
    """The offsets of one open transaction with those that came last: each partition of a group once."""
    places = places_of(newest)
    kept = [superseded(one, places) if one.group_id == newest.group_id else one for one in records]
    return [*(one for one in kept if one.topics), newest]


class UnmirroredOffsets(Mapping[Commit, list[TransactionOffsets]]):
    """Unmirrored offsets by transaction and group, in the order of the commits."""

    def __init__(self) -> None:
        """None."""
        self._records: dict[Commit, list[TransactionOffsets]] = {}
        #: The commit that has the newest offset of a partition, by group.
        self._newest: defaultdict[str, dict[TopicPartition, Commit]] = defaultdict(dict)
        #: About what all take in memory.
        self.size = 0

    def add(self, producer: Producer, record: TransactionOffsets) -> None:
        """Adds what a transaction has committed, after all that was committed before."""
        commit, places = (producer, record.group_id), places_of(record)
        newest, older = self._newest[record.group_id], defaultdict(set)
        for place in places:
            if place in newest:
                older[newest[place]].add(place)
            newest[place] = commit
        for former, theirs in older.items():
            self._put(former, [superseded(one, theirs) for one in self._records[former]])
        self._put(commit, [*self._records.get(commit, ()), record])

    def _put(self, commit: Commit, records: list[TransactionOffsets]) -> None:
        self.size += sum(map(offsets_bytes, records)) - sum(map(offsets_bytes, self._records.get(commit, ())))
        self._records[commit] = records

    def remove(self, producer: Producer, group_id: str) -> bool:
        """The broker has them; whether there were any."""
        commit = (producer, group_id)
        records = self._records.pop(commit, None)
        if records is None:
            return False
        self.size -= sum(map(offsets_bytes, records))
        newest = self._newest[group_id]
        for place in set().union(*map(places_of, records)):  # what was superseded is in them no more
            del newest[place]
        if not newest:
            del self._newest[group_id]
        return True

    def __getitem__(self, commit: Commit) -> list[TransactionOffsets]:
        return self._records[commit]

    def __iter__(self) -> Iterator[Commit]:
        return iter(self._records)

    def __len__(self) -> int:
        return len(self._records)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._records!r})"
