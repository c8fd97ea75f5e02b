"""The calls that wait for a turn at a transactional id, and the partitions that they are about to write to."""

from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager

from kproxy.codec.topic_partition import TopicPartition


class WaitQueue:
    """The call that has the turn adds the partitions of all to the transaction; then all send their data."""

    def __init__(self) -> None:
        """Nobody."""
        self._length = 0
        self._places: Counter[TopicPartition] = Counter()

    def __len__(self) -> int:
        """The number of calls that wait or have the turn."""
        return self._length

    @property
    def places(self) -> Collection[TopicPartition]:
        """The partitions that the calls write to, each once."""
        return self._places.keys()

    @contextmanager
    def waiting(self, places: Collection[TopicPartition]) -> Iterator[None]:
        """Counts the block as a call that waits and writes to these partitions."""
        self._length += 1
        self._places.update(places)
        try:
            yield
        finally:
            self._length -= 1
            self._places.subtract(places)
            for place in [place for place in places if not self._places[place]]:
                del self._places[place]
