"""What was promised and what was seen: each number once in each topic, and topics that agree at every moment."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, NamedTuple


class TopicPartition(NamedTuple):
    """A partition of an output."""

    topic: str
    partition: int


class Seen(NamedTuple):
    """At some moment a reader had this many records of a partition before it, and was at the end."""

    place: TopicPartition
    records: int


@dataclass(frozen=True, slots=True)
class Exactness:
    """How often the numbers are in a topic."""

    records: int
    missing: int
    #: Records too many.
    duplicates: int

    @property
    def holds(self) -> bool:
        """Whether each is there once."""
        return not self.missing and not self.duplicates


@dataclass(slots=True)
class Outcome:
    """What came of one run of the job."""

    sink: str
    records: int
    topics: dict[str, Exactness] = field(default_factory=dict)
    #: Moments at which the topics did not agree, in words; None: nobody looked.
    torn: list[str] | None = None
    #: Looks of the reader beside it.
    looks: int = 0
    #: What lies in the topics beside what readers are shown: records of aborted attempts, and the brokers' markers.
    hidden: int = 0
    batches: int = 0
    drivers: int = 0
    kills: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    bugs: list[str] = field(default_factory=list)

    @property
    def holds(self) -> bool:
        """Whether each number is once in each topic, they always agreed, and nothing went wrong inside kproxy."""
        return all(found.holds for found in self.topics.values()) and not self.torn and not self.bugs

    @property
    def duplicates(self) -> int:
        """Records too many, in all topics."""
        return sum(found.duplicates for found in self.topics.values())

    @property
    def shown(self) -> int:
        """Records that readers are shown, in all topics."""
        return sum(found.records for found in self.topics.values())

    def as_json(self) -> dict[str, Any]:
        """For a file."""
        topics = {topic: asdict(found) for topic, found in self.topics.items()}
        plain = {each.name: getattr(self, each.name) for each in fields(self)}
        more = {"topics": topics, "kills": dict(self.kills), "holds": self.holds, "duplicates": self.duplicates}
        return plain | more


def exactness(numbers: Iterable[int], wanted: int) -> Exactness:
    """How often the numbers from 0 on are there, of which ``wanted`` should be; others count as duplicates."""
    found = bytearray(wanted)
    records = 0
    for number in numbers:
        records += 1
        if 0 <= number < wanted:
            found[number] = 1
    distinct = sum(found)
    return Exactness(records, wanted - distinct, records - distinct)


def batch_of(number: int, ends: Mapping[int, Sequence[int]], partitions: int) -> int:
    """The number of the micro-batch that read a number, by where batches end in each partition of the input.

    The number n lies in partition n modulo ``partitions``, at offset n div ``partitions``.
    """
    return bisect_right(ends[number % partitions], number // partitions)


def torn_moments(
    seen: Sequence[Seen],
    numbers: Mapping[TopicPartition, Sequence[int]],
    ends: Mapping[int, Sequence[int]],
    partitions: int,
) -> list[str]:
    """The looks that saw a part of a batch, or less than a look before them had seen elsewhere.

    ``seen`` in order of time; ``numbers``: the whole content of each output partition, in order; ``ends``: for each
    partition of the input, where each batch ended.
    """
    batches = {place: [batch_of(number, ends, partitions) for number in row] for place, row in numbers.items()}
    torn = [
        f"{place.topic}-{place.partition} has batches out of order"
        for place, row in batches.items()
        if row != sorted(row)
    ]
    latest = -1
    for look in seen:
        row, count = batches[look.place], look.records
        name = f"{look.place.topic}-{look.place.partition}"
        if 0 < count < len(row) and row[count - 1] == row[count]:
            torn.append(f"{name} showed a part of batch {row[count]}")
        needed = bisect_right(row, latest)
        if count < needed:
            torn.append(f"{name} showed {count} records when others showed batch {latest}, of which it has {needed}")
        if count:
            latest = max(latest, row[count - 1])
    return torn
