"""Replacements of kproxy's rules of members and prepared parts, to see what happens without them."""

from collections.abc import Collection
from contextlib import suppress
from types import MappingProxyType
from typing import Any, Final

import trio

from kproxy.codec._generated.transaction_claim import TransactionClaim
from kproxy.codec._generated.transaction_decision import TransactionDecision
from kproxy.codec._generated.transaction_member import TransactionMember
from kproxy.codec.messages import Message
from kproxy.codec.topic_partition import TopicPartition
from kproxy.txn import view as view_module
from kproxy.txn.ids import Producer
from kproxy.txn.prepared_parts import named_parts
from kproxy.txn.procedures.captured import ImplicitTransaction
from kproxy.txn.procedures.id_lock import Interrupted
from kproxy.txn.procedures.implicit_transactions import ImplicitTransactions
from kproxy.txn.procedures.log_owner import LogOwner
from kproxy.txn.procedures.member import Member
from kproxy.txn.procedures.outside import NotAppended
from kproxy.txn.procedures.rejects import Rejects
from kproxy.txn.procedures.transaction import Transaction
from kproxy.txn.view import IdView, LogPosition

_CLAIM: Final = IdView._claim
_DECISION: Final = IdView._decision
_OF: Final = ImplicitTransactions.of


# -- members


async def joins_in_silence(self: Member, view: IdView, main: Producer) -> bool:
    """Nothing is said of a member."""
    return True


def named_by_anybody(view: IdView, _: Collection[Producer]) -> set[str]:
    """A member's own try takes its name, too."""
    return named_parts(view)


async def writes_in_silence(self: Member, places: Collection[TopicPartition]) -> None:
    """Nothing is said of its partitions."""


async def joins_as_its_owner(self: Member, view: IdView, main: Producer) -> bool:
    """A member's record has the producer id and the next sequence of the owner's claim."""
    claim = view.claim
    assert claim is not None
    body = TransactionMember(claim.nonce, *main, self.name, *self.producer, self._nonce)
    with suppress(NotAppended):
        await self._tools.log.append(self._entry(body), claim.producer_id, claim.first_epoch, 1)
    now = await self._keeper.read_to_end()
    return now is not None and self.producer in now.members


async def prepared_when_sent(self: Member, body: Message, sequence: int) -> None:
    """A part is reported when its record was sent."""
    with suppress(NotAppended):
        await self._tools.log.append(self._entry(body), *self.producer, sequence)


async def waits_with_nothing(self: LogOwner, transaction: Transaction) -> str | None:
    """A decision is interrupted whether or not it has data to wait for."""
    try:
        return await self._wait(lambda: self._decider.find_fault(transaction))
    except Interrupted as error:
        return error.message


async def not_asked(*_: Any) -> bool:
    """No topic's policy forbids anything."""
    return False


def writes_without_a_member(self: ImplicitTransactions, client_id: str) -> ImplicitTransaction | None:
    """Writes batches that no member takes without a transaction."""
    found = _OF(self, client_id)
    return found if found is not None and hasattr(found, "transactional_id") else None


def covers_every_own_part(view: IdView, *_: Any) -> set[Producer]:
    """A commit covers what any owner has prepared itself."""
    return {part for part, one in view.prepared.items() if one.name == ""}


def covers_its_own_part(view: IdView, *_: Any) -> set[Producer]:
    """A commit covers what the present owner has prepared itself."""
    return {part for part, one in view.prepared.items() if one.name == "" and one.client == view.client}


# -- what readers make of the log


def _claims_what_is_prepared(self: IdView, body: TransactionClaim, at: LogPosition) -> bool:
    took = _CLAIM(self, body, at)
    if took:
        self.aborted.update(self.prepared)
        self.prepared.clear()
    return took


def _decides_for_a_former_owner(self: IdView, body: TransactionDecision, at: LogPosition) -> bool:
    if _DECISION(self, body, at):
        return True
    waiting = [part for row in body.parts if (part := Producer(row.producer_id, row.epoch)) in self.prepared]
    for part in waiting:
        self._settle(part, body.committed)
    return bool(waiting)


def _forgets_batch_ids(self: IdView, body: TransactionDecision, at: LogPosition) -> bool:
    took = _DECISION(self, body, at)
    self.batch_ids.clear()
    return took


def _with(kind: type[Message], rule: Any) -> Any:
    return MappingProxyType({**view_module._RULES, kind: rule})


#: A claim aborts what is prepared.
CLAIMS_EVERYTHING: Final = _with(TransactionClaim, _claims_what_is_prepared)
#: A former owner of the id may decide what is prepared.
DECIDES_AS_FORMER: Final = _with(TransactionDecision, _decides_for_a_former_owner)
#: A batch id is not kept.
FORGETS_BATCHES: Final = _with(TransactionDecision, _forgets_batch_ids)


async def rejects_unread(self: Rejects, one: Any) -> bool:
    """A producer id is rejected as far as the log was read."""
    log: Any = self._log
    log.wanted.set()
    while not log._follower.partitions:  # noqa: ASYNC110 - learned in silence
        await trio.sleep(0.05)
    await self._log.reject(one.producer_id)
    return True
