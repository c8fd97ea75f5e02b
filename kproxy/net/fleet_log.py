"""The compacted topic in which the instances of a fleet announce themselves: written now and then, read when asked."""

from collections.abc import Sequence
from typing import Final

import trio

from kproxy.codec._generated.produce import (
    ProduceRequest,
    ProduceRequestPartitionProduceData,
    ProduceRequestTopicProduceData,
    ProduceResponse,
)
from kproxy.codec.batch import Record, build_batch
from kproxy.codec.topic_partition import TopicPartition
from kproxy.config import Config
from kproxy.errors import RemoteProtocolError
from kproxy.net.broker_log_questions import LATEST, list_offsets
from kproxy.net.brokers.backoff import Backoff
from kproxy.net.brokers.cluster import Cluster
from kproxy.net.brokers.leaders import Leaders
from kproxy.net.lane_topic import partition_of
from kproxy.net.own_topic import OwnTopic, Refused, TopicDeleted, TopicPlan, check
from kproxy.net.topic_reader import TopicReader
from kproxy.proxy.announcements import encode_key
from kproxy.proxy.facts import FleetFact
from kproxy.proxy.fleet_view import LISTED_MS, MISSED, FleetView
from kproxy.proxy.process_stats import ProcessStats

TOPIC: Final = "__kproxy_fleet"
#: Several, so that the connections of a large fleet are spread over the brokers.
_PARTITIONS: Final = 8
_HOUR_MS: Final = 3_600_000
#: Of each partition the newest are read; a fleet of 10,000 writes 12,500 in ten minutes.
_MOST_RECORDS: Final = 50_000
_READ_SECONDS: Final = 10.0
#: Pages that are open at several people read it once.
_FRESH_SECONDS: Final = 2.0
_PRODUCE: Final = (3, 8)


def fleet_plan(config: Config) -> TopicPlan:
    """What the topic is made like."""
    return TopicPlan(
        name=TOPIC,
        partitions=_PARTITIONS,
        replicas=config.producer_state_log_replication_factor,
        replicas_option="producer.state.log.replication.factor",
        min_isr=1,
        settings={
            "cleanup.policy": "compact,delete",
            "retention.ms": str(_HOUR_MS),
            "segment.ms": str(_HOUR_MS),
            "segment.bytes": str(4 << 20),
            # By one clock, whatever those of the hosts say.
            "message.timestamp.type": "LogAppendTime",
        },
        wrong={
            "cleanup.policy": "topic keeps entries of instances that are no more, or more than one of each instance; "
            "set cleanup.policy=compact,delete",
            "message.timestamp.type": "instances whose clocks are wrong are missing in kproxy fleet; set "
            "message.timestamp.type=LogAppendTime",
        },
        refused="this instance is not in kproxy fleet, and serves its clients as before: the cluster refuses the topic "
        "of announcements; grant what is missing and restart kproxy, or set fleet.announce.interval.ms to 0",
        rights="Create, Describe, DescribeConfigs, Read and Write",
        optional=True,
    )


class FleetLog:
    """Announcements of all instances on the same brokers. A lost one costs nothing: the next one follows."""

    def __init__(self, config: Config, cluster: Cluster, stats: ProcessStats) -> None:
        """Asks nothing before the first call."""
        self._stats = stats
        self._config = config
        self._cluster = cluster
        self.topic = OwnTopic(cluster, fleet_plan(config))
        self._leaders = Leaders(cluster, config)
        self._place: TopicPartition | None = None
        self._announced = False
        self._reading = trio.Lock()
        self._read_at = -_FRESH_SECONDS
        self._fleet: FleetFact | None = None

    async def announce(self, value: bytes) -> None:
        """Writes this instance's announcement, once. OSError, RemoteProtocolError: the next may succeed; Refused."""
        if self._place is None:
            self._place = TOPIC, partition_of(self._config.instance_id, await self.topic.prepare())
        try:
            await self._write(self._place, value)
            self._announced = True
        except TopicDeleted:
            self._place = None
            raise

    async def withdraw(self) -> None:
        """Takes this instance's announcement back, if there is one. As of ``announce``."""
        if self._place is not None and self._announced:
            await self._write(self._place, None)

    async def _write(self, place: TopicPartition, value: bytes | None) -> None:
        now_ms = int(self._cluster.network.wall() * 1000)
        batch = build_batch([Record(0, now_ms, encode_key(self._config.instance_id), value)])
        part = ProduceRequestPartitionProduceData(index=place[1], records=memoryview(batch))
        timeout_ms = self._config.upstream_request_timeout_ms
        topic = ProduceRequestTopicProduceData(name=TOPIC, partition_data=[part])
        request = ProduceRequest(acks=1, timeout_ms=timeout_ms, topic_data=[topic])
        async with self._leaders.to(place) as client:
            response = await client.call(request, ProduceResponse, _PRODUCE, extra_ms=timeout_ms)
            for found in response.responses:
                for row in found.partition_responses:
                    check("Produce", TOPIC, row.error_code)

    async def read(self) -> FleetFact:
        """The fleet now, or a moment ago. OSError, with the reason, if it cannot be read."""
        async with self._reading:
            if self._fleet is None or trio.current_time() >= self._read_at + _FRESH_SECONDS:
                self._fleet = await self._read()
                self._read_at = trio.current_time()
            return self._fleet

    async def _read(self) -> FleetFact:
        view, backoff = FleetView(), Backoff(self._config)
        error: Exception | None = None
        complete = False
        with trio.move_on_after(_READ_SECONDS):
            while not complete:
                try:
                    view, error = FleetView(), None
                    complete = await self._read_into(view)
                except Refused as refused:
                    raise OSError(f"{refused}; kproxy needs Describe and Read on topic {TOPIC}") from None
                except (OSError, RemoteProtocolError) as failed:
                    error = failed
                    await backoff.pause()
        if not complete and (error is not None or not len(view)):
            raise OSError(f"{TOPIC} cannot be read: {error or f'no answer within {_READ_SECONDS:g} s'}")
        found = view.fleet(self._now_ms(), announces=self._announced, incomplete=not complete)
        self._stats.fleet_ignored = view.ignored
        return found

    async def _read_into(self, view: FleetView) -> bool:
        """Reads all announcements that may count still; True when all are read."""
        places = [(TOPIC, index) for index in range(await self.topic.partitions())]
        since_ms = self._now_ms() - max(MISSED * self._config.fleet_announce_interval_ms, LISTED_MS)
        begins = await self._offsets(places, since_ms)
        ends = await self._offsets(places, LATEST)
        for place, begin, end in zip(places, begins, ends, strict=True):
            if begin >= 0:  # else nothing is so young
                start = max(begin, end - _MOST_RECORDS)
                view.ignored["too_many"] += start - begin
                await TopicReader(self._leaders, place, view, start).read_to(end)
        return True

    async def _offsets(self, places: Sequence[TopicPartition], timestamp: int) -> list[int]:
        told = await self._leaders.ask(places, list_offsets(timestamp))
        for place in places:
            check("ListOffsets", TOPIC, told[place].error_code)
        return [told[place].get(place, "ListOffsets") for place in places]

    def _now_ms(self) -> int:
        return int(self._cluster.network.wall() * 1000)

    def close(self) -> None:
        """Closes its connections."""
        self._leaders.close()
