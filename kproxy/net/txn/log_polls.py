"""Reads all partitions of the transaction log: one long poll at a time to each leader."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Final

import structlog
import trio

from kproxy.codec._generated.metadata import MetadataRequestTopic, MetadataResponseTopic
from kproxy.codec.messages import ErrorCode
from kproxy.config.transaction_options import TransactionOptions
from kproxy.errors import RemoteProtocolError
from kproxy.net.brokers.backoff import Backoff
from kproxy.net.brokers.broker_client import BrokerClient
from kproxy.net.brokers.cluster import Cluster
from kproxy.net.own_topic import OwnTopic, Refused, TopicDeleted, check
from kproxy.net.txn.log_batches import read_batches
from kproxy.net.txn.log_partition import NOTHING, LogPartition
from kproxy.net.txn.log_requests import log_records, log_starts
from kproxy.proxy.routing import Address
from kproxy.txn.ids import turn_of

log = structlog.get_logger("kproxy.transaction_log")

_KIND: Final = "transaction_state_log"
#: A broker answers a poll as soon as there is a record; else an idle instance asks each broker once in this time.
_WAIT_MS: Final = 120_000
#: The longest poll in request time-outs: a broker that has stopped is noticed after this, unless somebody waits.
_WAIT_TIME_OUTS: Final = 4
#: Instances that began at the same time are not to ask at the same time for ever: their polls differ by so much.
_SPREAD: Final = 0.2


@dataclass(slots=True)
class _Poll:
    """A long poll, and when it began: not yet while it connects."""

    began: float = inf
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)


class LogPolls:
    """Finds the leader of a partition whenever it is unknown, or has changed, and reads from there."""

    def __init__(
        self,
        cluster: Cluster,
        config: TransactionOptions,
        topic: OwnTopic,
        announce: Callable[[], None],
        lost: Callable[[int, str], None],
    ) -> None:
        """``announce`` is called when the sink has received something.

        ``lost`` is called with a partition that has lost records, and how.
        """
        self._lost_records = lost
        self._cluster = cluster
        self._config = config
        self._topic = topic
        self._announce = announce
        self._parts: Sequence[LogPartition] = ()
        self._topic_id = bytes(16)
        #: Set when a partition has lost its leader.
        self._lost = trio.Event()
        #: The long poll to each leader.
        self._polls: dict[Address, _Poll] = {}
        self._pool = cluster.new_pool()
        self._fed = 0
        #: Since when the topic is deleted, by trio's clock.
        self._gone_since: float | None = None
        #: Whether it was warned of that.
        self._told_refused = False

    async def run(self, parts: Sequence[LogPartition]) -> None:
        """Reads these partitions for ever."""
        self._parts = parts
        async with trio.open_nursery() as nursery:
            await self._assign(nursery)

    # -- leaders

    async def _assign(self, nursery: trio.Nursery) -> None:
        """Gives each partition that has no leader its leader, for ever."""
        backoff = Backoff(self._config)
        while True:
            if self._led_by(None):
                for address in await self._learn():
                    if address in self._polls:
                        self._polls[address].scope.cancel()  # the partition should not have to wait for its end
                    else:
                        self._polls[address] = _Poll()
                        nursery.start_soon(self._follow, address)
                await self._create_again()
                await backoff.pause()
            else:
                backoff.reset()
                await self._lost.wait()
            self._lost = trio.Event()

    async def _learn(self) -> set[Address]:
        """Asks for the leaders that are not known; those that were found."""
        leaders: set[Address] = set()
        lost = {part.index for part in self._led_by(None)}
        try:
            response = await self._cluster.metadata.topics([MetadataRequestTopic(name=self._topic.name)])
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
            self.failed(error)
        return leaders

    async def _create_again(self) -> None:
        """Creates a topic that was deleted and is not restored in time: no transactional id must wait for ever."""
        seconds = self._config.transaction_max_timeout_ms / 1000
        if self._gone_since is None or trio.current_time() < self._gone_since + seconds or not self._creates_again:
            return
        try:
            await self._topic.prepare(len(self._parts))
        except (OSError, RemoteProtocolError, Refused) as error:
            self.failed(error)

    @property
    def _creates_again(self) -> bool:
        return self._config.unknown_producer_ids == "reject"

    def _recognise(self, found: MetadataResponseTopic) -> None:
        """Starts from the beginning where the topic is another one of the same name."""
        self._gone_since = None
        if any(found.topic_id) and found.topic_id != self._topic_id:
            if any(self._topic_id):
                log.warning("the topic was created again: earlier commits are not visible", topic=self._topic.name)
                for part in self._parts:
                    if part.position > 0:
                        self._lost_records(part.index, "recreated")
                    part.stale, part.position = True, NOTHING
            self._topic_id = found.topic_id
            self._cluster.map.own_topic_ids.add(found.topic_id)

    def _led_by(self, address: Address | None) -> list[LogPartition]:
        """The partitions that are asked for there: first those that had nothing for longest."""
        return sorted((part for part in self._parts if part.leader == address), key=lambda part: part.fed)

    def _lose(self, parts: Sequence[LogPartition]) -> None:
        for part in parts:
            part.ask(None, -1)
            self._lost.set()

    def reread(self, part: LogPartition) -> None:
        """Reads a partition again from its start, at once: its log is not the one that was read."""
        part.stale = True
        if part.leader in self._polls:
            self._polls[part.leader].scope.cancel()

    def hurry(self, part: LogPartition) -> None:
        """Ends a poll that has no response for a request time-out, and finds the partition's leader again.

        Called when somebody waits for what the log is known to have. A poll that is younger may be under way with it.
        """
        poll = self._polls.get(part.leader) if part.leader is not None else None
        if poll is not None and trio.current_time() > poll.began + self._config.upstream_request_timeout_ms / 1000:
            poll.scope.cancel()
            self._lose([part])

    # -- reading

    async def _follow(self, address: Address) -> None:
        """Asks one broker until it leads nothing any more, or fails."""
        try:
            while self._led_by(address):
                async with self._pool.to(address) as client:
                    poll = self._polls[address] = _Poll(trio.current_time())
                    with poll.scope:
                        # Not earlier: a partition that came while this connected would wait for the end of the poll.
                        await self._poll(client, self._led_by(address))
        except (OSError, RemoteProtocolError) as error:
            self.failed(error)
        finally:
            self._pool.close_idle(address)
            self._lose(self._led_by(address))
            del self._polls[address]

    async def _poll(self, client: BrokerClient, parts: Sequence[LogPartition]) -> None:
        stale = [part for part in parts if part.stale]
        if stale:
            for index, error, start in await log_starts(client, self._topic.name, stale):
                if self._check("ListOffsets", index, error):
                    part = self._parts[index]
                    part.log_start = start
                    if part.position > start:
                        self._lost_records(index, "truncated")
                    part.restart(start)
                    self._announce()
        fresh = [part for part in parts if not part.stale]
        if not fresh:
            return
        answered = taken = False
        longest = min(_WAIT_MS, _WAIT_TIME_OUTS * self._config.upstream_request_timeout_ms)
        wait_ms = int(longest * (1 - _SPREAD * turn_of(self._config.instance_id)))
        for index, error, row in await log_records(client, self._topic.name, self._topic_id, fresh, wait_ms):
            if not self._check("Fetch", index, error):
                continue
            part = self._parts[index]
            part.end = row.high_watermark
            part.log_start = max(part.log_start, row.log_start_offset)
            if row.records and not part.stale:
                answered = True
                taken |= self._take(part, memoryview(row.records))
                await trio.lowlevel.checkpoint()
            part.answered()
        if answered and not taken:
            raise RemoteProtocolError("a Fetch answer has no whole batch")

    def _check(self, what: str, partition: int, error_code: int) -> bool:
        """Whether the response for a partition has no error; after an error the partition is fetched again."""
        if not error_code:
            return True
        part = self._parts[partition]
        if error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            log.info("reading a partition again", topic=self._topic.name, partition=partition, position=part.position)
            part.stale = True
        self._lose([part])
        if part.stale:
            return False  # nothing is refused: the loss is reported when the partition is read again
        try:
            check(what, self._topic.name, error_code)
        except (OSError, Refused) as error:
            self.failed(error)
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
                    "the transaction log is damaged: kproxy reads nothing after this offset, and tries again",
                    topic=self._topic.name,
                    partition=part.index,
                    offset=part.position,
                    error=str(damage),
                )
        return bool(batches) or damage is not None

    def failed(self, error: Exception) -> None:
        """Counts a failure; a failure that will not pass by itself is logged once."""
        self._cluster.count_error(_KIND)
        if isinstance(error, Refused) and not self._told_refused:
            self._told_refused = True
            self._topic.warn_of_refusal(error)
        elif isinstance(error, TopicDeleted) and any(self._topic_id) and self._gone_since is None:
            self._gone_since = trio.current_time()
            log.error(
                "the topic of the transaction log was deleted: transactions wait until it exists again",
                topic=self._topic.name,
                left_ms=self._config.transaction_max_timeout_ms if self._creates_again else None,
                advice="restore it; kproxy creates an empty one after left_ms" if self._creates_again else "restore it",
            )
