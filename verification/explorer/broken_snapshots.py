"""Rules of snapshots of the log as they must not be."""

from collections.abc import Callable, Iterable
from copy import deepcopy
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, Final

from kproxy.codec._generated.transaction_snapshot import TransactionSnapshot
from kproxy.errors import RemoteProtocolError
from kproxy.net.txn.snapshots import Snapshots
from kproxy.txn.log_records import Entry, RawRecord
from kproxy.txn.snapshot import PartitionLoader, Step, snapshot_records
from kproxy.txn.view import IdView, LogPosition
from verification.explorer.log_steps import Appending

_RECORDS: Final = snapshot_records
_TAKE: Final = Snapshots.take


def _states(change: Callable[[IdView], IdView]) -> Any:
    def records(views: Iterable[IdView], *parts: Any) -> list[RawRecord]:
        return _RECORDS(map(change, views), *parts)

    return records


def _without_former(view: IdView) -> IdView:
    return replace(view, members={part: one for part, one in view.members.items() if not view.is_former(part)})


#: A snapshot does not say which epochs are continued, or where the data of former epochs end.
STATES_NO_FORMER: Final = _states(_without_former)
STATES_NO_ENDS: Final = _states(lambda view: replace(view, copies={}))


class HastyLoader(PartitionLoader):
    """Continues from a snapshot when one chunk of it is there."""

    def take(self, entry: Entry, at: LogPosition, size: int) -> Step:
        """Takes what it can't decode for nothing."""
        was_sure = self.is_sure
        if isinstance(entry.body, TransactionSnapshot) and not was_sure:
            whole = _alone(entry.body)
            try:
                return PartitionLoader.take(self, Entry("", whole), at, size)
            except RemoteProtocolError:
                empty = TransactionSnapshot(whole.up_to, whole.writer, 0, 1, b"\0\0\1\0")
                return PartitionLoader.take(self, Entry("", empty), at, size)
        return PartitionLoader.take(self, entry, at, size)


def _alone(chunk: TransactionSnapshot) -> TransactionSnapshot:
    """The chunk as if there were no other."""
    return TransactionSnapshot(chunk.up_to, chunk.writer, 0, 1, chunk.views)


async def states_what_was_sent(self: Snapshots, partition: int, chunk_bytes: int) -> bool:
    """A snapshot states what its writer has sent to the log, too."""
    instance: Any = self._follower._instance  # type: ignore[attr-defined]  # the explorer's
    waits = [task.waits for task in instance.world.engine.tasks if task.place is instance]
    views, ahead = self._views, [deepcopy(view) for view in self._views.of_partition(partition)]
    for view in ahead:
        for wait in waits:
            if isinstance(wait, Appending) and wait.entry.transactional_id == view.transactional_id:
                view.apply(wait.entry.body, LogPosition(instance.position, instance.world.time.wall_ms()))
    self._views = SimpleNamespace(knows=views.knows, rejected=views.rejected, of_partition=lambda _: ahead)  # type: ignore[assignment]  # as far as it is asked
    return await _TAKE(self, partition, chunk_bytes)
