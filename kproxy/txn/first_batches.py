"""The first batches of a client that continues after a restart of kproxy, whose sequences kproxy does not know.

A batch of a former transaction may come late, and be taken for the first of the next. Its client has given it up, so it
sends what follows over a newer connection: in the transaction in which a partition is first written, all of its
batches have to come over one.
"""

from collections.abc import Collection

from kproxy.codec.packed import Plain
from kproxy.codec.topic_partition import TopicPartition


class FirstBatches:
    """The partitions of one client whose sequences are known; for each other one, the connection of its batches."""

    def __init__(self) -> None:
        """No sequence is known."""
        self._known: set[TopicPartition] = set()
        self._connections: dict[TopicPartition, int] = {}

    def knows(self, places: Collection[TopicPartition]) -> bool:
        """Whether the sequences of all these partitions are known."""
        return self._known.issuperset(places)

    def admit(self, places: Collection[TopicPartition], connection: int) -> bool:
        """Whether batches for these partitions can't be late, or their sequences tell."""
        unknown = [place for place in places if place not in self._known]
        return all(self._connections.setdefault(place, connection) == connection for place in unknown)

    def pack(self) -> Plain:
        """State for ``unpack``."""
        return list(self._known), self._connections

    @classmethod
    def unpack(cls, packed: Plain) -> "FirstBatches":
        """The one whose ``pack`` returned this state."""
        made = cls()
        known, made._connections = packed
        made._known.update(known)
        return made

    def ended(self) -> None:
        """The transaction has ended: what was written in it has sequences that are known."""
        self._known.update(self._connections)
        self._connections.clear()
