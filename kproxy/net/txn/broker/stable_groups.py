"""Group offsets that transactions of the broker's move: read only where none of them is being decided.

Clients that can't ask for that (before OffsetFetch v7, KIP-447) would otherwise begin at the offsets before the last
transaction while its markers are in flight, and read again what it has committed.
"""

from collections.abc import Collection
from typing import Final

import trio

from kproxy.codec._generated.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic, OffsetFetchResponse
from kproxy.codec.messages import ErrorCode
from kproxy.codec.topic_partition import TopicPartition
from kproxy.net.brokers.cluster import Cluster

#: One group, and only what is stable.
_VERSION: Final = 7
_PAUSE_SECONDS: Final = 0.05


class StableGroups:
    """Asks the groups' coordinators."""

    def __init__(self, cluster: Cluster) -> None:
        """``cluster`` knows them."""
        self._cluster = cluster

    async def wait(self, group_ids: Collection[str], places: Collection[TopicPartition] | None = None) -> None:
        """Waits until these offsets of the groups are stable; None: all that were ever committed. OSError if not known.

        If asked for all, a broker leaves out a partition whose first offset is being decided.
        """
        for group_id in group_ids:
            while True:
                if await self._is_stable(group_id, places):
                    break
                await trio.sleep(_PAUSE_SECONDS)

    async def _is_stable(self, group_id: str, places: Collection[TopicPartition] | None) -> bool:
        topics: dict[str, OffsetFetchRequestTopic] = {}
        for name, index in places or ():
            topics.setdefault(name, OffsetFetchRequestTopic(name)).partition_indexes.append(index)
        wanted = None if places is None else list(topics.values())
        request = OffsetFetchRequest(group_id=group_id, topics=wanted, require_stable=True)
        answer = await self._cluster.coordinators.ask(group_id, request, OffsetFetchResponse, (_VERSION, _VERSION))
        if answer.error_code:
            raise OSError(f"the offsets of group {group_id} can't be read")
        rows = (row for topic in answer.topics for row in topic.partitions)
        return all(row.error_code != ErrorCode.UNSTABLE_OFFSET_COMMIT for row in rows)
