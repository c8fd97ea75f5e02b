"""What a handler of the fake broker is given and what it declares: the vocabulary between server and handlers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kproxy.codec.messages import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from kproxy.codec.messages import ApiKey, Message
    from kproxy.testing.fake_broker.fake_cluster import FakeCluster
    from kproxy.testing.fake_broker.partition import Partition, Topic

_ANY_EPOCH = -1


@dataclass(frozen=True, slots=True)
class Call:
    """One request that is being handled: which client sent it to which broker, in which version.

    :param served: the version ranges in ApiVersions.
    :param connection: number of the connection, counted from 1 over the whole cluster.
    """

    cluster: FakeCluster
    broker_id: int
    connection: int
    client_host: str
    client_id: str | None
    version: int
    request: Any
    served: Mapping[int, tuple[int, int]]

    @property
    def now(self) -> int:
        """The cluster's time in ms."""
        return self.cluster.clock()

    def leads(self, partition: Partition) -> bool:
        """Tell whether the broker that was asked leads ``partition`` and can serve it."""
        return partition.leader == self.broker_id and not self.cluster.brokers[self.broker_id].failed

    def is_offline(self, partition: Partition) -> bool:
        """Tell whether the broker that was asked has ``partition`` in a log directory that failed."""
        return self.cluster.brokers[self.broker_id].failed and self.broker_id in partition.replicas

    def not_leader(self, partition: Partition) -> ErrorCode:
        """Return the error of a broker that does not lead ``partition``."""
        offline = self.is_offline(partition)
        return ErrorCode.KAFKA_STORAGE_ERROR if offline else ErrorCode.NOT_LEADER_OR_FOLLOWER

    def check_leader(self, partition: Partition, current_epoch: int) -> ErrorCode:
        """Return the error for a reader that believes in leader epoch ``current_epoch`` (KIP-320; -1: does not say)."""
        if self.is_offline(partition):
            return ErrorCode.KAFKA_STORAGE_ERROR
        if current_epoch != _ANY_EPOCH and current_epoch < partition.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if current_epoch > partition.leader_epoch:
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        return ErrorCode.NONE if self.leads(partition) else ErrorCode.NOT_LEADER_OR_FOLLOWER

    def find(self, name: str, index: int) -> tuple[Topic, Partition] | None:
        """Return a topic's partition, or None when there is no such thing."""
        topic = self.cluster.topics.get(name)
        if topic is None or not 0 <= index < len(topic.partitions):
            return None
        return topic, topic.partitions[index]


@dataclass(frozen=True, slots=True)
class Api:
    """One API key that the fake broker serves.

    :param versions: smallest and largest version that is served; for any other the connection is closed.
    :param advertised_from: smallest version in ApiVersions, where it differs (Produce says 0 and closes on 0-2).
    :param handle: gets the call; returns the response, or None when there is to be none (acks=0).
    """

    key: ApiKey
    versions: tuple[int, int]
    handle: Callable[[Call], Awaitable[Message | None]]
    advertised_from: int | None = None

    @property
    def advertised(self) -> tuple[int, int]:
        """The version range that ApiVersions tells."""
        low = self.versions[0] if self.advertised_from is None else self.advertised_from
        return low, self.versions[1]


def api(
    key: ApiKey, versions: tuple[int, int], advertised_from: int | None = None
) -> Callable[[Callable[[Call], Awaitable[Message | None]]], Api]:
    """Make an ``Api`` of the function that handles it."""
    return lambda handle: Api(key, versions, handle, advertised_from)


class CloseConnection(Exception):
    """Raised by a handler whose only answer is to hang up, as a real broker does on a failed acks=0 send."""
