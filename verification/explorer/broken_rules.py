"""Rules of the coordinator as they must not be: each is there to be found by the explorer."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from kproxy.codec.topic_partition import TopicPartition
from kproxy.txn.ids import Producer
from kproxy.txn.late_requests import COORDINATOR
from kproxy.txn.procedures.announcements import Announcements
from kproxy.txn.procedures.former import Former, Scan, summary
from kproxy.txn.procedures.former_epochs import FormerEpochs
from kproxy.txn.procedures.log_owner import LogOwner
from kproxy.txn.procedures.pending_offsets import PendingOffsets
from kproxy.txn.procedures.takeover import TakenOver, Takeover
from kproxy.txn.procedures.transaction import Transaction
from kproxy.txn.requests import ClientBatch, TxnRequest
from kproxy.txn.txn_error import TxnError
from kproxy.txn.view import IdView

if TYPE_CHECKING:
    from verification.explorer.instance import Instance

_ANSWERED: Final = Takeover.answered
_NOTE_COPIES: Final = IdView._note_copies


async def claims_last(self: Takeover, view: IdView) -> TakenOver:
    """Fence and read what a former instance wrote, and then claim the id."""
    assert view.ongoing is not None
    part = view.ongoing.producer
    former = await self._tools.former.read(view, view.continued(part))
    return TakenOver(await self._keeper.claim_to_continue(part), former)


async def fences_nothing(self: FormerEpochs, view: IdView, parts: Sequence[Producer]) -> Former:
    """Partitions are read as they are."""
    places = list(dict.fromkeys(place for part in parts for place in view.bounds.get(part, ())))
    ends = await self._data.ends(places)
    scans = {place: Scan(view.bound(place) or 0, ends[place], parts, {}) for place in places}
    await self._data.scan(scans)
    return summary(view, parts, scans)


async def reads_first(self: FormerEpochs, view: IdView, parts: Sequence[Producer]) -> Former:
    """Partitions are read, and then fenced."""
    found = await fences_nothing(self, view, parts)
    places = list(dict.fromkeys(place for part in parts for place in view.bounds.get(part, ())))
    await self._data.fence(places, [(part.producer_id, part.epoch + 1) for part in sorted(parts)])
    return found


async def announces_nothing(
    self: Announcements, transaction: Transaction, request: TxnRequest, batches: Sequence[ClientBatch], wait: Any
) -> None:
    """Data are sent to partitions that the log does not name."""
    transaction.announced.update((batch.topic, batch.partition) for batch in batches)


def counts_everything(self: IdView, row: Any, *, is_former: bool) -> None:
    """All of a former epoch counts, whenever it was written."""
    _NOTE_COPIES(self, row, is_former=False)


async def fences_nobody(self: Announcements, *_: object) -> None:
    """Nobody is fenced where a partition joins."""


async def joins_by_what_it_knows(self: LogOwner, request: TxnRequest, places: Sequence[TopicPartition]) -> None:
    """A partition that joins again is no reason to read the log."""
    async with self._turn_to_grow(request, COORDINATOR):
        transaction = await self._begin()
        await self._announcements.fence_others(transaction, places, self._wait)
        transaction.joined.update(places)


async def joins_and_fences_then(self: LogOwner, request: TxnRequest, places: Sequence[TopicPartition]) -> None:
    """The client hears that a partition has joined, and others are fenced there later."""
    if self.transaction is not None and not self.transaction.joined.isdisjoint(places):
        await self.keeper.read_to_end()
    async with self._turn_to_grow(request, COORDINATOR):
        transaction = await self._begin()
        former: Any = self._tools.former
        instance: Instance = former._data

        async def fence() -> None:
            async with self._turns.ordinary():
                await self._announcements.fence_others(transaction, places, self._wait)

        instance.world.engine.start(f"{instance.name} fences later", instance, fence())
        transaction.joined.update(places)


async def gives_up_its_claim(self: Takeover, resumed: Producer) -> IdView | None:
    """An InitProducerId that is refused gives up the claim, under which a transaction may be open."""
    try:
        return await _ANSWERED(self, resumed)
    except TxnError:
        self._keeper.claim = None
        raise


def any_identity_is_new(client: Producer, _known: Producer) -> bool:
    """A claim may name any identity, also one that a decision has given to another producer."""
    return client.producer_id >= 0


async def takes_offsets_at_their_word(self: PendingOffsets, transaction: Transaction, offsets: object) -> None:
    """Group offsets are acknowledged, and are not in the log."""
