"""Snapshots of the transaction log: what keeps it short. Every instance that follows the log may take one; none is
elected.

Several instances may take one at a time, one may crash on the way, requests may come late and twice: every reader still
loads the truth, as long as nothing is deleted before all chunks are acknowledged.
"""

from collections.abc import Callable
from typing import Final

import structlog
import trio

from kproxy.errors import RemoteProtocolError
from kproxy.net.own_topic import Refused
from kproxy.net.txn.log_appender import AppendError, LogAppender
from kproxy.net.txn.log_follower import LogFollower
from kproxy.txn.snapshot import CHUNK_BYTES, PartitionLoader, snapshot_records
from kproxy.txn.views import Views

log = structlog.get_logger("kproxy.transaction_log")

#: The time between two checks whether one is due, and the time to take it, lest all instances take it at once.
_LOOK_S: Final = 10.0
_WITHIN_S: Final = 120.0


def _is_due(loader: PartitionLoader) -> bool:
    return loader.is_due


class Snapshots:
    """Takes those of all partitions, one after another."""

    def __init__(self, views: Views, follower: LogFollower, appender: LogAppender, nonce: Callable[[], bytes]) -> None:
        """``follower`` fills ``views``; ``nonce`` gives 16 random bytes."""
        self._views = views
        self._follower = follower
        self._appender = appender
        self._nonce = nonce
        #: When those that are due are to be taken, by trio's clock.
        self._times: dict[int, float] = {}

    async def run(
        self,
        *,
        look_s: float = _LOOK_S,
        within_s: float = _WITHIN_S,
        is_due: Callable[[PartitionLoader], bool] = _is_due,
    ) -> None:
        """Takes what is due, for ever."""
        while True:
            await trio.sleep(look_s)
            for partition in range(self._follower.partitions):
                if self._is_time(partition, within_s, is_due):
                    await self.take(partition)

    def _is_time(self, partition: int, within_s: float, is_due: Callable[[PartitionLoader], bool]) -> bool:
        if not self._views.knows(partition) or not is_due(self._views.loader(partition)):
            self._times.pop(partition, None)  # somebody else has taken it
            return False
        wait_s = within_s * self._nonce()[0] / 256
        if trio.current_time() < self._times.setdefault(partition, trio.current_time() + wait_s):
            return False
        del self._times[partition]
        return True

    async def take(self, partition: int, chunk_bytes: int = CHUNK_BYTES) -> bool:
        """Writes a snapshot of what has been read, and deletes what it states; returns whether all of it succeeded.

        A failure is logged: the next snapshot, of any instance, makes up for it.
        """
        if not self._views.knows(partition):
            return False
        up_to, reading = self._follower.position(partition), self._follower.readings(partition)
        views, rejected = self._views.of_partition(partition), self._views.rejected(partition)
        chunks = snapshot_records(views, up_to, self._nonce(), chunk_bytes, rejected)
        last = up_to
        try:
            for chunk in chunks:
                last = await self._appender.append_unfenced(partition, [chunk])
            await self._follower.read_to_end(partition)
            if last < up_to or self._follower.readings(partition) != reading:
                raise OSError("the log is not the one that was read")  # nothing of it may be deleted
            await self._appender.delete_records(partition, up_to)
        except (AppendError, OSError, RemoteProtocolError, Refused) as error:
            log.warning("no snapshot of the transaction log", partition=partition, reason=str(error))
            return False
        log.info("snapshot of the transaction log", partition=partition, up_to=up_to, chunks=len(chunks), offset=last)
        return True
