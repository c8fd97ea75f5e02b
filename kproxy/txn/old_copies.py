"""Forgets which copy of a batch counts once no reader can meet any of them: retention has deleted them all."""

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, NamedTuple

from kproxy.codec.error_codes import NO_TOPIC
from kproxy.codec.topic_partition import TopicPartition
from kproxy.txn.views import Views

if TYPE_CHECKING:
    from kproxy.txn.ids import Producer


class Bounds(NamedTuple):
    """The offsets at which a log begins and ends, None: unknown; and the error of the question for its beginning."""

    start: int | None
    end: int | None
    error_code: int = 0


class OldCopies:
    """Compares where partitions begin with where they ended when all copies of a batch had arrived."""

    def __init__(self, views: Views) -> None:
        """``views``: the transactions, of which some have sent a batch more than once."""
        self._views = views
        #: By transaction and partition, the offset below which all copies are; None in the first sweep.
        self._marks: dict[tuple[Producer, TopicPartition], int | None] = {}

    def places(self) -> Collection[TopicPartition]:
        """The partitions whose bounds are to be asked for in this sweep."""
        return {place for _, place in self._views.copied()}

    def sweep(self, bounds: Mapping[TopicPartition, Bounds]) -> None:
        """Forgets what can be forgotten; sweeps are further apart than a copy can be in flight to a broker."""
        marks: dict[tuple[Producer, TopicPartition], int | None] = {}
        for key in self._views.copied():
            if key[1] not in bounds:
                marks[key] = self._marks.get(key)  # it came while the brokers were asked
                continue
            start, end, error = bounds[key[1]]
            mark = self._marks.get(key)
            if mark is not None and (error in NO_TOPIC or (start is not None and start >= mark)):
                self._views.forget_copies(*key)
            elif key not in self._marks or end is None:
                marks[key] = mark
            else:
                marks[key] = end if mark is None else min(mark, end)  # it was truncated, or created again
        self._marks = marks
