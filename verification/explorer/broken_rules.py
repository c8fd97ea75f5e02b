"""Rules of the coordinator as they must not be: each is there to be found by the explorer."""

from collections.abc import Sequence
from typing import Any, Final

from kproxy.codec._generated.transaction_decision import TransactionDecision
from kproxy.codec.messages import Message
from kproxy.codec.topic_partition import TopicPartition
from kproxy.txn.ids import Producer
from kproxy.txn.late_requests import COORDINATOR
from kproxy.txn.log_records import Entry
from kproxy.txn.procedures.announcements import Announcements
from kproxy.txn.procedures.claim_keeper import ClaimKeeper
from kproxy.txn.procedures.former import Former, Scan, summary
from kproxy.txn.procedures.former_epochs import FormerEpochs
from kproxy.txn.procedures.log_owner import LogOwner
from kproxy.txn.procedures.outside import NotAppended
from kproxy.txn.procedures.takeover import TakenOver, Takeover
from kproxy.txn.procedures.transaction import Transaction
from kproxy.txn.requests import ClientBatch, TxnRequest
from kproxy.txn.txn_error import TxnError
from kproxy.txn.view import IdView
from verification.explorer.instance import Instance

_DECISION: Final = Transaction.decision
_NOTE_COPIES: Final = IdView._note_copies


async def claims_last(self: Takeover, view: IdView) -> TakenOver:
    """What a former instance wrote is fenced and read, and then the id is claimed."""
    assert view.ongoing is not None
    part = view.ongoing.producer
    former = await self._tools.former.read(view, view.continued(part))
    return TakenOver(await self._keeper.claim_to_continue(part), former)


async def reads_first(self: FormerEpochs, view: IdView, parts: Sequence[Producer]) -> Former:
    """Partitions are read, and then fenced."""
    instance = self._data
    assert isinstance(instance, Instance)
    places = list(dict.fromkeys(place for part in parts for place in view.bounds.get(part, ())))
    scans = {
        place: Scan(view.bound(place) or 0, end, parts, {}) for place, end in (await instance.ends(places)).items()
    }
    await instance.scan(scans)
    await instance.fence(places, [(part.producer_id, part.epoch + 1) for part in sorted(parts)])
    return summary(view, parts, scans)


async def fences_nothing(self: FormerEpochs, view: IdView, parts: Sequence[Producer]) -> Former:
    """Partitions are read as they are."""
    places = list(dict.fromkeys(place for part in parts for place in view.bounds.get(part, ())))
    ends = await self._data.ends(places)
    scans = {place: Scan(view.bound(place) or 0, ends[place], parts, {}) for place in places}
    await self._data.scan(scans)
    return summary(view, parts, scans)


async def announces_nothing(
    self: Announcements, transaction: Transaction, request: TxnRequest, batches: Sequence[ClientBatch], wait: Any
) -> None:
    """Data are sent to partitions that the log does not name."""
    transaction.announced.update((batch.topic, batch.partition) for batch in batches)


async def announces_in_doubt(self: ClaimKeeper, body: Message) -> bool:
    """What was not acknowledged need not have come."""
    await self._append(self._tools.log.append_unread, body)
    return True


async def uses_the_sequence_again(self: ClaimKeeper, how: Any, body: Message) -> bool:
    """What the log did not acknowledge is taken for never sent."""
    assert self.claim is not None
    try:
        await how(Entry(self.transactional_id, body), self.claim.producer_id, self.claim.first_epoch, self._sequence)
    except NotAppended:
        return False
    self._sequence += 1
    return True


def names_its_own_part(self: Transaction, *parts: Any) -> TransactionDecision:
    """What other instances have written is left out of the decision."""
    self.former = {}
    return _DECISION(self, *parts)


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


def keeps_nothing(*_: object) -> None:
    """What is there of the client's batches is not remembered."""


def counts_for_anybody(self: IdView, nonce: bytes) -> bool:
    """Records count under any claim."""
    return True


async def loses_without_a_claim(self: LogOwner, why: str) -> TxnError:
    """What is open is forgotten here, and the log does not say so."""
    self._drop("failed")
    return self.id.doom(why)
