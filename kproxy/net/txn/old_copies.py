"""Forgets which copy of a batch counts once no reader can meet any of them: retention has deleted them all."""

from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import TYPE_CHECKING, Final, TypeAlias

import trio

from kproxy.codec.error_codes import NO_TOPIC
from kproxy.codec.topic_partition import TopicPartition
from kproxy.net.broker_log_questions import EARLIEST, LATEST, list_offsets
from kproxy.net.brokers.leaders import LeaderQuestion, Told
from kproxy.txn.views import Views

if TYPE_CHECKING:
    from kproxy.txn.ids import Producer

Ask: TypeAlias = Callable[
    [Collection[TopicPartition], LeaderQuestion[int]], Awaitable[Mapping[TopicPartition, Told[int]]]
]

#: Longer than a copy can be in flight to a broker.
_SWEEP_SECONDS: Final = 600.0


class OldCopies:
    """Compares where partitions begin with where they ended when all copies of a batch had arrived."""

    def __init__(self, views: Views, ask: Ask) -> None:
        """``ask`` asks the leaders of partitions, as ``Leaders.ask``."""
        self._views = views
        self._ask = ask
        #: By transaction and partition, the offset below which all copies are; None in the first sweep.
        self._marks: dict[tuple[Producer, TopicPartition], int | None] = {}

    async def run(self) -> None:
        """Sweeps for ever."""
        while True:
            await trio.sleep(_SWEEP_SECONDS)
            await self.sweep()

    async def sweep(self) -> None:
        """Forgets what can be forgotten now."""
        copied = self._views.copied()
        if not copied:
            self._marks.clear()
            return
        places = {place for _, place in copied}
        starts = await self._ask(places, list_offsets(EARLIEST))
        ends = await self._ask(places, list_offsets(LATEST))
        marks: dict[tuple[Producer, TopicPartition], int | None] = {}
        for key in copied:
            start, end, mark = _offset(starts[key[1]]), _offset(ends[key[1]]), self._marks.get(key)
            is_gone = starts[key[1]].error_code in NO_TOPIC
            if mark is not None and (is_gone or (start is not None and start >= mark)):
                self._views.forget_copies(*key)
            elif key not in self._marks or end is None:
                marks[key] = mark
            else:
                marks[key] = end if mark is None else min(mark, end)  # it was truncated, or created again
        self._marks = marks


def _offset(told: Told[int]) -> int | None:
    return None if told.error_code else told.value
