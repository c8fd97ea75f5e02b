"""Reads of many partitions' logs at once: each round is one Fetch to each leader, bounded in bytes."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final, TypeAlias

import trio

from kproxy.codec.messages import ErrorCode
from kproxy.codec.topic_partition import TopicPartition
from kproxy.config.retry_options import RetryOptions
from kproxy.errors import RemoteProtocolError
from kproxy.net.broker_log_questions import EARLIEST, fetch, list_offsets
from kproxy.net.broker_log_tail import Reader
from kproxy.net.brokers.leaders import Leaders
from kproxy.proxy.retry_stats import RetryStats

Failures: TypeAlias = dict[TopicPartition, OSError | RemoteProtocolError]
"""What could not be had, and why."""

#: In one response at most, but for a first batch that is larger.
_MOST_BYTES: Final = 16 << 20


async def read_logs(
    leaders: Leaders,
    config: RetryOptions,
    stats: RetryStats,
    readers: Mapping[TopicPartition, Reader],
    settle: Callable[[], Awaitable[None]] | None = None,
) -> Failures:
    """Reads for each partition what its reader asks for; returns the partitions where that failed.

    Waits for records that can't be read yet, at most ``upstream_request_timeout_ms`` after the last bytes of a
    partition. ``settle`` is awaited after each round, for what readers keep of it.
    """
    reads = _Reads(leaders, config, stats, readers)
    while wishes := reads.wishes():
        await reads.round(wishes)
        if settle is not None:
            await settle()
    return reads.failed


class _Reads:
    def __init__(
        self, leaders: Leaders, config: RetryOptions, stats: RetryStats, readers: Mapping[TopicPartition, Reader]
    ) -> None:
        self.failed: Failures = {}
        self._leaders = leaders
        self._config = config
        self._stats = stats
        now = trio.current_time()
        self._readers = dict(readers)
        #: When bytes last came.
        self._fed = dict.fromkeys(readers, now)

    def wishes(self) -> dict[TopicPartition, tuple[int, int]]:
        """What to read next; first what got nothing for longest: the others may have used up the bytes."""
        found = {}
        for place in sorted(self._readers, key=self._fed.__getitem__):
            wish = self._readers[place].wish
            if wish is None:
                del self._readers[place]
            else:
                found[place] = wish
        return found

    async def round(self, wishes: dict[TopicPartition, tuple[int, int]]) -> None:
        """One response of each leader."""
        most = min(_MOST_BYTES, self._config.recovery_max_bytes)
        told = await self._leaders.ask(wishes, fetch(wishes, most))
        outside: list[TopicPartition] = []
        for place, answer in told.items():
            if answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                outside.append(place)
                continue
            try:
                data = answer.get(place, "Fetch").records or b""
                size = self._readers[place].take(data)
            except (OSError, RemoteProtocolError) as error:
                self._fail(place, error)
                continue
            self._stats.readback_bytes += size
            if size:
                self._fed[place] = trio.current_time()
            else:
                self._starve(place, wishes[place][0])
        await self._cut(outside, wishes)

    def _starve(self, place: TopicPartition, offset: int) -> None:
        """Gives up a partition that has received nothing for too long."""
        if trio.current_time() - self._fed[place] < self._config.upstream_request_timeout_ms / 1000:
            return
        if self._readers[place].may_wait:
            del self._readers[place]
        else:
            self._fail(place, OSError(f"{place[0]}-{place[1]} can be read up to {offset}, no further"))

    async def _cut(self, places: Iterable[TopicPartition], wishes: dict[TopicPartition, tuple[int, int]]) -> None:
        """Continues where logs begin: what lay before that was deleted."""
        for place, answer in (await self._leaders.ask(places, list_offsets(EARLIEST))).items():
            offset = wishes[place][0]
            try:
                start = answer.get(place, "ListOffsets")
                if start <= offset:  # the log was cut, the topic recreated, or a replica lags
                    raise OSError(f"{place[0]}-{place[1]} can be read up to less than {offset}")
            except (OSError, RemoteProtocolError) as error:
                self._fail(place, error)
            else:
                self._readers[place].cut(start)

    def _fail(self, place: TopicPartition, error: OSError | RemoteProtocolError) -> None:
        self.failed[place] = error
        del self._readers[place]
