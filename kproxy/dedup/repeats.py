"""Records that one client sends over several connections: whether some of them came before, over another one.

The end of a connection shows that the client's own kernel, or a load balancer's, has received every response. A client
that has received none sends its records again over another connection, unchanged: with the same bytes and, where its
format has them, the same timestamps.
"""

from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from kproxy.codec.records import DecompressionLimit
from kproxy.codec.topic_partition import TopicPartition
from kproxy.dedup.batch_records import read_batch
from kproxy.dedup.digest import UNTIMED, Digests

#: Of what came last so many bytes are kept as they are, by client; a batch of more is hashed at once.
MOST_BYTES: Final = 1 << 20
#: Hashes of so many records are kept.
_MOST_RECORDS: Final = 50_000


class ReceivedBatch(NamedTuple):
    """A batch of format v2 for a partition; ``arrival_ms`` is the time of records that had none of their own."""

    topic: str
    partition: int
    batch: memoryview | bytes
    arrival_ms: int


@dataclass(slots=True, eq=False)
class _Kept:
    connection: int
    place: TopicPartition
    arrival_ms: int
    records: int
    data: bytes | None
    #: The times of each content, once they were asked for.
    times: dict[bytes, set[int]] | None = None


class Repeats:
    """The records of one client, for as long as they belong together."""

    def __init__(self, max_decompressed_bytes: int, *, at_any_time: bool = False) -> None:
        """A batch that is larger than ``max_decompressed_bytes`` when it is unpacked is not compared.

        ``at_any_time``: the client gives a record a new timestamp when it sends it again.
        """
        self._limit = max_decompressed_bytes
        self._at_any_time = at_any_time
        self._kept: deque[_Kept] = deque()
        self._by_place: dict[TopicPartition, deque[_Kept]] = {}
        #: How many are kept of each connection, by partition.
        self._connections: dict[TopicPartition, Counter[int]] = {}
        self._bytes = 0
        self._hashed = 0

    def came(self, connection: int, batches: Iterable[ReceivedBatch]) -> bool:
        """Keeps batches; whether a record of them came before, over another connection."""
        found = False
        for batch in batches:
            place = (batch.topic, batch.partition)
            kept = _Kept(connection, place, batch.arrival_ms, 0, None)
            others = self._others(connection, place)
            if others or len(batch.batch) > MOST_BYTES:
                self._hash(kept, batch.batch)
            else:
                kept.data = bytes(batch.batch)
            found = found or any(self._share(kept, other) for other in others)
            self._keep(kept)
        return found

    def _others(self, connection: int, place: TopicPartition) -> list[_Kept]:
        connections = self._connections.get(place)
        if connections is None or len(connections) == (connection in connections):
            return []
        return [kept for kept in self._by_place[place] if kept.connection != connection]

    def _keep(self, kept: _Kept) -> None:
        self._kept.append(kept)
        self._by_place.setdefault(kept.place, deque()).append(kept)
        self._connections.setdefault(kept.place, Counter())[kept.connection] += 1
        self._bytes += len(kept.data or b"")
        while self._bytes > MOST_BYTES or self._hashed > _MOST_RECORDS:
            self._forget_oldest()

    def _forget_oldest(self) -> None:
        old = self._kept.popleft()
        self._by_place[old.place].popleft()
        connections = self._connections[old.place]
        connections[old.connection] -= 1
        if not connections[old.connection]:
            del connections[old.connection]
        self._bytes -= len(old.data or b"")
        self._hashed -= old.records

    def _share(self, new: _Kept, old: _Kept) -> bool:
        if old.times is None:
            data, old.data = old.data or b"", None
            self._bytes -= len(data)
            self._hash(old, data)
        assert new.times is not None
        assert old.times is not None
        return any(
            self._at_any_time
            or UNTIMED in times
            or UNTIMED in old.times[content]
            or not times.isdisjoint(old.times[content])
            for content, times in new.times.items()
            if content in old.times
        )

    def _hash(self, kept: _Kept, batch: memoryview | bytes) -> None:
        try:
            found = read_batch(batch, arrival_ms=kept.arrival_ms, max_decompressed_bytes=self._limit).digests
        except DecompressionLimit:
            found = Digests()
        kept.times = {}
        for digest in found:
            kept.times.setdefault(digest.content, set()).add(digest.timestamp_ms)
        kept.records = len(found)
        self._hashed += kept.records
