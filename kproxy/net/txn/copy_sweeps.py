"""Asks where partitions begin and end, to forget which copy of a batch counts (``kproxy.txn.old_copies``)."""

from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Final, TypeAlias

import trio

from kproxy.codec.topic_partition import TopicPartition
from kproxy.net.broker_log_questions import EARLIEST, LATEST, list_offsets
from kproxy.net.brokers.leaders import LeaderQuestion, Told
from kproxy.txn.old_copies import Bounds, OldCopies
from kproxy.txn.views import Views

Ask: TypeAlias = Callable[
    [Collection[TopicPartition], LeaderQuestion[int]], Awaitable[Mapping[TopicPartition, Told[int]]]
]

#: Longer than a copy can be in flight to a broker.
_SWEEP_SECONDS: Final = 600.0


class CopySweeps:
    """The sweeps of one instance."""

    def __init__(self, views: Views, ask: Ask) -> None:
        """``ask`` asks the leaders of partitions, as ``Leaders.ask``."""
        self._old = OldCopies(views)
        self._ask = ask

    async def run(self) -> None:
        """Sweeps for ever."""
        while True:
            await trio.sleep(_SWEEP_SECONDS)
            await self._sweep()

    async def _sweep(self) -> None:
        bounds: dict[TopicPartition, Bounds] = {}
        if places := self._old.places():
            starts = await self._ask(places, list_offsets(EARLIEST))
            ends = await self._ask(places, list_offsets(LATEST))
            bounds = {place: _bounds(starts[place], ends[place]) for place in places}
        self._old.sweep(bounds)


def _bounds(start: Told[int], end: Told[int]) -> Bounds:
    return Bounds(_offset(start), _offset(end), start.error_code)


def _offset(told: Told[int]) -> int | None:
    return None if told.error_code else told.value
