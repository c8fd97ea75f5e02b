"""Members at brokers, without one of the rules of their ids and their ends."""

from typing import Any, Final

from kproxy.codec._generated.transaction_decision import TransactionDecision
from kproxy.codec._generated.transaction_ended import TransactionEnded
from kproxy.codec.messages import ErrorCode
from kproxy.txn.ids import Producer
from kproxy.txn.log_records import Entry
from kproxy.txn.procedures.broker_ends import BrokerEnds, _Left
from kproxy.txn.procedures.broker_member import BrokerMember
from kproxy.txn.procedures.broker_members import BrokerMembers
from kproxy.txn.procedures.log_owners import LogOwners
from kproxy.txn.procedures.member_ids import MemberIds
from kproxy.txn.procedures.outside import OwnerTools
from kproxy.txn.txn_error import TxnError
from kproxy.txn.view import IdView
from kproxy.txn.view_values import BrokerTransaction, EndingMember

_IS_TOLD: Final = BrokerEnds._is_told
_TO_BE_ENDED: Final = IdView._to_be_ended


def free_when_decided(self: MemberIds, entry: Entry) -> None:
    """An id is used again when its decision is in the log, before the broker has received it."""
    if isinstance(entry.body, TransactionDecision):
        for part in entry.body.parts:
            if (transaction := self._used.pop(Producer(part.producer_id, part.epoch), None)) is not None:
                self._free.append(transaction.transactional_id)


async def rests_unfenced(self: BrokerMembers, slot: str, timeout_ms: int) -> None:
    """An id rests under the epoch of its last member."""
    self._slots.fenced(slot)
    self._slots.give_back(slot)


async def fences_and_forgets(self: BrokerMembers, slot: str, timeout_ms: int) -> None:
    """An id is used again whose fence had no response."""
    while True:
        try:
            await self._ports.requests(slot).init(timeout_ms, repeats=False)
            break
        except TxnError:
            continue
    self._slots.fenced(slot)
    self._slots.give_back(slot)


async def uses_unanswered(
    self: BrokerMembers, transactional_id: str, name: str, producer: Producer, tools: OwnerTools, timeout_ms: int
) -> BrokerMember:
    """An id is used again whose InitProducerId had no response."""
    while True:
        slot = await self._slots.take()
        requests = self._ports.requests(slot)
        protocol, longest = await self._checked(requests, slot, timeout_ms)
        try:
            begun = await requests.init(longest, repeats=False)
        except TxnError:
            self._slots.give_back(slot)
            continue
        self._slots.fenced(slot)
        transaction = BrokerTransaction(slot, begun, protocol.level, longest)
        return BrokerMember(transactional_id, name, producer, tools, transaction, requests, self._slots)


async def is_told_anyway(self: BrokerEnds, one: EndingMember) -> bool:
    """An end that had no response counts as done."""
    try:
        return await _IS_TOLD(self, one)
    except TxnError as error:
        if error.error_code is not ErrorCode.COORDINATOR_NOT_AVAILABLE:
            raise
        return True


async def notes_first(self: BrokerEnds, left: _Left) -> None:
    """The log says that a member has ended before its broker is asked."""
    view = self._log.views.of(left.transactional_id)
    one = view.ending.get(left.part) if view is not None else None
    if one is None or left in self._noted:
        return
    self._noted.add(left)
    await self._log.append_unfenced(Entry(left.transactional_id, TransactionEnded(*left.part)))
    await self._is_told(one)


async def looks_for_nothing(self: BrokerEnds) -> None:
    """Members are ended by the commit alone."""


async def reports_at_once(self: BrokerEnds, left: _Left, one: EndingMember) -> None:
    """An end that comes too late is reported as torn, though another instance may have ended the member."""
    self._stats.torn += 1


def forgets_aborted(self: IdView, part: Producer, *, committed: bool, empty: bool = False) -> None:
    """Members that are aborted are left to their broker."""
    if committed:
        _TO_BE_ENDED(self, part, committed=committed, empty=empty)


async def answers_before_the_decision(
    self: LogOwners, transactional_id: str, client: Producer | None, **decision: Any
) -> None:
    """A decision by hand is answered before the log has it."""
    self._start(transactional_id, lambda: self._any(transactional_id).decide(client, **decision))


async def asks_nobody(*_: Any) -> None:
    """Members are committed without a question to their brokers."""


def names_nothing(self: BrokerMember) -> None:
    """The log does not say where a member writes."""
