"""Follows the transaction log: every record of every partition, in order, from the log's start on and for ever."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import structlog
import trio

from kproxy.codec._generated.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponseTopic
from kproxy.codec.messages import ErrorCode
from kproxy.config import Config
from kproxy.errors import RemoteProtocolError
from kproxy.net.broker_client import BrokerClient
from kproxy.net.broker_log_leaders import Leaders
from kproxy.net.broker_log_questions import LATEST, list_offsets
from kproxy.net.cluster import Cluster
from kproxy.net.own_topic import OwnTopic, Refused, TopicGone, check, pause
from kproxy.net.txn.log_batches import read_batches
from kproxy.net.txn.log_partition import NOTHING, LogPartition, LogSink
from kproxy.net.txn.log_requests import log_records, log_starts
from kproxy.proxy.routing import Address

__all__ = ["NOTHING", "LogFollower", "LogSink"]

log = structlog.get_logger("kproxy.transaction_log")

_KIND: Final = "transaction_state_log"
#: From v5 on a new leader that does not know the high watermark yet says so (KIP-207).
_END: Final = replace(list_offsets(LATEST), oldest=5)


class LogFollower:
    """One long poll at a time to each leader, over a connection of its own; the records go to a sink.

    Nothing is passed over, whatever happens: a log that is not the one that was read is read anew, from its start; what
    can't be read is asked for again until it can.
    """

    def __init__(self, cluster: Cluster, config: Config, topic: OwnTopic, sink: LogSink) -> None:
        """``topic`` is found or made by ``run``."""
        self._cluster = cluster
        self._config = config
        self._topic = topic
        self._sink = sink
        self._leaders = Leaders(cluster, config)
        self._parts: list[LogPartition] = []
        self._topic_id = bytes(16)
        self._opened = trio.Event()
        self._loaded = trio.Event()
        #: Set when a partition has lost its leader.
        self._lost = trio.Event()
        #: The long poll to each leader.
        self._polls: dict[Address, trio.CancelScope] = {}
        self._fed = 0
        #: What was warned of.
        self._told_gone = self._told_refused = False
        #: Rises with whatever is told to the sink.
        self.version = 0
        self._changed = trio.Event()

    # -- what others ask

    @property
    def partitions(self) -> int:
        """How many the topic has; 0 until ``run`` has started."""
        return len(self._parts)

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
        place = self._topic.name, partition
        part = self._parts[partition]
        while True:
            restarts = part.restarts
            end = (await self._leaders.ask([place], _END))[place].get(place, "ListOffsets")
            while not part.has(end) and part.restarts == restarts:
                await part.wait(end)
            if part.has(end):
                return end

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
            self._opened.set()
            task_status.started()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._load)
                await self._assign(nursery)
        finally:
            self._leaders.close()

    async def _prepare(self) -> int:
        backoff_ms = self._config.retry_backoff_ms
        while True:
            try:
                return await self._topic.prepare()
            except (OSError, RemoteProtocolError, Refused) as error:
                self._failed(error)
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
                    self._failed(error)
                    backoff_ms = await pause(backoff_ms, self._config)
        log.info("transaction log read", partitions=self.partitions, seconds=round(trio.current_time() - began, 3))
        self._loaded.set()

    # -- leaders

    async def _assign(self, nursery: trio.Nursery) -> None:
        """Gives each partition that has no leader its leader, for ever."""
        backoff_ms = self._config.retry_backoff_ms
        while True:
            if self._led_by(None):
                for address in await self._learn():
                    if address in self._polls:
                        self._polls[address].cancel()  # the partition should not have to wait for its end
                    else:
                        self._polls[address] = trio.CancelScope()
                        nursery.start_soon(self._follow, address)
                backoff_ms = await pause(backoff_ms, self._config)
            else:
                backoff_ms = self._config.retry_backoff_ms
                await self._lost.wait()
            self._lost = trio.Event()

    async def _learn(self) -> set[Address]:
        """Asks for the leaders that are not known; those that were found."""
        request = MetadataRequest(topics=[MetadataRequestTopic(name=self._topic.name)], allow_auto_topic_creation=False)
        leaders: set[Address] = set()
        lost = {part.index for part in self._led_by(None)}
        try:
            response = await self._leaders.metadata(request)
            brokers = {row.node_id: Address(row.host, row.port) for row in response.brokers}
            for found in response.topics:
                check("Metadata", self._topic.name, found.error_code)
                self._recognise(found)
                for row in found.partitions:
                    leader = brokers.get(row.leader_id)
                    if leader is not None and row.partition_index in lost:
                        self._parts[row.partition_index].ask(leader, row.leader_epoch)
                        leaders.add(leader)
        except (OSError, RemoteProtocolError, Refused) as error:
            self._failed(error)
        return leaders

    def _recognise(self, found: MetadataResponseTopic) -> None:
        """Begins anew where the topic is another one of the same name."""
        self._told_gone = False
        if any(found.topic_id) and found.topic_id != self._topic_id:
            if any(self._topic_id):
                log.warning("the topic was made anew: what was committed before is not seen", topic=self._topic.name)
                for part in self._parts:
                    part.stale = True
            self._topic_id = found.topic_id
            self._cluster.map.own_topic_ids.add(found.topic_id)

    def _led_by(self, address: Address | None) -> list[LogPartition]:
        """The partitions that are asked for there: first those that had nothing for longest."""
        return sorted((part for part in self._parts if part.leader == address), key=lambda part: part.fed)

    def _lose(self, parts: Sequence[LogPartition]) -> None:
        for part in parts:
            part.ask(None, -1)
            self._lost.set()

    # -- reading

    async def _follow(self, address: Address) -> None:
        """Asks one broker until it leads nothing any more, or fails."""
        client: BrokerClient | None = None
        try:
            while parts := self._led_by(address):
                if client is None or client.closed:
                    client = await self._connect(address)
                with trio.CancelScope() as self._polls[address]:
                    await self._poll(client, parts)
        except (OSError, RemoteProtocolError) as error:
            self._failed(error)
        finally:
            if client is not None:
                client.close()
            self._lose(self._led_by(address))
            del self._polls[address]

    async def _connect(self, address: Address) -> BrokerClient:
        return await BrokerClient.open(
            self._cluster.network,
            address,
            self._config.upstream_connect_timeout_ms,
            self._config.upstream_request_timeout_ms,
        )

    async def _poll(self, client: BrokerClient, parts: Sequence[LogPartition]) -> None:
        stale = [part for part in parts if part.stale]
        if stale:
            for index, error, start in await log_starts(client, self._topic.name, stale):
                if self._check("ListOffsets", index, error):
                    self._parts[index].restart(start)
                    self._announce()
        fresh = [part for part in parts if not part.stale]
        if not fresh:
            return
        answered = taken = False
        for index, error, row in await log_records(client, self._topic.name, self._topic_id, fresh):
            if self._check("Fetch", index, error) and row.records and not self._parts[index].stale:
                answered = True
                taken |= self._take(self._parts[index], memoryview(row.records))
                await trio.lowlevel.checkpoint()
        if answered and not taken:
            raise RemoteProtocolError("a Fetch answer has no whole batch")

    def _check(self, what: str, partition: int, error_code: int) -> bool:
        """Whether the answer for a partition is none of an error; with one, it is asked for anew."""
        if not error_code:
            return True
        part = self._parts[partition]
        if error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            log.info("reading a partition anew", topic=self._topic.name, partition=partition, position=part.position)
            part.stale = True
        self._lose([part])
        try:
            check(what, self._topic.name, error_code)
        except (OSError, Refused) as error:
            self._failed(error)
        return False

    def _take(self, part: LogPartition, data: memoryview) -> bool:
        """Hands on what was read; whether there was a batch at all, and not the beginning of one."""
        batches, damage = read_batches(data, part.position)
        if batches:
            self._fed += 1
            part.fed = self._fed
            part.apply(batches)
            self._announce()
        if damage is not None:
            self._lose([part])
            self._cluster.count_error(_KIND)
            if part.damaged_at != part.position:
                part.damaged_at = part.position
                log.error(
                    "the transaction log is damaged: nothing behind is read until it can be",
                    topic=self._topic.name,
                    partition=part.index,
                    offset=part.position,
                    error=str(damage),
                )
        return bool(batches) or damage is not None

    def _announce(self) -> None:
        self.version += 1
        self._changed.set()
        self._changed = trio.Event()

    def _failed(self, error: Exception) -> None:
        """Counts a failure; what will not pass by itself is told of once."""
        self._cluster.count_error(_KIND)
        if isinstance(error, Refused) and not self._told_refused:
            self._told_refused = True
            self._topic.tell_refused(error)
        elif isinstance(error, TopicGone) and any(self._topic_id) and not self._told_gone:
            self._told_gone = True
            log.warning("the topic of the transaction log is gone; waiting for it", topic=self._topic.name)
