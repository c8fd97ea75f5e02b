"""The state of a fake cluster: brokers, topics, groups, producer ids; and what a test may do to it.

One thread, no locks: handlers run between trio checkpoints. Ids come from counters, so that a run can be replayed.
"""

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

import trio

from kproxy.codec.messages import ApiKey, ErrorCode
from kproxy.testing.fake_broker.faults import Control, ControlFunction, Controls
from kproxy.testing.fake_broker.groups import Group
from kproxy.testing.fake_broker.log import PartitionLog
from kproxy.testing.fake_broker.topics import NO_LEADER, Partition, Topic, legal_topic_name

_PRODUCER_ID_BLOCK: Final = 1000
CLUSTER_ID: Final = "fake-cluster-000000000"


@dataclass(slots=True)
class Broker:
    """A broker's address and whether it is up."""

    node_id: int
    host: str
    port: int
    alive: bool = True


@dataclass(frozen=True, slots=True)
class ClusterConfig:
    """Broker settings that the fake knows, with Kafka's defaults unless said otherwise."""

    num_partitions: int = 1
    default_replication_factor: int = 1
    auto_create_topics: bool = True
    producer_id_expiration_ms: int = 86_400_000
    offset_metadata_max_bytes: int = 4096
    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    max_request_bytes: int = 100 << 20


@dataclass(slots=True)
class TransactionalId:
    """The producer that owns a transactional id."""

    producer_id: int
    epoch: int


@dataclass(slots=True)
class FakeCluster:
    """The whole state; ``clock`` gives the time in ms and should advance as trio's clock does."""

    clock: Callable[[], int]
    config: ClusterConfig = field(default_factory=ClusterConfig)
    brokers: dict[int, Broker] = field(default_factory=dict)
    topics: dict[str, Topic] = field(default_factory=dict)
    groups: dict[str, Group] = field(default_factory=dict)
    transactional_ids: dict[str, TransactionalId] = field(default_factory=dict)
    controls: Controls = field(default_factory=Controls)
    _changed: trio.Event = field(default_factory=trio.Event)
    _counters: dict[str, int] = field(default_factory=dict)

    def control(self, key: ApiKey, function: ControlFunction, *, times: int | None = None) -> Control:
        """Let ``function`` meddle with the requests of one API key (see ``faults``).

        :param times: stop after so many faults; None means never. ``controls.remove`` ends it earlier.
        """
        return self.controls.add(key, function, times)

    def count(self, what: str) -> int:
        """Return the next number, from 0, of a named counter."""
        number = self._counters.get(what, 0)
        self._counters[what] = number + 1
        return number

    def create_topic(
        self,
        name: str,
        partitions: int = -1,
        replication: int = -1,
        config: Mapping[str, str] | None = None,
        *,
        validate_only: bool = False,
    ) -> ErrorCode:
        """Create a topic as CreateTopics does; -1 stands for the broker's default."""
        partitions = self.config.num_partitions if partitions == -1 else partitions
        replication = self.config.default_replication_factor if replication == -1 else replication
        if not legal_topic_name(name):
            return ErrorCode.INVALID_TOPIC_EXCEPTION
        if name in self.topics:
            return ErrorCode.TOPIC_ALREADY_EXISTS
        if partitions <= 0:
            return ErrorCode.INVALID_PARTITIONS
        alive = [broker.node_id for broker in self.brokers.values() if broker.alive]
        if not 0 < replication <= len(alive):
            return ErrorCode.INVALID_REPLICATION_FACTOR
        if not validate_only:
            topic_id = (self.count("topic") + 1).to_bytes(16, "big")
            topic = self.topics[name] = Topic(name, topic_id, dict(config or {}))
            self.add_partitions(topic, partitions, replication)
        return ErrorCode.NONE

    def add_partitions(self, topic: Topic, count: int, replication: int) -> None:
        """Add ``count`` partitions to a topic, leaders dealt out to the live brokers in turn."""
        alive = [broker.node_id for broker in self.brokers.values() if broker.alive]
        for _ in range(count):
            index = len(topic.partitions)
            replicas = [alive[(index + n) % len(alive)] for n in range(min(replication, len(alive)))]
            log = PartitionLog(topic.config, self.config.producer_id_expiration_ms)
            topic.partitions.append(Partition(index, log, replicas, replicas[0]))

    def delete_topic(self, name: str) -> ErrorCode:
        """Delete a topic with its records and the offsets that groups committed for it."""
        if self.topics.pop(name, None) is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        for group in self.groups.values():
            group.forget_topic(name)
        self.notify()
        return ErrorCode.NONE

    def topic_by_id(self, topic_id: bytes) -> Topic | None:
        """Return the topic with this 16-byte id."""
        return next((topic for topic in self.topics.values() if topic.topic_id == topic_id), None)

    def coordinator_of(self, key: str) -> Broker | None:
        """Return the broker that coordinates a group or transactional id; None when all are down."""
        nodes = list(self.brokers.values())
        first = zlib.crc32(key.encode()) % len(nodes)
        return next((node for node in nodes[first:] + nodes[:first] if node.alive), None)

    def next_producer_id(self, broker_id: int) -> int:
        """Return a producer id never given before; each broker hands them out from blocks of a thousand."""
        used = self.count(f"producer ids of {broker_id}")
        if used % _PRODUCER_ID_BLOCK == 0:
            self._counters[f"block of {broker_id}"] = self.count("blocks") * _PRODUCER_ID_BLOCK
        return self._counters[f"block of {broker_id}"] + used % _PRODUCER_ID_BLOCK

    def move_leader(self, topic: str, partition: int, broker_id: int) -> None:
        """Make ``broker_id`` the leader of a partition, under the next leader epoch."""
        self._lead(self.topics[topic].partitions[partition], broker_id)
        self.notify()

    def broker_down(self, broker_id: int) -> None:
        """Take a broker out: its partitions go to their next live replica, or have no leader."""
        self.brokers[broker_id].alive = False
        for topic in self.topics.values():
            for partition in topic.partitions:
                if partition.leader == broker_id:
                    self._lead(partition, self._live_replica(partition))
        self.notify()

    def broker_up(self, broker_id: int) -> None:
        """Bring a broker back; it leads again only what nobody else leads."""
        self.brokers[broker_id].alive = True
        for topic in self.topics.values():
            for partition in topic.partitions:
                if partition.leader == NO_LEADER:
                    self._lead(partition, self._live_replica(partition))
        self.notify()

    def notify(self) -> None:
        """Wake the Fetch requests that wait for data: something was appended, moved or deleted."""
        self._changed.set()
        self._changed = trio.Event()

    async def wait_for_change(self) -> None:
        """Sleep until the next ``notify``."""
        await self._changed.wait()

    def _live_replica(self, partition: Partition) -> int:
        return next((node for node in partition.replicas if self.brokers[node].alive), NO_LEADER)

    def _lead(self, partition: Partition, broker_id: int) -> None:
        partition.leader = broker_id
        partition.leader_epoch += 1
        if broker_id != NO_LEADER and broker_id not in partition.replicas:
            partition.replicas.append(broker_id)
