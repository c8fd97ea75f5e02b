"""The end of a partition that kproxy's log names before a transaction writes there.

No data of the transaction lie below that offset. All that kproxy's own transactions write passes here first, for every
kind of client (KIP-98's, the control API's, members, applications): so here partitions are refused that may not be
written.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from kproxy.codec.messages import ErrorCode
from kproxy.codec.topic_partition import TopicPartition
from kproxy.errors import RemoteProtocolError
from kproxy.txn.procedures.outside import HighWatermarks, Time, Topics
from kproxy.txn.txn_error import TxnError
from kproxy.txn.writes import PartitionWrites

#: Partitions whose ends are remembered, so that the next transaction need not ask for them.
_MOST_ENDS: Final = 10_000
#: The wait for the ends of partitions that are not written yet; without a response they are announced when they are.
_AHEAD_SECONDS: Final = 1.0


class PartitionEnds:
    """The ends of the partitions that one transactional id writes."""

    def __init__(self, ask: HighWatermarks, topics: Topics, time: Time) -> None:
        """``ask`` gives the ends of partitions, from their leaders."""
        self._ask = ask
        self._topics = topics
        self._topic_id = topics.topic_id
        self._time = time
        #: The topics whose ends are remembered, by name.
        self._ids: dict[str, bytes | None] = {}
        self._ends: dict[TopicPartition, int] = {}
        #: Partitions that the last transaction wrote: the next one announces them at once, in one record.
        self._usual: set[TopicPartition] = set()

    async def of(self, places: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """An offset that the end of each partition has reached.

        TxnError if one may not be written (POLICY_VIOLATION: its topic is compacted), or is unavailable.
        """
        for (topic, index), error in (await self._topics.errors(places)).items():
            raise TxnError(error, f"{topic}-{index} can't be written in a transaction that kproxy decides")
        missing = self._missing(places)
        if missing:
            try:
                self._ends.update(await self._ask(missing))
                self._ids.update({topic: self._topic_id(topic) for topic, _ in missing})
            except (OSError, RemoteProtocolError) as error:
                raise TxnError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"ends of partitions: {error}") from error
        return {place: self._ends[place] for place in places}

    async def with_likely(
        self, written: Sequence[TopicPartition], added: Sequence[TopicPartition], announced: Collection[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """The ends of partitions that are to be written, and of others that probably will be. TxnError.

        Only ``written`` can fail the request. Partitions that the client has ``added`` are left out if their leaders
        do not answer soon, and those of the last transaction that are not ``announced`` unless their ends are known;
        both unless it is known that they may be written.
        """
        usual = [place for place in self._usual if place not in announced]
        added, usual = ([one for one in more if self._topics.is_known_writable(one)] for more in (added, usual))
        self._forget_recreated(usual)
        wanted: Sequence[TopicPartition] = list(dict.fromkeys([*written, *added]))
        if len(wanted) > len(written) and self._missing(wanted):
            wanted = await self._ahead(wanted) or written
        ends = await self.of(wanted)
        return {**ends, **{place: self._ends[place] for place in usual if place in self._ends}}

    async def _ahead(self, places: Sequence[TopicPartition]) -> Sequence[TopicPartition]:
        """The partitions if the ends of all of them are known after a short time; else none."""
        with self._time.scope(_AHEAD_SECONDS):
            try:
                await self.of(places)
            except TxnError:
                return ()
            return places
        return ()

    def _missing(self, places: Sequence[TopicPartition]) -> Sequence[TopicPartition]:
        self._forget_recreated(places)
        missing = [place for place in places if place not in self._ends]
        if missing and len(self._ends) + len(missing) > _MOST_ENDS:
            self._ends.clear()
            self._ids.clear()
            return places
        return missing

    def note(
        self, written: Mapping[TopicPartition, PartitionWrites], former: Iterable[Iterable[TopicPartition]] = ()
    ) -> None:
        """Records the ends of committed data, and where other instances have written of the same transaction."""
        self._usual = {*written, *(place for places in former for place in places)}
        self._ends.update({place: done.end_offset for place, done in written.items()})
        for topic, _ in written:
            self._ids.setdefault(topic, self._topic_id(topic))

    def recreated(self, written: Mapping[TopicPartition, PartitionWrites]) -> str | None:
        """A topic that was deleted and recreated after its end was asked for, so that a wrong offset was announced.

        For brokers that have no ids of topics: data lie below the announced offset, however far the topic has grown.
        """
        for place, done in written.items():
            if 0 <= done.first_offset < self._ends.get(place, 0):
                self._forget(place[0])
                return place[0]
        return None

    def _forget_recreated(self, places: Iterable[TopicPartition]) -> None:
        """Drops the ends of topics that have other ids by now."""
        for topic in {topic for topic, _ in places}:
            if topic in self._ids and self._topic_id(topic) != self._ids[topic]:
                self._forget(topic)

    def _forget(self, topic: str) -> None:
        self._ids.pop(topic, None)
        self._ends = {place: end for place, end in self._ends.items() if place[0] != topic}
