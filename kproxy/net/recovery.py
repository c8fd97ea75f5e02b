"""What lanes of the past wrote to partitions: first fenced, then read back from the brokers' logs."""

from collections.abc import Callable, Iterator, Sequence
from typing import Final, Protocol

import trio

from kproxy.config import Config
from kproxy.net.broker_log import Batch, BrokerLog, Marker, Place
from kproxy.proxy.stats import Stats

#: Markers times partitions in one request: about 200 KB, and a few seconds of a broker's time at most.
_MARKERS_AT_ONCE: Final = 50_000
_PLACES_AT_ONCE: Final = 256
_GROWTH: Final = 8


class PastLane(Protocol):
    """The epochs of one producer id that a lane may have used; it will not be used again."""

    @property
    def producer_id(self) -> int:
        """As it stands in the batches."""

    @property
    def first_epoch(self) -> int:
        """The first epoch that was the lane's."""

    @property
    def last_epoch(self) -> int:
        """The last epoch that was the lane's; the one behind it is for the fence."""


class Recovery:
    """Fences and reads for all connections together; over the bounds they wait for each other."""

    def __init__(self, broker_log: BrokerLog, config: Config, stats: Stats) -> None:
        """About ``recovery_concurrency`` times ``recovery_max_bytes`` are held at a time, whoever asks."""
        self._broker_log = broker_log
        self._config = config
        self._stats = stats
        self._limiter = trio.CapacityLimiter(config.recovery_concurrency)

    async def recover(
        self, lanes: Sequence[PastLane], places: Sequence[Place], take: Callable[[Place, list[Batch]], None]
    ) -> None:
        """Hands ``take`` for each partition the last batches that the lanes wrote to it, in the order of the log.

        All lanes are fenced on all partitions before anything is read: what is not there then will never be. A few
        requests do for many partitions, and what was taken is held no longer. ``take`` must not wait. OSError,
        RemoteProtocolError: brokers did not let it be done; what was not taken is unknown.
        """
        if not lanes or not places:
            return
        began = trio.current_time()
        try:
            for markers in self._markers(lanes, len(places)):
                await self._broker_log.fence(places, markers)
            await self._read(lanes, places, take)
        finally:
            self._stats.recovery_seconds += trio.current_time() - began

    @staticmethod
    def _markers(lanes: Sequence[PastLane], places: int) -> Iterator[list[Marker]]:
        """The highest fence of each producer id, in portions."""
        highest: dict[int, int] = {}
        for lane in lanes:
            highest[lane.producer_id] = max(highest.get(lane.producer_id, 0), lane.last_epoch + 1)
        markers, portion = list(highest.items()), max(1, _MARKERS_AT_ONCE // places)
        for first in range(0, len(markers), portion):
            yield markers[first : first + portion]

    async def _read(
        self, lanes: Sequence[PastLane], places: Sequence[Place], take: Callable[[Place, list[Batch]], None]
    ) -> None:
        epochs: dict[int, list[PastLane]] = {}
        for lane in lanes:
            epochs.setdefault(lane.producer_id, []).append(lane)
        following, portion = 0, self._config.recovery_concurrency
        while following < len(places):
            part = places[following : following + portion]
            async with self._limiter:
                tails = await self._broker_log.tails(part, epochs.keys())
                size = sum(len(batch.data) for batches in tails.values() for batch in batches)
                for place in part:
                    take(place, [batch for batch in tails[place] if _is_of(batch, epochs)])
                del tails
            self._stats.recoveries += len(part)
            following += len(part)
            # as many as may be expected to fit; a partition can't hold more than was read of it
            fitting = self._config.recovery_max_bytes * len(part) // max(1, size)
            portion = max(1, min(fitting, portion * _GROWTH, _PLACES_AT_ONCE))


def _is_of(batch: Batch, epochs: dict[int, list[PastLane]]) -> bool:
    epoch = batch.header.producer_epoch
    return any(lane.first_epoch <= epoch <= lane.last_epoch for lane in epochs.get(batch.header.producer_id, ()))
