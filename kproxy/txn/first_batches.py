"""The first batches of a client that continues after a restart of kproxy, whose sequences kproxy does not know.

A batch of a former transaction may come late, and be taken for the first of the next. Its client has given it up, so it
sends what follows over a newer connection: in the transaction in which a partition is first written, all of its
batches have to come over one.
"""

from collections.abc import Collection

from kproxy.codec.topic_partition import TopicPartition
from kproxy.txn.resting_client import Plain


class FirstBatches:
    """Of one client."""

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

    def pack(self) -> Plain | None:
        """What ``unpack`` needs; None while a transaction has written to a partition for the first time."""
        return None if self._connections else list(self._known)

    @classmethod
    def unpack(cls, packed: Plain) -> "FirstBatches":
        """Those of which ``pack`` returned this."""
        known = cls()
        known._known.update(packed)
        return known

    def ended(self) -> None:
        """The transaction has ended: what was written in it has sequences that are known."""
        self._known.update(self._connections)
        self._connections.clear()
