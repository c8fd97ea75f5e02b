"""What lanes of the past wrote to partitions: first fenced, then read back from the brokers' logs."""

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, Protocol

import trio

from kproxy.codec.error_codes import NO_TOPIC
from kproxy.codec.topic_partition import TopicPartition
from kproxy.config.retry_options import RetryOptions
from kproxy.errors import RemoteProtocolError
from kproxy.net.broker_log import ActiveProducer, Batch, BrokerLog, Failures, LogError, Marker, Survey
from kproxy.proxy.retry_stats import RetryStats

#: Markers times partitions in one request: about 200 KB, and a few seconds of a broker's time at most.
_MARKERS_AT_ONCE: Final = 50_000
_PLACES_AT_ONCE: Final = 256
_GROWTH: Final = 8
#: Half of the time after which brokers forget a producer (producer.id.expiration.ms).
_TIMELY_SECONDS: Final = 43_200


class PastLane(Protocol):
    """The epochs of one producer id that a lane may have used; it will not be used again."""

    @property
    def producer_id(self) -> int:
        """The one in the batches."""

    @property
    def first_epoch(self) -> int:
        """The first epoch that was the lane's."""

    @property
    def last_epoch(self) -> int:
        """The last epoch that was the lane's; the next one is for the fence."""

    @property
    def returned(self) -> bool:
        """Whether the outcome of each of its batches is known: a copy that comes late is not written."""

    @property
    def shared(self) -> bool:
        """Whether it is in use and has to stay so: it is never fenced."""


class Recovery:
    """Fences and reads for all connections together; over the bounds they wait for each other."""

    def __init__(self, broker_log: BrokerLog, config: RetryOptions, stats: RetryStats) -> None:
        """About ``recovery_concurrency`` times ``recovery_max_bytes`` are held at a time, for all callers together."""
        self._broker_log = broker_log
        self._config = config
        self._stats = stats
        self._limiter = trio.CapacityLimiter(config.recovery_concurrency)
        #: Producer ids of lanes whose records were new when they were sent.
        self._timely: set[int] = set()

    async def recover(
        self,
        lanes: Sequence[PastLane],
        places: Sequence[TopicPartition],
        take: Callable[[TopicPartition, list[Batch]], None],
        missing: dict[TopicPartition, int] | None = None,
        settle: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Hands ``take`` for each partition the last batches that the lanes wrote to it, in the order of the log.

        All lanes are fenced on all partitions before anything is read, so that what is not there then will never be. Of
        lanes that are shared a batch in flight is not found.
        Lanes that were returned need no fence where their batches are known. A few requests do for many partitions,
        and what was taken is held no longer. ``take`` must not wait: ``settle`` is awaited after each few. OSError,
        RemoteProtocolError: brokers did not let it be done everywhere; what was not taken is unknown. With
        ``missing``, partitions that do not exist are added to it, with the brokers' error, and cause none.
        """
        if not lanes or not places:
            return
        began, failed = trio.current_time(), Failures()
        try:
            past = _Past(lanes)
            surveyed = await self._broker_log.survey(places, failed)
            unseen = self._unseen(past, surveyed)
            fencing = [place for place in places if place in surveyed]
            fenced = [
                lane for lane in lanes if not (lane.shared or (lane.returned and _is_known(lane, surveyed, unseen)))
            ]
            for markers in self._markers(fenced, len(places)):
                await self._broker_log.fence(fencing, markers, failed)
            await self._read(
                past, [place for place in places if place not in failed], surveyed, unseen, failed, take, settle
            )
        finally:
            self._stats.recovery_seconds += trio.current_time() - began
        if missing is not None:
            _move_missing(failed, missing)
        for error in sorted(failed.values(), key=lambda error: isinstance(error, RemoteProtocolError)):
            raise error  # first what another attempt may help

    def _unseen(self, past: "_Past", surveyed: Mapping[TopicPartition, Survey]) -> dict[TopicPartition, dict[int, int]]:
        """By partition and producer id, the offset below which its lane's batches can't lie: the broker did not know it
        then.

        A broker forgets a producer a day after the timestamp of its last batch. So the broker's response counts for
        nothing for lanes whose records have old timestamps when they are sent, or may have.
        """
        rows = [(row, place) for place, (_, active) in surveyed.items() for row in active.values()]
        wrote = [row for row, _ in rows if past.may_have_written(row)]
        soonest = (self._broker_log.wall() - _TIMELY_SECONDS) * 1000
        if any(row.last_timestamp_ms < soonest for row in wrote):
            return {}
        if wrote:
            self._timely.update(past.first_epochs)
        elif not self._timely.issuperset(past.first_epochs):
            return {}
        unseen: dict[TopicPartition, dict[int, int]] = {}
        for place, (end, active) in surveyed.items():
            unseen[place] = {
                producer_id: end
                for producer_id, epoch in past.first_epochs.items()
                if producer_id not in active or active[producer_id].epoch < epoch
            }
        return unseen

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
        self,
        past: "_Past",
        places: Sequence[TopicPartition],
        surveyed: Mapping[TopicPartition, Survey],
        unseen: Mapping[TopicPartition, Mapping[int, int]],
        failed: Failures,
        take: Callable[[TopicPartition, list[Batch]], None],
        settle: Callable[[], Awaitable[None]] | None,
    ) -> None:
        following, portion = 0, self._config.recovery_concurrency
        while following < len(places):
            part = places[following : following + portion]
            async with self._limiter:
                tails = await self._broker_log.tails(
                    part,
                    past.first_epochs,
                    first_epochs=past.first_epochs,
                    unseen=unseen,
                    surveyed=surveyed,
                    failed=failed,
                    depth=self._broker_log.retries_depth,
                )
                size = sum(len(batch.data) for batches in tails.values() for batch in batches)
                for place, batches in tails.items():
                    take(place, [batch for batch in batches if past.wrote(batch)])
                if settle is not None:
                    await settle()
            self._stats.recoveries += len(tails)
            del tails
            following += len(part)
            # as many as may be expected to fit; a partition can't hold more than was read of it
            fitting = self._config.recovery_max_bytes * len(part) // max(1, size)
            portion = max(1, min(fitting, portion * _GROWTH, _PLACES_AT_ONCE))


def _move_missing(failed: Failures, missing: dict[TopicPartition, int]) -> None:
    for place, error in list(failed.items()):
        if isinstance(error, LogError) and error.error_code in NO_TOPIC:
            missing[place] = error.error_code
            del failed[place]


def _is_known(
    lane: PastLane, surveyed: Mapping[TopicPartition, Survey], unseen: Mapping[TopicPartition, Mapping[int, int]]
) -> bool:
    """Whether it is known of all places what a lane wrote. A marker makes a producer known that a broker forgot."""
    return all(
        lane.producer_id in active or lane.producer_id in unseen.get(place, ())
        for place, (_, active) in surveyed.items()
    )


class _Past:
    """Some lanes, by producer id."""

    def __init__(self, lanes: Iterable[PastLane]) -> None:
        self._lanes: dict[int, list[PastLane]] = {}
        for lane in lanes:
            self._lanes.setdefault(lane.producer_id, []).append(lane)
        self.first_epochs = {
            producer_id: min(lane.first_epoch for lane in lanes) for producer_id, lanes in self._lanes.items()
        }

    def _leased(self, producer_id: int, epoch: int) -> bool:
        return any(lane.first_epoch <= epoch <= lane.last_epoch for lane in self._lanes.get(producer_id, ()))

    def wrote(self, batch: Batch) -> bool:
        """Whether a batch is one of the lanes'."""
        return self._leased(batch.header.producer_id, batch.header.producer_epoch)

    def may_have_written(self, row: ActiveProducer) -> bool:
        """Whether what a leader knows is of the lanes, and not of a marker."""
        return row.last_sequence >= 0 and self._leased(row.producer_id, row.epoch)
