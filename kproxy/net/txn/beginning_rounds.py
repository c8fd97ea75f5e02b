"""Looks for partitions of the transaction log that have lost their first records (``kproxy.txn.lost_beginnings``)."""

from collections.abc import Callable
from typing import Final

import trio

from kproxy.net.txn.log_follower import LogFollower
from kproxy.net.txn.snapshots import Snapshots
from kproxy.txn.lost_beginnings import LostBeginnings, Remedy
from kproxy.txn.views import Views

_LOOK_SECONDS: Final = 5.0


class BeginningRounds:
    """Looks at all partitions every few seconds, and does what is to be done."""

    def __init__(
        self, views: Views, follower: LogFollower, snapshots: Snapshots, begin_without: Callable[[int], None]
    ) -> None:
        """``begin_without`` has a partition continue without its first records."""
        self._beginnings = LostBeginnings(views)
        self._follower = follower
        self._snapshots = snapshots
        self._begin_without = begin_without

    async def run(self) -> None:
        """Looks for ever."""
        while True:
            await trio.sleep(_LOOK_SECONDS)
            for partition in range(self._follower.partitions):
                await self._look(partition)

    async def _look(self, partition: int) -> None:
        follower = self._follower
        start, reading = follower.log_start(partition), follower.readings(partition)
        is_read = follower.is_read(partition)
        match self._beginnings.look(partition, start, reading, trio.current_time(), is_read=is_read):
            case Remedy.STATE:
                follower.lost(partition, "beginning")
                await self._snapshots.take(partition)
            case Remedy.CONTINUE:
                self._begin_without(partition)
                follower.lost(partition, "beginning")
