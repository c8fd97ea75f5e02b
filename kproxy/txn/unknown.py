"""Producer ids of transactions that readers have met, and of which the log says nothing.

Nothing is written under a producer id before the log shows its CLAIM or MEMBER. So an id that stays unknown though all
of the log was read is one that a log knew which is lost, and nobody will ever decide it.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple, TypeAlias

_Place: TypeAlias = tuple[str, int]
"""A topic's name and a partition."""

#: Producer ids that are noted, and places of all of them; what is met beyond is noted once others are decided.
_MOST: Final = 1_000
_MOST_PLACES: Final = 10_000


class Met(NamedTuple):
    """An unknown producer id, and where a reader met it first."""

    producer_id: int
    topic: str
    partition: int
    offset: int
    """The offset of the batch: nothing after it can be read."""


class UnknownProducers:
    """Producer ids that readers met and the log does not know yet; their owner forgets an id once the log names it."""

    def __init__(self, most: int = _MOST, most_places: int = _MOST_PLACES) -> None:
        """``most``: producer ids; ``most_places``: their partitions."""
        self._most = most
        self._most_places = most_places
        self._met: dict[int, dict[_Place, int]] = {}
        #: The same by partition.
        self._at: dict[_Place, dict[int, int]] = {}
        self._places = 0

    def __contains__(self, producer_id: int) -> bool:
        return producer_id in self._met

    def __iter__(self) -> Iterator[Met]:
        """Each id once, the one that was met first before the others."""
        for producer_id, places in self._met.items():
            (topic, partition), offset = next(iter(places.items()))
            yield Met(producer_id, topic, partition, offset)

    def note(self, producer_id: int, topic: str, partition: int, offset: int) -> None:
        """A reader has met a batch of an id; of each partition the lowest offset counts."""
        place = (topic, partition)
        known = self._met.get(producer_id, {}).get(place)
        if known is None:
            if self._places >= self._most_places or (producer_id not in self._met and len(self._met) >= self._most):
                return
            self._places += 1
        elif known <= offset:
            return
        self._met.setdefault(producer_id, {})[place] = offset
        self._at.setdefault(place, {})[producer_id] = offset

    def forget(self, producer_id: int) -> None:
        """The log says what became of it."""
        for place in self._met.pop(producer_id, {}):
            self._places -= 1
            del self._at[place][producer_id]
            if not self._at[place]:
                del self._at[place]

    def bound(self, topic: str, partition: int) -> int | None:
        """The lowest offset of a partition at which one of them was met; None if none was."""
        return min(self._at.get((topic, partition), {}).values(), default=None)
