"""Reads of many partitions' logs at once: each round is one Fetch to each leader, bounded in bytes."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final, TypeAlias

import trio

from kproxy.codec.messages import ErrorCode
from kproxy.codec.topic_partition import TopicPartition
from kproxy.config.retry_options import RetryOptions
from kproxy.errors import RemoteProtocolError
from kproxy.net.broker_log_questions import EARLIEST, fetch, list_offsets, log_ends
from kproxy.net.broker_log_tail import Reader
from kproxy.net.brokers.leaders import Leaders
from kproxy.proxy.retry_stats import RetryStats

Failures: TypeAlias = dict[TopicPartition, OSError | RemoteProtocolError]
"""Partitions that could not be had, and why."""

#: In one response at most, but for a first batch that is larger.
_MOST_BYTES: Final = 16 << 20
#: A partition that has received nothing for so long may have nothing more.
_HUNGRY_SECONDS: Final = 1.0


class ShortLog(OSError):
    """The leader's log ends before a record that was wanted of it.

    It was cut, or the topic was made again; or the broker is no leader any more and does not know it.
    """


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
        #: When its leader was last asked where the log ends, or bytes came.
        self._looked = dict.fromkeys(readers, now)

    def wishes(self) -> dict[TopicPartition, tuple[int, int]]:
        """The next reads; first of what got nothing for longest: the others may have used up the bytes."""
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
                self._fed[place] = self._looked[place] = trio.current_time()
            else:
                self._starve(place, wishes[place][0])
        await self._cut(outside, wishes)
        await self._look_at_ends(wishes)

    def _starve(self, place: TopicPartition, offset: int) -> None:
        """Gives up a partition that has received nothing for too long."""
        if trio.current_time() - self._fed[place] < self._config.upstream_request_timeout_ms / 1000:
            return
        if self._readers[place].may_wait:
            del self._readers[place]
        else:
            self._fail(place, OSError(f"{place[0]}-{place[1]} can be read up to {offset}, no further"))

    async def _look_at_ends(self, wishes: dict[TopicPartition, tuple[int, int]]) -> None:
        """Gives up partitions that have received nothing for a while, and whose leaders have nothing more."""
        now = trio.current_time()
        hungry = [
            place
            for place, reader in self._readers.items()
            if not reader.may_wait and now - self._looked[place] >= _HUNGRY_SECONDS
        ]
        self._looked.update(dict.fromkeys(hungry, now))
        for place, answer in (await self._leaders.ask(hungry, log_ends())).items():
            if not answer.error_code and answer.value is not None and answer.value <= wishes[place][0]:
                self._fail(place, ShortLog(f"{place[0]}-{place[1]} ends at {answer.value}"))

    async def _cut(self, places: Iterable[TopicPartition], wishes: dict[TopicPartition, tuple[int, int]]) -> None:
        """Continues where logs begin: what lay before that was deleted."""
        for place, answer in (await self._leaders.ask(places, list_offsets(EARLIEST))).items():
            offset = wishes[place][0]
            try:
                start = answer.get(place, "ListOffsets")
                if start <= offset:
                    raise ShortLog(f"{place[0]}-{place[1]} ends before {offset}")
            except (OSError, RemoteProtocolError) as error:
                self._fail(place, error)
            else:
                self._readers[place].cut(start)

    def _fail(self, place: TopicPartition, error: OSError | RemoteProtocolError) -> None:
        self.failed[place] = error
        del self._readers[place]
