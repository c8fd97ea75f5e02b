"""Which entries of the lane log count still, and where in the log they begin."""

from collections.abc import Callable, Mapping, Sequence

import trio

from kproxy.codec.topic_partition import TopicPartition
from kproxy.dedup.lane_retention import Retention
from kproxy.net.broker_log_questions import list_offsets, newest_timestamps
from kproxy.net.brokers.leaders import Leaders
from kproxy.net.own_topic import check


class LaneAges:
    """The retention of the log, applied at this time."""

    def __init__(self, retention: Retention, leaders: Leaders, wall: Callable[[], float]) -> None:
        """``wall``: the time of this machine, in seconds since the epoch."""
        self.retention = retention
        self._leaders = leaders
        self._wall = wall

    def saw(self, time_ms: int) -> None:
        """Records when the broker appended an entry just now; -1: it did not say, which tells nothing."""
        self.retention.saw(time_ms, trio.current_time())

    @property
    def since_ms(self) -> int:
        """Entries that were appended before do not count; -1: all do."""
        return self.retention.oldest_ms(trio.current_time(), self._wall() * 1000)

    def age_s(self, appended_ms: int) -> float:
        """How long ago an entry was appended: that, or longer."""
        now_ms = max(self.retention.brokers_ms(trio.current_time()), self._wall() * 1000)
        return max(0.0, now_ms - appended_ms) / 1000

    async def starts(self, ends: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """The offsets from which partitions have to be read; those that are missing, from their beginning.

        ``ends``: their ends, a moment ago. What expired long ago is not even read, deleted or not. As of
        ``TopicReader.read``.
        """
        if not self.retention.expires:
            return {}
        newest = await self._leaders.ask(ends, newest_timestamps())
        for told in newest.values():
            self.saw(told.value if told.value is not None and not told.error_code else -1)
        if self.since_ms < 0:
            return {}
        offsets = await self.offsets(list(ends), self.since_ms)
        return {place: ends[place] if offset < 0 else offset for place, offset in offsets.items()}

    async def offsets(self, places: Sequence[TopicPartition], timestamp: int) -> dict[TopicPartition, int]:
        """One of each partition, as ``list_offsets`` has them. Errors as of ``TopicReader.read``."""
        told = await self._leaders.ask(places, list_offsets(timestamp))
        for place in places:
            told[place].reached(place)
            check("ListOffsets", place[0], told[place].error_code)
        return {place: told[place].get(place, "ListOffsets") for place in places}
