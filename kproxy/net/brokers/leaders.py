"""Questions to the leaders of partitions: one request carries all of a leader; those that moved are asked again."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

import trio

from kproxy.codec._generated.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from kproxy.codec.messages import ErrorCode, Message
from kproxy.codec.topic_partition import TopicPartition
from kproxy.codec.version_choice import NoCommonVersion, VersionRange
from kproxy.config import Config
from kproxy.errors import RemoteProtocolError
from kproxy.net.brokers.cluster import Cluster
from kproxy.net.brokers.pool import Pool
from kproxy.proxy.routing import Address

"""A topic's name and a partition's index."""

T = TypeVar("T")

#: The newest Metadata that kproxy asks at: topics by name or id.
_METADATA: Final = 12
_FIRST_WITH_IDS: Final = 10
#: A broker that just started may not know a topic yet; after so many answers it is believed.
_PATIENCE: Final = 10
#: Told of places whose leader could not be asked in time; brokers' own REQUEST_TIMED_OUT is asked again.
_NOBODY: Final = ErrorCode.REQUEST_TIMED_OUT
#: Leaders that are remembered; about 20 MB.
_MOST_LEADERS: Final = 100_000
_DOUBTFUL: Final = frozenset(
    {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_SERVER_ERROR}
)


@dataclass(frozen=True, slots=True)
class Question(Generic[T]):
    """A request for many partitions, and how to read its answer."""

    request: Callable[[Sequence[TopicPartition]], Message]
    #: (partition, error code, what was asked for) for each partition in the answer.
    answers: Callable[[Message], Iterable[tuple[TopicPartition, int, T]]]
    answer: type[Message]
    versions: VersionRange
    #: How long the broker may take by itself.
    extra_ms: int = 0


class LogError(RemoteProtocolError):
    """A broker answered with an error that another attempt would not help."""

    def __init__(self, place: TopicPartition, error_code: int, what: str) -> None:
        """``what`` was asked for."""
        super().__init__(f"{what} for {place[0]}-{place[1]} failed with error {error_code}")
        self.error_code = error_code


@dataclass(frozen=True, slots=True)
class Told(Generic[T]):
    """A leader's word on a partition; ``value`` is None if it does not serve the request (UNSUPPORTED_VERSION)."""

    error_code: int
    value: T | None
    #: The leader.
    by: Address | None = None

    def get(self, place: TopicPartition, what: str) -> T:
        """What was asked for; LogError if there was an error, OSError if no leader answered in time."""
        self.reached(place)
        if self.error_code or self.value is None:
            raise LogError(place, self.error_code, what)
        return self.value

    def reached(self, place: TopicPartition) -> None:
        """OSError if no leader answered in time."""
        if self.error_code == _NOBODY:
            raise OSError(f"no leader answered for {place[0]}-{place[1]} in time")


class Leaders:
    """Asks leaders over connections of its own, so that long polls hold up nothing else.

    Who leads is remembered until that broker does not answer, or answers with an error. DescribeProducers and Fetch
    are answered by any replica: what must be the leader's word is compared with a ListOffsets that it answered.
    """

    def __init__(self, cluster: Cluster, config: Config) -> None:
        """At most ``recovery_concurrency`` requests are on their way at a time."""
        self._cluster = cluster
        self._config = config
        self._limiter = trio.CapacityLimiter(config.recovery_concurrency)
        self._connections = Pool(cluster.network, config)
        self._known: dict[TopicPartition, Address] = {}

    async def ask(self, places: Iterable[TopicPartition], question: Question[T]) -> dict[TopicPartition, Told[T]]:
        """The answers for all places, errors included that another attempt would not help; asked for in this order.

        A place whose leader can't be asked within ``delivery_timeout_ms`` raises OSError from ``Told.get``.
        """
        waiting = dict.fromkeys(places)
        told: dict[TopicPartition, Told[T]] = {}
        with trio.move_on_after(self._config.delivery_timeout_ms / 1000):
            await self._ask_until_told(waiting, question, told)
        told.update(dict.fromkeys(waiting, Told(_NOBODY, None)))
        return told

    async def _ask_until_told(
        self, waiting: dict[TopicPartition, None], question: Question[T], told: dict[TopicPartition, Told[T]]
    ) -> None:
        backoff_ms = self._config.retry_backoff_ms
        doubtful: dict[TopicPartition, int] = {}
        while True:
            found: dict[TopicPartition, Told[T]] = {}
            groups = await self._by_leader(list(waiting), found)
            async with trio.open_nursery() as nursery:
                for address, group in groups.items():
                    nursery.start_soon(self._ask_leader, address, group, question, found)
            for place, answer in found.items():
                error = answer.error_code
                doubtful[place] = doubtful.get(place, 0) + 1 if error in _DOUBTFUL else 0
                if place in waiting and (not _try_again(error) or doubtful[place] >= _PATIENCE):
                    told[place] = answer
                    del waiting[place]
                if error:
                    self._known.pop(place, None)
            if not waiting:
                return
            for place in waiting:
                self._known.pop(place, None)
            await trio.sleep(backoff_ms / 1000)
            backoff_ms = min(backoff_ms * 2, self._config.retry_backoff_max_ms)

    async def _by_leader(
        self, places: Sequence[TopicPartition], found: dict[TopicPartition, Told[T]]
    ) -> dict[Address, list[TopicPartition]]:
        unknown = [place for place in places if place not in self._known]
        leaders = {place: self._known[place] for place in places if place in self._known}
        if unknown:
            leaders |= await self._learn(unknown, found)
        groups: dict[Address, list[TopicPartition]] = {}
        for place in places:
            if place in leaders:
                groups.setdefault(leaders[place], []).append(place)
        return groups

    async def _learn(
        self, places: Sequence[TopicPartition], found: dict[TopicPartition, Told[T]]
    ) -> dict[TopicPartition, Address]:
        """The leaders of these, where there are any; ``found`` says which are not there at all."""
        names = dict.fromkeys(name for name, _ in places)
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=name) for name in names], allow_auto_topic_creation=False
        )
        try:
            response = await self.metadata(request)
        except (OSError, RemoteProtocolError):
            return {}
        brokers = {row.node_id: Address(row.host, row.port) for row in response.brokers}
        told: dict[TopicPartition, Address | None] = {}
        for topic in response.topics:
            for row in topic.partitions:
                told[topic.name or "", row.partition_index] = brokers.get(row.leader_id)
        leaders: dict[TopicPartition, Address] = {}
        for place in places:
            address = told.get(place)
            if address is not None:
                leaders[place] = address
            elif place not in told:
                found[place] = Told(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None)
        if len(self._known) + len(leaders) > _MOST_LEADERS:
            self._known.clear()
        self._known |= leaders
        return leaders

    async def metadata(self, request: MetadataRequest) -> MetadataResponse:
        """Any broker's answer. OSError, RemoteProtocolError if none gives one."""
        error: OSError | RemoteProtocolError = OSError("no broker is known")
        broker = self._cluster.any_broker()
        addresses = [broker.address] if broker is not None else []
        for address in dict.fromkeys([*addresses, *self._config.bootstrap_servers]):
            try:
                oldest = _FIRST_WITH_IDS if any(topic.name is None for topic in request.topics or ()) else 0
                return await self._cluster.call(address, request, MetadataResponse, (oldest, _METADATA))
            except (OSError, RemoteProtocolError) as failed:
                error = failed
        raise error

    async def _ask_leader(
        self,
        address: Address,
        places: Sequence[TopicPartition],
        question: Question[T],
        found: dict[TopicPartition, Told[T]],
    ) -> None:
        async with self._limiter:
            try:
                found.update(await self._exchange(address, places, question))
            except (OSError, RemoteProtocolError):
                self._cluster.count_error("broker_log")

    async def _exchange(
        self, address: Address, places: Sequence[TopicPartition], question: Question[T]
    ) -> dict[TopicPartition, Told[T]]:
        async with self._connections.to(address) as client:
            request = question.request(places)
            try:
                answer = await client.call(request, question.answer, question.versions, extra_ms=question.extra_ms)
            except NoCommonVersion:
                return {place: Told(ErrorCode.UNSUPPORTED_VERSION, None, address) for place in places}
            return {place: Told(error, value, address) for place, error, value in question.answers(answer)}

    def close(self) -> None:
        """Closes the connections that are idle, and each other one when its answer has come or nobody waits for it."""
        self._connections.close()


def _try_again(error_code: int) -> bool:
    try:
        return ErrorCode(error_code).retriable or error_code in _DOUBTFUL
    except ValueError:
        return False
