"""Asks for last stable offsets again and again, as lag monitors do."""

from collections import defaultdict
from collections.abc import Mapping
from typing import Final

import trio

from kproxy.codec._generated.list_offsets import (
    ListOffsetsRequest,
    ListOffsetsRequestListOffsetsPartition,
    ListOffsetsRequestListOffsetsTopic,
    ListOffsetsResponse,
)
from kproxy.codec.topic_partition import TopicPartition
from verification.chaos.link import Address, Link, LinkLost, find_leaders
from verification.chaos.recorder import Recorder, now
from verification.history import Commit, Kind, Operation, Outcome

_VERSION: Final = 5
_PATIENCE_S: Final = 8.0
_EVERY_S: Final = 0.5
_LATEST: Final = -1


class StableOffsets:
    """Records the responses about these topics at ``bootstrap``, until it is cancelled."""

    def __init__(self, name: str, topics: Mapping[str, int], bootstrap: Address, recorder: Recorder) -> None:
        """``topics``: the number of partitions of each."""
        self._name = name
        self._topics = topics
        self._bootstrap = bootstrap
        self._recorder = recorder

    async def run(self) -> None:
        """Ask; what can't be asked now is asked the next time."""
        while True:
            invoke = now()
            found = await self.ask(committed=True)
            commits = tuple(Commit(*place, offset) for place, offset in found.items())
            if commits:
                self._recorder.add(Operation(self._name, Kind.STABLE, Outcome.OK, invoke, now(), commits=commits))
            await trio.sleep(_EVERY_S)

    async def undecided(self) -> list[TopicPartition]:
        """The partitions whose last stable offset is not known to be their end."""
        stable, ends = await self.ask(committed=True), await self.ask(committed=False)
        places = [(topic, partition) for topic, count in self._topics.items() for partition in range(count)]
        return [place for place in places if place not in ends or stable.get(place) != ends[place]]

    async def ask(self, *, committed: bool) -> dict[TopicPartition, int]:
        """The last stable offsets, or the ends, as far as they are available now."""
        try:
            leaders = await find_leaders(self._bootstrap, self._name, list(self._topics), _PATIENCE_S)
        except LinkLost:
            return {}
        by_leader: dict[Address, list[TopicPartition]] = defaultdict(list)
        for place, leader in leaders.items():
            by_leader[leader].append(place)
        found: dict[TopicPartition, int] = {}
        for leader, places in by_leader.items():
            found |= await self._ask_leader(leader, places, committed=committed)
        return found

    async def _ask_leader(
        self, leader: Address, places: list[TopicPartition], *, committed: bool
    ) -> dict[TopicPartition, int]:
        topics: dict[str, list[ListOffsetsRequestListOffsetsPartition]] = defaultdict(list)
        for topic, partition in places:
            row = ListOffsetsRequestListOffsetsPartition(partition_index=partition, timestamp=_LATEST)
            topics[topic].append(row)
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=int(committed),
            topics=[ListOffsetsRequestListOffsetsTopic(name=name, partitions=rows) for name, rows in topics.items()],
        )
        try:
            async with await Link.open(leader, self._name) as link:
                answer = await link.call(request, _VERSION, ListOffsetsResponse, _PATIENCE_S)
        except LinkLost:
            return {}
        rows = [(topic.name, row) for topic in answer.topics for row in topic.partitions]
        return {(name, row.partition_index): row.offset for name, row in rows if not row.error_code}
