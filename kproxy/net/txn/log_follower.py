"""Follows the transaction log: every record of every partition, in order, from the log's start on and for ever."""

from collections import Counter
from collections.abc import Iterable
from typing import Final

import structlog
import trio

from kproxy.config.transaction_options import TransactionOptions
from kproxy.errors import RemoteProtocolError
from kproxy.net.broker_log_questions import LATEST, list_offsets
from kproxy.net.brokers.backoff import Backoff
from kproxy.net.brokers.cluster import Cluster
from kproxy.net.brokers.leaders import Leaders
from kproxy.net.own_topic import OwnTopic, Refused
from kproxy.net.txn.log_partition import NOTHING, LogPartition, LogSink
from kproxy.net.txn.log_polls import LogPolls

__all__ = ["NOTHING", "LogFollower", "LogSink"]

_NEVER: Final = 1 << 63
#: Records that do not come within this time are asked for again: the log may have lost them.
_ASK_AGAIN_SECONDS: Final = 5.0


class LogLost(OSError):
    """The log does not have any more what it acknowledged."""


log = structlog.get_logger("kproxy.transaction_log")

#: From v5 on a new leader that does not know the high watermark yet says so (KIP-207).
_END: Final = list_offsets(LATEST, oldest=5)


class LogFollower:
    """One long poll at a time to each leader, over a connection of its own; the records go to a sink.

    No record is skipped, whatever happens. A log that is not the one that was read is read again from its start. What
    can't be read is requested again until it can.
    """

    def __init__(self, cluster: Cluster, config: TransactionOptions, topic: OwnTopic, sink: LogSink) -> None:
        """``topic`` is found or made by ``run``."""
        self._config = config
        self._topic = topic
        self._sink = sink
        self._leaders = Leaders(cluster, config)
        self._parts: list[LogPartition] = []
        #: The number of times that the log was found to have lost something, by cause: recreated, truncated, beginning.
        self.losses: Counter[str] = Counter()
        self._polls = LogPolls(cluster, config, topic, self._announce, self.lost)
        self._loaded = trio.Event()
        #: Rises with each event that the sink receives.
        self.version = 0
        self._changed = trio.Event()

    # -- what others ask

    @property
    def partitions(self) -> int:
        """The number of partitions of the topic; 0 until ``run`` has started."""
        return len(self._parts)

    @property
    def lag(self) -> int:
        """The number of offsets of all partitions that are not applied yet, by the newest ends from their leaders."""
        return sum(part.lag for part in self._parts)

    @property
    def current_at(self) -> float:
        """The time at which all partitions were last known to be read to their ends, by trio's clock; 0 before."""
        return min((part.current_at for part in self._parts), default=0.0)

    @property
    def restarts(self) -> int:
        """The number of times that partitions were read from their beginning."""
        return sum(part.restarts for part in self._parts)

    def readings(self, partition: int) -> int:
        """The number of times that a partition was read from its beginning."""
        return self._parts[partition].restarts

    def is_read(self, partition: int) -> bool:
        """Whether all is applied that a partition had when its leader was asked last."""
        return self._parts[partition].has(self._parts[partition].end)

    def log_start(self, partition: int) -> int:
        """The log start of a partition when its leader was asked last."""
        return self._parts[partition].log_start

    def lost(self, partition: int, reason: str) -> None:
        """Reports that the log has lost records of a partition."""
        self.losses[reason] += 1
        log.error(
            "the transaction log has lost records: what it says now counts, and what was open there is aborted",
            topic=self._topic.name,
            partition=partition,
            reason=reason,
            position=self._parts[partition].position,
            log_start=self._parts[partition].log_start,
        )
        self._announce()

    def position(self, partition: int) -> int:
        """The offset before which all has been applied; -1 (``NOTHING``) while the partition's start is not known."""
        return self._parts[partition].position

    async def reached(self, partition: int, offset: int) -> None:
        """Waits until all that lies before ``offset`` has been applied.

        LogLost if the log has lost it; OSError, RemoteProtocolError if that can't be known.
        """
        part = self._parts[partition]
        while not part.has(offset):
            with trio.move_on_after(_ASK_AGAIN_SECONDS):
                await part.wait(offset)
            if not part.has(offset) and await self.read_to_end(partition) < offset:
                raise LogLost(f"{self._topic.name}-{partition} has lost offset {offset - 1}")

    async def read_to_end(self, partition: int) -> int:
        """Waits until all has been applied that the log has when its leader is asked now; that end.

        OSError if no leader answers within ``delivery_timeout_ms``; RemoteProtocolError if it will not tell.
        """
        return (await self.read_to_ends([partition]))[partition]

    async def read_to_ends(self, partitions: Iterable[int]) -> dict[int, int]:
        """Reads many partitions to their ends (``read_to_end``); each leader is asked once.

        A partition that is read again meanwhile is waited for: when this returns, all of it has been applied.
        """
        ends: dict[int, int] = {}
        wanted = left = [self._parts[index] for index in partitions]
        while left:
            known = [(part.restarts, part.position) for part in left]
            places = [(self._topic.name, part.index) for part in left]
            asked_at = trio.current_time()
            told = await self._leaders.ask(places, _END)
            for part, place, (restarts, position) in zip(left, places, known, strict=True):
                end = told[place].get(place, "ListOffsets")
                if end < position and part.restarts == restarts:
                    self._polls.reread(part)  # it was truncated, and the poll has not found out yet
                with trio.move_on_after(_ASK_AGAIN_SECONDS) as scope:
                    while not part.has(end) and part.restarts == restarts:
                        await part.wait(end)
                if part.has(end):
                    ends[part.index] = end
                    part.current_at = max(part.current_at, asked_at)
                elif scope.cancelled_caught:
                    self._polls.hurry(part)  # the broker that is polled has stopped, or does not know the end
            left = [part for part in wanted if not part.has(ends.get(part.index, _NEVER))]
        return ends

    async def loaded(self) -> None:
        """Waits until all partitions have been read to their ends once."""
        await self._loaded.wait()

    async def changed(self, seen: int) -> None:
        """Waits until ``version`` is higher than ``seen``."""
        while self.version <= seen:
            await self._changed.wait()

    # -- the task

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Finds or makes the topic (``started``), and follows it for ever."""
        try:
            count = await self._prepare()
            self._parts = [LogPartition(index, self._sink) for index in range(count)]
            task_status.started()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._load)
                await self._polls.run(self._parts)
        finally:
            self._leaders.close()

    async def _prepare(self) -> int:
        backoff = Backoff(self._config)
        while True:
            try:
                return await self._topic.prepare()
            except (OSError, RemoteProtocolError, Refused) as error:
                self._polls.failed(error)
            await backoff.pause()

    async def _load(self) -> None:
        """Announces when all is read."""
        began, backoff = trio.current_time(), Backoff(self._config)
        while True:
            try:
                await self.read_to_ends(range(self.partitions))
                break
            except (OSError, RemoteProtocolError) as error:
                self._polls.failed(error)
                await backoff.pause()
        log.info("transaction log read", partitions=self.partitions, seconds=round(trio.current_time() - began, 3))
        self._loaded.set()

    def _announce(self) -> None:
        self.version += 1
        self._changed.set()
        self._changed = trio.Event()
