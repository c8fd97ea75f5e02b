"""Group offsets that transactions of the broker's move: read only where none of them is being decided.

Clients that can't ask for that (before OffsetFetch v7, KIP-447), or don't, would otherwise begin at the offsets before
the last transaction while its markers are in flight, and read again what it has committed.
"""

from collections.abc import Iterable
from typing import Final

import trio

from kproxy.codec._generated.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from kproxy.codec.messages import ErrorCode
from kproxy.net.brokers.cluster import Cluster
from kproxy.proxy.offset_fetch_overlay import FIRST_OF_IDS, FIRST_STABLE, groups_of

_PAUSE_SECONDS: Final = 0.05


class StableGroups:
    """Asks the groups' coordinators."""

    def __init__(self, cluster: Cluster) -> None:
        """``cluster`` knows them."""
        self._cluster = cluster

    async def wait(self, asked: Iterable[OffsetFetchRequest]) -> None:
        """Waits until the offsets that each request names are stable; OSError if that is not known.

        Each names one group (``kproxy.proxy.offset_fetch_overlay.stable_requests``).
        """
        for request in asked:
            while True:
                if await self._is_stable(request):
                    break
                await trio.sleep(_PAUSE_SECONDS)

    async def _is_stable(self, request: OffsetFetchRequest) -> bool:
        version = FIRST_OF_IDS if request.groups else FIRST_STABLE
        (group_id,) = groups_of(request, version)
        answer = await self._cluster.coordinators.ask(group_id, request, OffsetFetchResponse, (version, version))
        if answer.error_code or any(group.error_code for group in answer.groups):
            raise OSError(f"the offsets of group {group_id} can't be read")
        errors = [row.error_code for topic in answer.topics for row in topic.partitions]
        errors += [row.error_code for group in answer.groups for topic in group.topics for row in topic.partitions]
        return ErrorCode.UNSTABLE_OFFSET_COMMIT not in errors
