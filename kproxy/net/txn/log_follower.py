"""Follows the transaction log: every record of every partition, in order, from the log's start on and for ever."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

import structlog
import trio

from kproxy.config import Config
from kproxy.errors import RemoteProtocolError
from kproxy.net.broker_log_leaders import Leaders
from kproxy.net.broker_log_questions import LATEST, list_offsets
from kproxy.net.cluster import Cluster
from kproxy.net.own_topic import OwnTopic, Refused, pause
from kproxy.net.txn.log_partition import NOTHING, LogPartition, LogSink
from kproxy.net.txn.log_polls import LogPolls

__all__ = ["NOTHING", "LogFollower", "LogSink"]

_NEVER: Final = 1 << 63

log = structlog.get_logger("kproxy.transaction_log")

#: From v5 on a new leader that does not know the high watermark yet says so (KIP-207).
_END: Final = replace(list_offsets(LATEST), oldest=5)


class LogFollower:
    """One long poll at a time to each leader, over a connection of its own; the records go to a sink.

    Nothing is passed over, whatever happens: a log that is not the one that was read is read anew, from its start; what
    can't be read is asked for again until it can.
    """

    def __init__(self, cluster: Cluster, config: Config, topic: OwnTopic, sink: LogSink) -> None:
        """``topic`` is found or made by ``run``."""
        self._config = config
        self._topic = topic
        self._sink = sink
        self._leaders = Leaders(cluster, config)
        self._parts: list[LogPartition] = []
        self._polls = LogPolls(cluster, config, topic, self._leaders, self._announce)
        self._loaded = trio.Event()
        #: Rises with whatever is told to the sink.
        self.version = 0
        self._changed = trio.Event()

    # -- what others ask

    @property
    def partitions(self) -> int:
        """How many the topic has; 0 until ``run`` has started."""
        return len(self._parts)

    @property
    def lag(self) -> int:
        """How many offsets of all partitions are not applied yet, by what their leaders said last."""
        return sum(part.lag for part in self._parts)

    @property
    def restarts(self) -> int:
        """How often partitions have been read from their beginning."""
        return sum(part.restarts for part in self._parts)

    def position(self, partition: int) -> int:
        """The offset before which all has been applied; -1 (``NOTHING``) while the partition's start is not known."""
        return self._parts[partition].position

    async def reached(self, partition: int, offset: int) -> None:
        """Waits until all that lies before ``offset`` has been applied; for ever where the log lost it."""
        part = self._parts[partition]
        while not part.has(offset):
            await part.wait(offset)

    async def read_to_end(self, partition: int) -> int:
        """Waits until all has been applied that the log has when its leader is asked now; that end.

        OSError if no leader answers within ``delivery_timeout_ms``; RemoteProtocolError if it will not tell.
        """
        return (await self.read_to_ends([partition]))[partition]

    async def read_to_ends(self, partitions: Iterable[int]) -> dict[int, int]:
        """As ``read_to_end``, of many partitions, whose leaders are asked once each.

        What is read anew meanwhile is asked for again: when this returns, all of it has been applied.
        """
        ends: dict[int, int] = {}
        wanted = left = [self._parts[index] for index in partitions]
        while left:
            restarts = [part.restarts for part in left]
            places = [(self._topic.name, part.index) for part in left]
            told = await self._leaders.ask(places, _END)
            for part, place, before in zip(left, places, restarts, strict=True):
                end = told[place].get(place, "ListOffsets")
                while not part.has(end) and part.restarts == before:
                    await part.wait(end)
                if part.has(end):
                    ends[part.index] = end
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
        backoff_ms = self._config.retry_backoff_ms
        while True:
            try:
                return await self._topic.prepare()
            except (OSError, RemoteProtocolError, Refused) as error:
                self._polls.failed(error)
            backoff_ms = await pause(backoff_ms, self._config)

    async def _load(self) -> None:
        """Announces when all is read."""
        began, backoff_ms = trio.current_time(), self._config.retry_backoff_ms
        for part in self._parts:
            while True:
                try:
                    await self.read_to_end(part.index)
                    break
                except (OSError, RemoteProtocolError) as error:
                    self._polls.failed(error)
                    backoff_ms = await pause(backoff_ms, self._config)
        log.info("transaction log read", partitions=self.partitions, seconds=round(trio.current_time() - began, 3))
        self._loaded.set()

    def _announce(self) -> None:
        self.version += 1
        self._changed.set()
        self._changed = trio.Event()
