"""Readers that meet data of which the log says nothing, and the product's ``Rejects``, which they are reported to."""

from collections.abc import Coroutine, Iterator
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from kproxy.codec._generated.transaction_reject import TransactionReject
from kproxy.codec.batch import Record, build_batch
from kproxy.txn.ids import TXN_BITS
from kproxy.txn.log_records import Entry
from kproxy.txn.procedures.rejects import Rejects
from kproxy.txn.visibility import visible
from verification.explorer.engine import Event, Move, Step
from verification.explorer.world import Stored

if TYPE_CHECKING:
    from verification.explorer.instance import Instance


class Rejecting(Step):
    """Waits for the log's response to a REJECT."""

    def __init__(self, instance: "Instance", producer_id: int) -> None:
        """Sent by an instance."""
        super().__init__("reject", producer_id)
        self._instance, self._entry = instance, Entry("", TransactionReject(producer_id))

    def moves(self) -> Iterator[Move]:
        """Yield its arrival."""
        yield Move(f"{self._instance.name}: REJECT arrives", self._arrive)

    def _arrive(self) -> None:
        assert self.task is not None
        self.task.resume(self._instance.world.reject(self._entry))

    def given_up(self) -> None:
        """Let it arrive later, or never."""
        world, entry = self._instance.world, self._entry
        world.send(f"the late REJECT of {self._instance.name} arrives", lambda: _ignore(world.reject(entry)), "reject")


def _rejects(instance: "Instance") -> Rejects:
    """The product's, of one instance, which waits for nothing before it rejects."""

    async def reject(producer_id: int) -> None:
        await Rejecting(instance, producer_id)
        await instance.read_all()

    opened = Event()
    opened.set()
    log: Any = SimpleNamespace(views=instance.views, wanted=Event(), opened=opened, restarts=0, reject=reject)
    tools: Any = instance.tools
    return Rejects(log, instance.read_all, tools.stats, tools.time, tools.report, grace_s=0, by_itself=True)


def moves_of_readers(instance: "Instance") -> Iterator[Move]:
    """Its readers come to what is undecided; or an operator names a producer id that nobody has yet."""
    budget = instance.world.budget
    if budget["rejects"]:
        yield Move(f"readers of {instance.name} wait", partial(_meet, instance), is_fault=True)
    if budget["guesses"]:
        text = f"an operator has {instance.name} reject a producer id that is given out next"
        yield Move(text, partial(_guess, instance), is_fault=True)


def _meet(instance: "Instance") -> None:
    world, views = instance.world, instance.views
    world.budget.take("rejects")
    for (topic, partition), one in world.partitions.items():
        records = b"".join(_batch(row) for row in one.rows)
        seen = visible(records, topic=topic, partition=partition, first_offset=0, aborted=(), decisions=views)
        if seen.undecided is not None:
            views.met(seen.undecided.producer_id, topic, partition, seen.next_offset)
    _start(instance, _rejects(instance).look())


def _batch(row: Stored) -> bytes:
    return bytes(
        build_batch(
            [Record(0, 0, None, row.payload.encode())],
            base_offset=row.base_offset,
            producer_id=row.producer_id,
            producer_epoch=row.producer_epoch,
            base_sequence=row.base_sequence,
            is_control=row.is_control,
        )
    )


def _guess(instance: "Instance") -> None:
    instance.world.budget.take("guesses")
    _start(instance, _rejects(instance).reject(TXN_BITS | instance.world.producer_ids + 2))


def _start(instance: "Instance", work: Coroutine[Any, Any, Any]) -> None:
    instance.world.engine.start(f"{instance.name}'s rejects", instance, work)


def _ignore(_: object) -> None:
    pass
