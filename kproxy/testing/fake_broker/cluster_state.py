"""The state of a fake cluster: brokers, topics, groups, producer ids. What a test may do to it is in ``cluster``.

One thread, no locks: handlers run between trio checkpoints. Ids come from counters, so that a run can be replayed.
"""

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import trio

from kproxy.codec.messages import ErrorCode
from kproxy.codec.topic_names import is_legal_topic
from kproxy.testing.fake_broker.consumer_groups import Group
from kproxy.testing.fake_broker.controls import Controls
from kproxy.testing.fake_broker.logins import Logins, SaslRules
from kproxy.testing.fake_broker.partition import Partition, Topic
from kproxy.testing.fake_broker.partition_log import PartitionLog
from kproxy.testing.fake_broker.producers import DAY_MS, TEN_MINUTES_MS
from kproxy.testing.fake_broker.transactional_ids import TransactionalId

_PRODUCER_ID_BLOCK: Final = 1000
CLUSTER_ID: Final = "fake-cluster-000000000"


@dataclass(slots=True)
class Broker:
    """A broker's address and how it is.

    :param alive: whether it runs.
    :param listed: whether the controller counts it among the live ones, so that Metadata lists it.
    :param failed: whether its log directory is offline.
    """

    node_id: int
    host: str
    port: int
    alive: bool = True
    listed: bool = True
    failed: bool = False

    @property
    def serves(self) -> bool:
        """Whether it can lead and follow."""
        return self.alive and not self.failed


@dataclass(frozen=True, slots=True)
class ClusterConfig:
    """Broker settings that the fake knows, with Kafka's defaults unless said otherwise."""

    cluster_id: str = CLUSTER_ID
    num_partitions: int = 1
    default_replication_factor: int = 1
    min_insync_replicas: int = 1
    auto_create_topics: bool = True
    producer_id_expiration_ms: int = DAY_MS
    producer_id_expiration_check_interval_ms: int = TEN_MINUTES_MS
    offset_metadata_max_bytes: int = 4096
    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    max_request_bytes: int = 100 << 20
    request_timeout_ms: int = 30_000
    sasl: SaslRules | None = None
    transaction_version: int = 2
    transaction_max_timeout_ms: int = 900_000


@dataclass(slots=True)
class ClusterState:
    """The whole state; ``clock`` gives the time in ms and should advance as trio's clock does."""

    clock: Callable[[], int]
    config: ClusterConfig = field(default_factory=ClusterConfig)
    brokers: dict[int, Broker] = field(default_factory=dict)
    topics: dict[str, Topic] = field(default_factory=dict)
    groups: dict[str, Group] = field(default_factory=dict)
    transactional_ids: dict[str, TransactionalId] = field(default_factory=dict)
    controls: Controls = field(default_factory=Controls)
    controller_alive: bool = True
    logins: Logins = field(init=False)
    markers_held: bool = False
    paused: set[int] = field(default_factory=set)
    """The brokers whose replicas do not follow their leaders."""
    loading: set[int] = field(default_factory=set)
    """The brokers whose coordinators still read what they are to know."""
    moved: dict[str, int] = field(default_factory=dict)
    """The brokers that coordinate groups and transactional ids which were moved."""
    _topics_by_id: dict[bytes, Topic] = field(default_factory=dict)
    _changed: trio.Event = field(default_factory=trio.Event)
    _counters: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.logins = Logins(self.config.sasl)

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
        placed: Sequence[Sequence[int]] = (),
        validate_only: bool = False,
    ) -> ErrorCode:
        """Create a topic as CreateTopics does; -1: what ``placed`` says, or the broker's default.

        :param placed: the replicas of each partition, the leader first; omitted: dealt out to the live brokers.
        """
        if partitions == -1:
            partitions = len(placed) or self.config.num_partitions
        if replication == -1:
            replication = len(placed[0]) if placed else self.config.default_replication_factor
        if not is_legal_topic(name):
            return ErrorCode.INVALID_TOPIC_EXCEPTION
        if name in self.topics:
            return ErrorCode.TOPIC_ALREADY_EXISTS
        if partitions <= 0:
            return ErrorCode.INVALID_PARTITIONS
        if placed and not self.can_place(placed, partitions, replication):
            return ErrorCode.INVALID_REPLICA_ASSIGNMENT
        if not self.can_replicate(replication):
            return ErrorCode.INVALID_REPLICATION_FACTOR
        if not validate_only:
            topic_id = (self.count("topic") + 1).to_bytes(16, "big")
            topic = self.topics[name] = self._topics_by_id[topic_id] = Topic(name, topic_id, dict(config or {}))
            self.add_partitions(topic, partitions, replication, placed)
        return ErrorCode.NONE

    def can_replicate(self, replication: int) -> bool:
        """Whether so many brokers can take replicas."""
        return 0 < replication <= sum(broker.serves for broker in self.brokers.values())

    def can_place(self, placed: Sequence[Sequence[int]], partitions: int, replication: int) -> bool:
        """Whether an assignment names ``replication`` different brokers for each of so many partitions."""
        return len(placed) == partitions and all(
            0 < len(replicas) == len(set(replicas)) == replication and self.brokers.keys() >= set(replicas)
            for replicas in placed
        )

    def add_partitions(self, topic: Topic, count: int, replication: int, placed: Sequence[Sequence[int]] = ()) -> None:
        """Add ``count`` partitions to a topic, on the replicas of ``placed``, else dealt out to the live brokers."""
        for number in range(count):
            index = len(topic.partitions)
            replicas = list(placed[number]) if number < len(placed) else self._deal(index, replication)
            log = PartitionLog(
                topic.config,
                self.config.producer_id_expiration_ms,
                self.config.producer_id_expiration_check_interval_ms,
            )
            min_isr = int(topic.config.get("min.insync.replicas", self.config.min_insync_replicas))
            topic.partitions.append(Partition(index, log, replicas, replicas[0], min_isr=min_isr))

    def delete_topic(self, name: str) -> ErrorCode:
        """Delete a topic with its records and the offsets that groups committed for it."""
        topic = self.topics.pop(name, None)
        if topic is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        del self._topics_by_id[topic.topic_id]
        for group in self.groups.values():
            group.forget_topic(name)
        self.notify()
        return ErrorCode.NONE

    def topic_by_id(self, topic_id: bytes) -> Topic | None:
        return self._topics_by_id.get(topic_id)

    def coordinator_of(self, key: str) -> Broker | None:
        """Return the broker that coordinates a group or transactional id; None when all are down."""
        nodes = list(self.brokers.values())
        first = (
            list(self.brokers).index(self.moved[key]) if key in self.moved else zlib.crc32(key.encode()) % len(nodes)
        )
        return next((node for node in nodes[first:] + nodes[:first] if node.alive), None)

    def next_producer_id(self, broker_id: int) -> int | None:
        """Return a producer id never given before; each broker hands them out from blocks of a thousand.

        :returns: None when a new block is due and there is no controller to ask.
        """
        used = self._counters.get(f"producer ids of {broker_id}", 0)
        if used % _PRODUCER_ID_BLOCK == 0:
            if not self.controller_alive:
                return None
            self._counters[f"block of {broker_id}"] = self.count("blocks") * _PRODUCER_ID_BLOCK
        self.count(f"producer ids of {broker_id}")
        return self._counters[f"block of {broker_id}"] + used % _PRODUCER_ID_BLOCK

    def notify(self) -> None:
        """Wake the requests that wait: something was appended, moved or deleted."""
        self._changed.set()
        self._changed = trio.Event()

    async def wait_for_change(self) -> None:
        """Sleep until the next ``notify``."""
        await self._changed.wait()

    def _deal(self, index: int, replication: int) -> list[int]:
        """Choose the replicas of a partition among the live brokers, in turn."""
        alive = [broker.node_id for broker in self.brokers.values() if broker.serves]
        return [alive[(index + n) % len(alive)] for n in range(min(replication, len(alive)))]
