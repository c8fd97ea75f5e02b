"""Requests of an instance that takes a snapshot of the log: the product's own, which are late, lost, or come twice."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from kproxy.net.txn.snapshots import Snapshots
from kproxy.txn.ids import Producer
from kproxy.txn.log_records import RawRecord, decode
from kproxy.txn.procedures.outside import NotAppended
from kproxy.txn.snapshot import CHUNK_BYTES
from kproxy.txn.snapshot_views import encode_views
from verification.explorer.engine import Move, Step
from verification.explorer.log_steps import Appending, Reading

if TYPE_CHECKING:
    from verification.explorer.instance import Instance


class Deleting(Step):
    """Waits until the log's leader has deleted records."""

    def __init__(self, instance: "Instance", before: int) -> None:
        """Asked by an instance."""
        super().__init__("delete", before)
        self._world, self._before = instance.world, before
        self._what = f"the records before {before} are deleted"

    def moves(self) -> Iterator[Move]:
        """They are deleted, or will be late."""
        yield Move(self._what, self._delete)
        if self._world.budget["lost"]:
            yield Move(f"DeleteRecords before {self._before} will be late", self._late, is_fault=True)

    def _delete(self) -> None:
        assert self.task is not None
        self._world.delete_records(self._before)
        self.task.resume(self._before)

    def _late(self) -> None:
        assert self.task is not None
        self._world.budget.take("lost")
        self.given_up()
        self.task.resume(error=OSError("no answer"))

    def given_up(self) -> None:
        """They may still be deleted."""
        self._world.send(self._what, partial(self._world.delete_records, self._before), "delete", self._before)


class LogWork:
    """The log as ``Snapshots`` reads and writes it (``LogFollower`` and ``LogAppender``)."""

    def __init__(self, instance: "Instance") -> None:
        """Take an instance."""
        self._instance = instance

    def position(self, _: int) -> int:
        """Do as the follower does."""
        return self._instance.position

    def readings(self, _: int) -> int:
        """Do as the follower does."""
        return self._instance.reading.restarts

    async def read_to_end(self, _: int) -> int:
        """Do as the follower does."""
        await Reading(self._instance)
        return self._instance.position

    async def append_unfenced(self, _: int, records: Sequence[RawRecord]) -> int:
        """Append as the appender does: sent again until there is a response, so that it may be there twice."""
        while True:
            try:
                offset: int = await Appending(self._instance, decode(*records[0]), Producer(-1, -1), 0)
            except NotAppended:
                continue
            return offset

    async def delete_records(self, _: int, before: int) -> int:
        """Do as the appender does."""
        start: int = await Deleting(self._instance, before)
        return start


async def take_snapshot(instance: "Instance") -> None:
    """Takes a snapshot as the product does; in two chunks if the world says so."""
    work, views = LogWork(instance), instance.views
    taken = Snapshots(views, work, work, instance.tools.nonce)  # type: ignore[arg-type]  # as far as they are asked
    halves = instance.world.budget["halves"]
    await taken.take(0, len(encode_views(views.of_partition(0))) // 2 + 1 if halves else CHUNK_BYTES)
