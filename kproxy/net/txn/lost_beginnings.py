"""Partitions of the transaction log whose first records were deleted without a snapshot that states them.

kproxy deletes only what a snapshot states, so somebody else did this: ``kafka-delete-records.sh``, a wrong
``retention.ms``. An instance that has read these records writes a snapshot of them at once. Where none does, the other
instances continue with what the log says after a while: an id must not be blocked for ever.
"""

from collections.abc import Callable
from typing import Final

import trio

from kproxy.net.txn.log_follower import LogFollower
from kproxy.net.txn.snapshots import Snapshots
from kproxy.txn.views import Views

_LOOK_SECONDS: Final = 5.0
#: The time that an instance that has read the records has to state them.
_GRACE_SECONDS: Final = 60.0


class LostBeginnings:
    """Finds such partitions, and ends the wait at them."""

    def __init__(
        self, views: Views, follower: LogFollower, snapshots: Snapshots, begin_without: Callable[[int], None]
    ) -> None:
        """``begin_without`` has a partition continue without its first records."""
        self._views = views
        self._follower = follower
        self._snapshots = snapshots
        self._begin_without = begin_without
        #: When each such partition was seen first, by trio's clock, and which reading of it that was.
        self._seen: dict[int, tuple[float, int]] = {}

    async def run(self) -> None:
        """Looks for ever."""
        while True:
            await trio.sleep(_LOOK_SECONDS)
            for partition in range(self._follower.partitions):
                await self._look(partition)

    async def _look(self, partition: int) -> None:
        if partition in self._views.foreign or not self._is_uncovered(partition):
            self._seen.pop(partition, None)
            return
        now, reading = trio.current_time(), self._follower.readings(partition)
        since, seen = self._seen.get(partition, (now, -1))
        if seen != reading:
            self._seen[partition] = now, reading
        elif self._views.knows(partition):
            self._follower.lost(partition, "beginning")
            await self._snapshots.take(partition)
        elif now >= since + _GRACE_SECONDS:
            self._begin_without(partition)
            self._follower.lost(partition, "beginning")

    def _is_uncovered(self, partition: int) -> bool:
        """Whether all is read that the log has, and nothing states what lay before its start."""
        loader = self._views.loader(partition)
        is_read = self._follower.is_read(partition)
        return is_read and not (loader.is_sure and self._follower.log_start(partition) <= loader.up_to)
