"""The leaders of partitions and the names of topics: asked of any broker, and remembered for all of kproxy."""

from collections.abc import Collection, Iterable
from typing import Final, Protocol

from kproxy.codec._generated.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponsePartition,
)
from kproxy.codec.messages import ErrorCode, Message
from kproxy.codec.produce_layout import TopicRef
from kproxy.codec.topic_partition import TopicPartition
from kproxy.codec.version_choice import VersionRange
from kproxy.net.brokers.broker_client import M
from kproxy.proxy.routing import Address, Broker, ClusterMap

#: The first version that can say that no topic is to be made; the first with ids.
_BY_NAME: Final = 4
_BY_ID: Final = 10
_NEWEST: Final = 12
#: Leaders that are remembered; about 20 MB.
_MOST_LEADERS: Final = 100_000


class NoLeader(OSError):
    """Metadata names no leader; ``error_code`` says why."""

    def __init__(self, place: TopicPartition, error_code: int) -> None:
        """The partition and Kafka's error."""
        super().__init__(f"{place[0]}-{place[1]} has no leader (error {error_code})")
        self.error_code = error_code


class AnyBroker(Protocol):
    """The brokers that are asked."""

    map: ClusterMap

    async def ask_any(self, request: Message, answer: type[M], versions: VersionRange) -> M:
        """Any broker's response. OSError, RemoteProtocolError."""

    async def learn(self, brokers: Iterable[tuple[int, Address]]) -> None:
        """Records brokers by node id."""


class Metadata:
    """A leader is remembered until a request to it fails; ``forget`` then has it learnt again."""

    def __init__(self, brokers: AnyBroker) -> None:
        """Nothing is known yet."""
        self._brokers = brokers
        self._leaders: dict[TopicPartition, Broker] = {}
        #: Of topics whose leaders were learnt, by name.
        self._ids: dict[str, bytes] = {}

    def leader(self, place: TopicPartition) -> Broker | None:
        """The leader of a partition, as far as it is known."""
        return self._leaders.get(place)

    def forget(self, place: TopicPartition) -> None:
        """Has the leader of a partition learnt again."""
        self._leaders.pop(place, None)

    def topic_id(self, name: str) -> bytes | None:
        """The id of a topic (KIP-516), as brokers said when the leader of one of its partitions was last learnt.

        None where that is unknown, or brokers have no ids.
        """
        return self._ids.get(name)

    async def find(self, place: TopicPartition) -> Broker:
        """The leader of a partition, learnt if it is not known. NoLeader, OSError, RemoteProtocolError."""
        if place not in self._leaders:
            for error in (await self.learn([place])).values():
                raise NoLeader(place, error)
        return self._leaders[place]

    async def learn(self, places: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Asks who leads these; Kafka's error code for each that nobody leads. OSError, RemoteProtocolError."""
        names = dict.fromkeys(name for name, _ in places)
        response = await self.topics(MetadataRequestTopic(name=name) for name in names)
        if len(self._leaders) + len(places) > _MOST_LEADERS:
            self._leaders.clear()
            self._ids.clear()
        self._ids.update({topic.name or "": topic.topic_id for topic in response.topics if any(topic.topic_id)})
        alive = {row.node_id for row in response.brokers}
        topic_errors = {topic.name: topic.error_code for topic in response.topics}
        rows = {(topic.name, row.partition_index): row for topic in response.topics for row in topic.partitions}
        errors: dict[TopicPartition, int] = {}
        for place in places:
            leader, error = self._leader(rows.get(place), alive, topic_errors.get(place[0], 0))
            if leader is None:
                errors[place] = error
            else:
                self._leaders[place] = leader
        return errors

    async def leader_now(self, topic: TopicRef, partition: int, by_id: bool) -> tuple[Broker | None, int]:
        """The leader of a partition as brokers say now, or None and the error. OSError, RemoteProtocolError."""
        if by_id:
            asked = MetadataRequestTopic(topic_id=topic, name=None)
        else:
            asked = MetadataRequestTopic(name=topic.decode("utf-8", "replace"))
        response = await self.topics([asked])
        alive = {row.node_id for row in response.brokers}
        found = next(iter(response.topics), None)
        rows = found.partitions if found is not None else ()
        place = next((row for row in rows if row.partition_index == partition), None)
        return self._leader(place, alive, found.error_code if found is not None else 0)

    def known_names(self, ids: Iterable[bytes]) -> dict[bytes, str] | None:
        """The same as ``names``, if all are known."""
        known = self._brokers.map.topic_names
        wanted = dict.fromkeys(ids)
        return {topic_id: known[topic_id] for topic_id in wanted} if known.keys() >= wanted.keys() else None

    async def names(self, ids: Iterable[bytes]) -> dict[bytes, str]:
        """The names of those topics that there are, by id (KIP-516). OSError, RemoteProtocolError: no broker tells."""
        known = self._brokers.map.topic_names
        wanted = dict.fromkeys(ids)
        unknown = [MetadataRequestTopic(topic_id=topic_id, name=None) for topic_id in wanted if topic_id not in known]
        found = {topic_id: known[topic_id] for topic_id in wanted if topic_id in known}
        if unknown:
            for topic in (await self.topics(unknown)).topics:
                if topic.name and not topic.error_code:
                    found[topic.topic_id] = topic.name
                    self._brokers.map.learn_name(topic.topic_id, topic.name)
        return found

    async def ids(self, names: Iterable[str]) -> dict[str, bytes]:
        """The ids of those topics that there are, by name. OSError, RemoteProtocolError."""
        response = await self.topics([MetadataRequestTopic(name=name) for name in names], _BY_ID)
        return {topic.name or "": topic.topic_id for topic in response.topics if not topic.error_code}

    async def topics(self, topics: Iterable[MetadataRequestTopic], oldest: int = _BY_NAME) -> MetadataResponse:
        """Any broker's response; no topic is made, and the brokers that it names are known then."""
        request = MetadataRequest(topics=list(topics), allow_auto_topic_creation=False)
        if any(topic.name is None for topic in request.topics or ()):
            oldest = _BY_ID
        response = await self._brokers.ask_any(request, MetadataResponse, (oldest, _NEWEST))
        await self._brokers.learn([(row.node_id, Address(row.host, row.port)) for row in response.brokers])
        return response

    def _leader(
        self, row: MetadataResponsePartition | None, alive: Collection[int], topic_error: int
    ) -> tuple[Broker | None, int]:
        """The leader in a partition's row of a Metadata response, or None and the error; ``alive``: its node ids."""
        if row is None:
            return None, topic_error or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        leader = self._brokers.map.brokers.get(row.leader_id) if row.leader_id in alive else None
        return leader, ErrorCode.NONE if leader else row.error_code or ErrorCode.LEADER_NOT_AVAILABLE
