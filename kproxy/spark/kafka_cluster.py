"""A cluster as Spark's processes see it: topics, leaders, offsets; asked again until it answers or patience ends."""

import time
from collections.abc import Callable, Collection, Mapping
from typing import Final, NamedTuple, Self, TypeVar

from kproxy.codec._generated.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from kproxy.codec._generated.list_offsets import (
    ListOffsetsRequest,
    ListOffsetsRequestListOffsetsPartition,
    ListOffsetsRequestListOffsetsTopic,
    ListOffsetsResponse,
)
from kproxy.codec._generated.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from kproxy.codec._generated.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from kproxy.codec.error_codes import error_name
from kproxy.codec.messages import ErrorCode, Message
from kproxy.proxy.routing import Address
from kproxy.spark.broker_connection import Connection, Protection
from kproxy.spark.security_options import PLAIN_TEXT, Security
from kproxy.spark.spark_errors import KafkaError, LoginFailed

EARLIEST: Final = -2
LATEST: Final = -1
#: How the brokers' and kproxy's own topics begin: no pattern matches them, as in Spark's own connector.
INTERNAL_TOPICS: Final = (
    "__kproxy_",
    "__consumer_offsets",
    "__transaction_state",
    "__share_group_state",
    "__cluster_metadata",
)

_MessageT = TypeVar("_MessageT", bound=Message)
_ResultT = TypeVar("_ResultT")
_FIRST_PAUSE_S: Final = 0.05
_LONGEST_PAUSE_S: Final = 1.0
_CONNECT_S: Final = 5.0
_LEAST_CONNECT_S: Final = 1.0
#: What passes by itself: a leader that moves, a coordinator that loads, a topic that is new.
PASSING: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
    }
)


class TopicPartition(NamedTuple):
    """One partition of a topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class Passing(KafkaError):
    """Something that may be over when it is tried again."""


class KafkaCluster:
    """Connections to a cluster, opened when first needed; close it, or use it as a context manager. One thread's."""

    def __init__(
        self,
        bootstrap: Collection[Address],
        *,
        client_id: str,
        request_timeout_s: float,
        patience_s: float,
        security: Security = PLAIN_TEXT,
        first_patience_s: float | None = None,
    ) -> None:
        """``request_timeout_s`` bounds each wait for a response, ``patience_s`` how long one thing is tried again.

        ``first_patience_s`` bounds it as long as nobody has answered yet: then the address is more likely wrong.
        """
        self._protection = Protection(security)
        self._first_patience_s = patience_s if first_patience_s is None else min(first_patience_s, patience_s)
        self._reached = False
        self._deadline = float("inf")
        self._bootstrap = tuple(bootstrap)
        self._client_id = client_id
        self._request_timeout_s = request_timeout_s
        self._patience_s = patience_s
        self._brokers: dict[int, Address] = {}
        self._leaders: dict[TopicPartition, int] = {}
        self._connections: dict[Address, Connection] = {}
        self._cluster_id: str | None = None

    # -- what there is

    @property
    def cluster_id(self) -> str | None:
        """The id that the cluster has given with the topics; None before they were asked for, or if it has none."""
        return self._cluster_id

    def topics(self) -> dict[str, int]:
        """All topics, and how many partitions each has. Raises KafkaError."""
        return self._topics(None)

    def partitions(self, topics: Collection[str], *, create: bool = False) -> dict[str, int]:
        """How many partitions each of these topics has; one that does not exist is not in it. Raises KafkaError.

        ``create``: the broker may create those that do not exist, and they are there soon after.
        """
        return self._topics(sorted(topics), create=create) if topics else {}

    def offsets(
        self, wanted: Mapping[TopicPartition, int], *, committed: bool = False
    ) -> dict[TopicPartition, int | None]:
        """Offsets by time in ms, or ``EARLIEST`` or ``LATEST``; None where no record is that young.

        ``committed``: the latest is the last stable offset, not the high watermark. Raises KafkaError.
        """
        found: dict[TopicPartition, int | None] = {}

        def ask() -> None:
            left = {each: when for each, when in wanted.items() if each not in found}
            problem: Passing | None = None
            for leader, theirs in self._by_leader(left).items():
                try:
                    self._list_offsets(leader, theirs, committed=committed, found=found)
                except Passing as error:
                    problem = error
            if problem is not None:
                raise problem

        self.insist(ask)
        return found

    def group_offsets(self, group: str) -> dict[TopicPartition, int]:
        """What a consumer group has committed; empty if nothing is known of it. Raises KafkaError."""
        return self.insist(lambda: self._group_offsets(group))

    # -- towards brokers

    def leader(self, partition: TopicPartition, *, renew: bool = True) -> Connection:
        """A connection to the leader, as far as is known. Raises Passing if there is none now, or KafkaError.

        ``renew``: one whose login ends soon is closed, and another one opened.
        """
        (leader,) = self._by_leader({partition: 0}, renew=renew)
        return leader

    def has_leader(self, partition: TopicPartition) -> bool:
        """Whether the leader is known, so that ``leader`` asks nobody."""
        return partition in self._leaders

    def insist(self, action: Callable[[], _ResultT]) -> _ResultT:
        """What ``action`` returns; tried again while it raises Passing, until patience ends. Raises KafkaError."""
        began = time.monotonic()
        pause = _FIRST_PAUSE_S
        while True:
            patience = self._patience_s if self._reached else self._first_patience_s
            self._deadline = began + patience
            try:
                return action()
            except Passing as error:
                if time.monotonic() + pause > self._deadline:
                    raise KafkaError(f"{error} (tried for {patience:g} s)") from error
                self._leaders.clear()
                time.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE_S)

    def ask(
        self, connection: Connection, request: Message, versions: tuple[int, int], answer: type[_MessageT]
    ) -> _MessageT:
        """One request and its response, in the newest version of the range. Raises Passing if the connection fails."""
        version = connection.version(type(request), *versions)
        try:
            return connection.call(request, version, answer)
        except KafkaError as error:
            self.drop(connection)
            raise Passing(str(error)) from error

    def drop(self, connection: Connection) -> None:
        """Closes a connection; the next one is a new one."""
        connection.close()
        self._connections.pop(connection.address, None)
        self._leaders.clear()

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _connect(self, address: Address, *, renew: bool = True) -> Connection:
        known = self._connections.get(address)
        if known is not None and known.is_old and renew:
            self._connections.pop(address).close()
            known = None
        if known is None:
            try:
                known = Connection(
                    address,
                    client_id=self._client_id,
                    timeout_s=self._request_timeout_s,
                    protection=self._protection,
                    connect_s=max(_LEAST_CONNECT_S, min(_CONNECT_S, self._deadline - time.monotonic())),
                )
            except LoginFailed:
                raise
            except KafkaError as error:
                self._leaders.clear()
                raise Passing(str(error)) from error
            self._connections[address] = known
            self._reached = True
        return known

    def _any(self) -> Connection:
        """A connection to the first bootstrap address that can be reached."""
        problems = []
        for address in self._bootstrap:
            try:
                return self._connect(address)
            except Passing as error:
                problems.append(str(error))
        raise Passing("; ".join(problems))

    # -- metadata

    def _topics(self, names: Collection[str] | None, *, create: bool = False) -> dict[str, int]:
        response = self.insist(lambda: self._metadata(names, create=create))
        found: dict[str, int] = {}
        for row in response.topics:
            if row.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                continue
            if row.error_code:
                raise KafkaError(f"topic {row.name!r}: {refusal(row.error_code)}")
            found[row.name or ""] = len(row.partitions)
        return found

    def _metadata(self, names: Collection[str] | None, *, create: bool = False) -> MetadataResponse:
        asked = None if names is None else [MetadataRequestTopic(name=name) for name in names]
        request = MetadataRequest(topics=asked, allow_auto_topic_creation=create)
        response = self.ask(self._any(), request, (4, 9), MetadataResponse)
        self._cluster_id = response.cluster_id
        self._brokers.update((row.node_id, Address(row.host, row.port)) for row in response.brokers)
        for topic in response.topics:
            if topic.error_code in PASSING and topic.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise Passing(f"topic {topic.name!r}: {error_name(topic.error_code)}")
            for part in topic.partitions:
                if part.leader_id >= 0:
                    self._leaders[TopicPartition(topic.name or "", part.partition_index)] = part.leader_id
        return response

    def _by_leader(
        self, wanted: Mapping[TopicPartition, int], *, renew: bool = True
    ) -> dict[Connection, dict[TopicPartition, int]]:
        if any(each not in self._leaders for each in wanted):
            self._metadata(sorted({each.topic for each in wanted}))
        found: dict[Connection, dict[TopicPartition, int]] = {}
        for each, value in wanted.items():
            leader = self._brokers.get(self._leaders.get(each, -1))
            if leader is None:
                raise Passing(f"{each} does not exist, or has no leader")
            found.setdefault(self._connect(leader, renew=renew), {})[each] = value
        return found

    def _list_offsets(
        self,
        leader: Connection,
        wanted: Mapping[TopicPartition, int],
        *,
        committed: bool,
        found: dict[TopicPartition, int | None],
    ) -> None:
        topics: dict[str, ListOffsetsRequestListOffsetsTopic] = {}
        for each, when in wanted.items():
            row = ListOffsetsRequestListOffsetsPartition(partition_index=each.partition, timestamp=when)
            topics.setdefault(each.topic, ListOffsetsRequestListOffsetsTopic(name=each.topic)).partitions.append(row)
        request = ListOffsetsRequest(replica_id=-1, isolation_level=int(committed), topics=list(topics.values()))
        response = self.ask(leader, request, (2, 6), ListOffsetsResponse)
        problem = None
        for topic in response.topics:
            for part in topic.partitions:
                each = TopicPartition(topic.name, part.partition_index)
                if part.error_code == 0:
                    found[each] = part.offset if part.offset >= 0 else None
                    continue
                problem = f"{leader.address} cannot read the offsets of {each}: {refusal(part.error_code)}"
                if part.error_code not in PASSING:
                    raise KafkaError(problem)
        if problem is not None:
            raise Passing(problem)

    # -- groups

    def _group_offsets(self, group: str) -> dict[TopicPartition, int]:
        row = self.ask(self._any(), FindCoordinatorRequest(key=group), (1, 3), FindCoordinatorResponse)
        _check(row.error_code, f"no coordinator of group {group!r}")
        coordinator = self._connect(Address(row.host, row.port))
        request = OffsetFetchRequest(group_id=group, topics=None)
        response = self.ask(coordinator, request, (2, 7), OffsetFetchResponse)
        _check(response.error_code, f"{coordinator.address} cannot read the offsets of group {group!r}")
        found = {}
        for topic in response.topics:
            for part in topic.partitions:
                _check(part.error_code, f"offset of group {group!r} for {topic.name}-{part.partition_index}")
                if part.committed_offset >= 0:
                    found[TopicPartition(topic.name, part.partition_index)] = part.committed_offset
        return found


def refusal(code: int) -> str:
    """The name of an error about a topic, and what to do about it if it is a missing right."""
    right = ": give this query's principal Describe, and Read or Write, on the topic"
    return error_name(code) + (right if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED else "")


def _check(code: int, what: str) -> None:
    if code:
        raise (Passing if code in PASSING else KafkaError)(f"{what}: {error_name(code)}")
