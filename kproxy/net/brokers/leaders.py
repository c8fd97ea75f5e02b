"""Questions to the leaders of partitions: one request carries all of a leader; those that moved are asked again."""

from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

import trio

from kproxy.codec.error_codes import DOUBTFUL, NO_TOPIC, is_retriable
from kproxy.codec.messages import ErrorCode, Message
from kproxy.codec.topic_partition import TopicPartition
from kproxy.codec.version_choice import NoCommonVersion, VersionRange
from kproxy.config.retry_options import RetryOptions
from kproxy.errors import RemoteProtocolError
from kproxy.net.brokers.backoff import Backoff
from kproxy.net.brokers.broker_client import BrokerClient
from kproxy.net.brokers.cluster import Cluster
from kproxy.proxy.routing import Address

T = TypeVar("T")

#: A broker that just started may not know a topic yet; after so many responses it is believed. For some seconds it is
#: believed at once then: a client that moves on when its time-out ends would never get its response.
_PATIENCE: Final = 10
_BELIEVED_SECONDS: Final = 30.0
#: Partitions that are remembered not to exist; clients may name any.
_MOST_MISSING: Final = 10_000
#: Told of places whose leader could not be asked in time; brokers' own REQUEST_TIMED_OUT is asked again.
_NOBODY: Final = ErrorCode.REQUEST_TIMED_OUT


@dataclass(frozen=True, slots=True)
class LeaderQuestion(Generic[T]):
    """A request for many partitions, and how to read its response."""

    request: Callable[[Sequence[TopicPartition]], Message]
    #: (partition, error code, what was asked for) for each partition in the response.
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
    """A leader's answer about a partition; ``value`` is None if it does not serve the request (UNSUPPORTED_VERSION)."""

    error_code: int
    value: T | None
    #: The leader.
    by: Address | None = None

    def get(self, place: TopicPartition, what: str) -> T:
        """The value that was asked for; LogError if there was an error, OSError if no leader answered in time."""
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

    DescribeProducers and Fetch are answered by any replica: what must be the leader's word is compared with a
    ListOffsets that it answered.
    """

    def __init__(self, cluster: Cluster, config: RetryOptions, most: int = 1 << 30) -> None:
        """``most``: connections to one broker. ``ask`` has ``recovery_concurrency`` requests in flight at most."""
        self._cluster = cluster
        self._config = config
        self._limiter = trio.CapacityLimiter(config.recovery_concurrency)
        self._metadata = cluster.metadata
        self._pool = cluster.new_pool(most=most)
        #: Partitions that do not exist, and until when that is believed.
        self._missing: dict[TopicPartition, float] = {}

    @asynccontextmanager
    async def to(self, place: TopicPartition) -> AsyncIterator[BrokerClient]:
        """A connection to the leader of a partition, for one request.

        NoLeader, OSError, RemoteProtocolError if there is none. If one of these leaves the block, the leader is learnt
        again the next time.
        """
        try:
            broker = await self._metadata.find(place)
            async with self._pool.to(broker.address) as client:
                yield client
        except (OSError, RemoteProtocolError):
            self._metadata.forget(place)
            raise

    async def once(self, place: TopicPartition, question: LeaderQuestion[T]) -> Told[T]:
        """The leader's response for one partition, asked for once. As of ``to``."""
        async with self.to(place) as client:
            request = question.request([place])
            answer = await client.call(request, question.answer, question.versions, extra_ms=question.extra_ms)
        for _, error, value in question.answers(answer):
            if error:
                self._metadata.forget(place)
            return Told(error, value)
        raise RemoteProtocolError(f"the answer lacks {place[0]}-{place[1]}")

    async def values(
        self, places: Collection[TopicPartition], question: LeaderQuestion[T], what: str
    ) -> dict[TopicPartition, T]:
        """The value of each place. LogError if a leader has none; OSError if one can't be asked in time.

        ``what`` is asked for.
        """
        told = await self.ask(places, question)
        return {place: told[place].get(place, what) for place in places}

    async def ask(self, places: Iterable[TopicPartition], question: LeaderQuestion[T]) -> dict[TopicPartition, Told[T]]:
        """The responses for all places, errors included that another attempt would not help; asked for in this order.

        A place whose leader can't be asked within ``delivery_timeout_ms`` raises OSError from ``Told.get``.
        """
        waiting = dict.fromkeys(places)
        told: dict[TopicPartition, Told[T]] = {}
        with trio.move_on_after(self._config.delivery_timeout_ms / 1000):
            await self._ask_until_answered(waiting, question, told)
        told.update(dict.fromkeys(waiting, Told(_NOBODY, None)))
        return told

    async def _ask_until_answered(
        self, waiting: dict[TopicPartition, None], question: LeaderQuestion[T], told: dict[TopicPartition, Told[T]]
    ) -> None:
        backoff = Backoff(self._config)
        now = trio.current_time()
        doubtful = {place: _PATIENCE for place in waiting if self._missing.get(place, now) > now}
        while True:
            found: dict[TopicPartition, Told[T]] = {}
            groups = await self._by_leader(list(waiting), found)
            async with trio.open_nursery() as nursery:
                for address, group in groups.items():
                    nursery.start_soon(self._ask_leader, address, group, question, found)
            for place, answer in found.items():
                error = answer.error_code
                doubtful[place] = doubtful.get(place, 0) + 1 if error in DOUBTFUL else 0
                again = error in DOUBTFUL or is_retriable(error, unknown=False)
                if place in waiting and (not again or doubtful[place] >= _PATIENCE):
                    told[place] = answer
                    del waiting[place]
                    self._note_missing(place, error)
                if error:
                    self._metadata.forget(place)
            if not waiting:
                return
            for place in waiting:
                self._metadata.forget(place)
            await backoff.pause()

    def _note_missing(self, place: TopicPartition, error: int) -> None:
        if error not in NO_TOPIC:
            self._missing.pop(place, None)
            return
        if len(self._missing) >= _MOST_MISSING:
            self._missing.clear()
        self._missing[place] = trio.current_time() + _BELIEVED_SECONDS

    async def _by_leader(
        self, places: Sequence[TopicPartition], found: dict[TopicPartition, Told[T]]
    ) -> dict[Address, list[TopicPartition]]:
        """The places by leader; ``found`` says why others have none."""
        unknown = [place for place in places if self._metadata.leader(place) is None]
        if unknown:
            with suppress(OSError, RemoteProtocolError):
                errors = await self._metadata.learn(unknown)
                found.update((place, Told(error, None)) for place, error in errors.items())
        groups: dict[Address, list[TopicPartition]] = {}
        for place in places:
            leader = self._metadata.leader(place)
            if leader is not None:
                groups.setdefault(leader.address, []).append(place)
        return groups

    async def _ask_leader(
        self,
        address: Address,
        places: Sequence[TopicPartition],
        question: LeaderQuestion[T],
        found: dict[TopicPartition, Told[T]],
    ) -> None:
        async with self._limiter:
            try:
                found.update(await self._exchange(address, places, question))
            except (OSError, RemoteProtocolError):
                self._cluster.count_error("broker_log")

    async def _exchange(
        self, address: Address, places: Sequence[TopicPartition], question: LeaderQuestion[T]
    ) -> dict[TopicPartition, Told[T]]:
        async with self._pool.to(address) as client:
            request = question.request(places)
            try:
                answer = await client.call(request, question.answer, question.versions, extra_ms=question.extra_ms)
            except NoCommonVersion:
                return {place: Told(ErrorCode.UNSUPPORTED_VERSION, None, address) for place in places}
            return {place: Told(error, value, address) for place, error, value in question.answers(answer)}

    def close(self) -> None:
        """Closes the connections that are idle, and each other one when its answer has come or nobody waits for it."""
        self._pool.close()
