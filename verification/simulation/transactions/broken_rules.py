"""Replacements of kproxy's rules, to see what happens without them."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, suppress
from types import MappingProxyType
from typing import Any, Final, TypeAlias
from unittest.mock import patch

import trio

from kproxy.codec._generated.transaction_claim import TransactionClaim
from kproxy.codec._generated.transaction_decision import TransactionDecision
from kproxy.codec._generated.transaction_offsets import TransactionOffsets
from kproxy.codec.messages import Message
from kproxy.codec.topic_partition import TopicPartition
from kproxy.errors import KproxyError, RemoteProtocolError
from kproxy.net.txn.log_partition import NOTHING, LogPartition
from kproxy.net.txn.snapshots import Snapshots
from kproxy.net.txn.stable_offsets import StableOffsets
from kproxy.net.txn.transaction_log import TransactionLog
from kproxy.net.txn.writer import TransactionWriter
from kproxy.txn import view as view_module
from kproxy.txn.claims import NOBODY, was_answered
from kproxy.txn.client_sequences import ClientSequences, Order
from kproxy.txn.ids import Producer
from kproxy.txn.last_stable import LastStable, Question, Row
from kproxy.txn.log_records import Entry
from kproxy.txn.procedures.announcements import Announcements
from kproxy.txn.procedures.claim_keeper import ClaimKeeper
from kproxy.txn.procedures.log_decider import LogDecider
from kproxy.txn.procedures.log_owner import LogOwner
from kproxy.txn.procedures.log_owners import LogOwners
from kproxy.txn.procedures.outside import NotAppended
from kproxy.txn.procedures.owner_requests import OwnerRequests
from kproxy.txn.procedures.transaction import Transaction
from kproxy.txn.requests import ClientBatch, TxnRequest
from kproxy.txn.transactional_id import TransactionalId
from kproxy.txn.txn_error import TxnError
from kproxy.txn.verdict import Verdict
from kproxy.txn.view import IdView, LogPosition
from kproxy.txn.views import Views
from kproxy.txn.writes import TxnSend, Writes

_VERDICT: Final = Views.verdict
_DECISION: Final = Transaction.decision
_TIME_OUT: Final = LogOwner.time_out
_INITIALIZE: Final = LogOwner.initialize
_COMMIT_OFFSETS: Final = OwnerRequests.commit_offsets
_ADMIT: Final = TransactionalId.admit
_ANNOUNCE: Final = Announcements.announce
_DECIDE: Final = LogDecider.decide
_CLAIM: Final = IdView._claim
_TAKE: Final = Snapshots.take
_RESTART: Final = LogPartition.restart
_APPEND: Final = TransactionLog.append
_IS_OURS: Final = IdView.is_ours
_LOOKED_AT: Final = LastStable.looked_at
_ACCEPT: Final = Transaction.accept
_ORDER: Final = ClientSequences.order

Change: TypeAlias = tuple[Any, str, Any]
"""An owner, the name of a function or property of it, and what to put in its place."""


def no(*_: Any, **__: Any) -> bool:
    """Any question of a rule."""
    return False


def yes(*_: Any, **__: Any) -> bool:
    """Any question of a rule."""
    return True


def keep(*_: Any, **__: Any) -> None:
    """Not done."""


def nothing(*_: Any, **__: Any) -> tuple[()]:
    """Nothing is found."""
    return ()


# -- what readers make of the log


def shows_undecided(self: Views, producer_id: int, epoch: int) -> Verdict:
    """Shows undecided data as committed."""
    verdict = _VERDICT(self, producer_id, epoch)
    return Verdict.COMMITTED if verdict is Verdict.UNDECIDED else verdict


def without_copies(self: Transaction, *parts: Any) -> TransactionDecision:
    """Leaves out which copy of a batch counts."""
    decision = _DECISION(self, *parts)
    for part in decision.parts:
        for topic in part.topics:
            for row in topic.partitions:
                row.copies = []
    return decision


def without_former(self: Transaction, *parts: Any) -> TransactionDecision:
    """Leaves out the data that other instances have written."""
    self.former = {}
    return _DECISION(self, *parts)


def _claims_in_silence(self: IdView, body: TransactionClaim, at: LogPosition) -> bool:
    last = self.last
    took = _CLAIM(self, body, at)
    self.last = last
    return took


#: A claim that aborts a transaction leaves the decision before it as the last one.
CLAIMS_IN_SILENCE: Final = MappingProxyType({**view_module._RULES, TransactionClaim: _claims_in_silence})


async def without_reading_on(self: StableOffsets, question: Question) -> dict[TopicPartition, int | None]:
    """Tells the decided ends of partitions from what this instance has read of the log so far."""
    found: dict[TopicPartition, int | None] = {}
    for place, end in {**question.ends, **question.hints}.items():
        bound = self._bound(*place)
        found[place] = end if bound is None else min(end, bound)
    return self.told.found(question, found)


def from_anywhere(self: LastStable, row: Row) -> None:
    """Takes all batches before those that a reader has checked for decided."""
    _LOOKED_AT(self, row._replace(start=0))


# -- what owners believe


def believed_by_its_acknowledgement() -> tuple[Change, ...]:
    """A claim is one's own if the log took it, whatever the view says of it."""
    taken: set[bytes] = set()

    async def append(self: TransactionLog, entry: Entry, *place: int) -> None:
        await _APPEND(self, entry, *place)
        if isinstance(entry.body, TransactionClaim):
            taken.add(bytes(entry.body.nonce))

    def is_ours(self: IdView, nonce: bytes) -> bool:
        return _IS_OURS(self, nonce) or bytes(nonce) in taken

    return (TransactionLog, "append", append), (IdView, "is_ours", is_ours)


async def told_by_the_broker(self: LogDecider, transaction: Transaction, why: str | None, **how: Any) -> Verdict:
    """A decision holds if the log took it."""
    heard: list[bool] = []
    append = self._keeper._append

    async def noting(appends: Callable[..., Any], body: Message) -> bool:
        heard.append(await append(appends, body))
        return heard[-1]

    with patch.object(self._keeper, "_append", noting):
        try:
            verdict = await _DECIDE(self, transaction, why, **how)
        except TxnError:
            if not heard or not heard[0]:
                raise
    if not heard or not heard[0]:
        return verdict
    return Verdict.COMMITTED if why is None else Verdict.ABORTED


async def uses_the_sequence_again(self: ClaimKeeper, how: Callable[..., Any], body: Message) -> bool:
    """Takes an append that the log did not acknowledge for one that was never sent."""
    assert self.claim is not None
    entry = Entry(self.transactional_id, body)
    try:
        await how(entry, self.claim.producer_id, self.claim.first_epoch, self._sequence)
    except NotAppended:
        return False
    self._sequence += 1
    return True


def repeated_whoever_ended(self: LogOwner, request: TxnRequest, committed: bool) -> Producer | None:
    """An end that is in the log is assumed to be the requested one."""
    view = self.keeper.view
    last = view.last if view is not None else None
    if last is None or last.client != request.client or last.next_client == request.client:
        return None
    return last.next_client if last.next_client == self.keeper.client and last.committed == committed else None


def admits_any_connection(
    self: TransactionalId, request: TxnRequest, coordinator: str | None, newest: Producer = NOBODY
) -> None:
    """A request over an old connection is as good as any."""
    _ADMIT(self, request, None, newest)


async def keeps_its_epoch(self: LogOwner, client: Producer) -> None:
    """A client whose abort was settled by a claim continues under the identity that it has."""


async def initializes_again(self: LogOwner, timeout_ms: int, resumed: Producer, client_id: str) -> Producer:
    """A repeated InitProducerId gets the same response, and claims the id as the first one did."""
    view = await self.keeper.read_to_end()
    if view is None or not was_answered(view, resumed):
        return await _INITIALIZE(self, timeout_ms, resumed, client_id)
    async with self._turns.ordinary():
        await self.keeper.claim_again()
        self._drop("initialized")
        self.id.initialize()
        return self.keeper.client


async def commits_offsets_unadded(
    self: OwnerRequests, request: TxnRequest, offsets: TransactionOffsets, *, implicit: bool
) -> None:
    """Groups join by their offsets, as in the second version of the protocol."""
    await _COMMIT_OFFSETS(self, request, offsets, implicit=True)


def takes_the_newest_identity(self: LogDecider, view: IdView, _: Transaction) -> None:
    """A client is given what the view says now, even if that was given to another."""
    self._keeper.client = view.client


# -- what clients send


def used_is_repeated(self: ClientSequences[Any], client: Producer, batch: ClientBatch) -> tuple[Order, Any]:
    """A batch is taken for the repetition of one that has its sequence, in whichever transaction that was."""
    order, before = _ORDER(self, client, batch)
    if order is Order.USED:
        recent = self._recent[batch.topic, batch.partition]
        first = next((noted for _, base, _, _, noted in recent if base == batch.base_sequence), None)
        return (Order.AGAIN, first) if first is not None else (Order.OUT_OF_ORDER, None)
    return order, before


def used_is_new(self: ClientSequences[Any], client: Producer, batch: ClientBatch) -> tuple[Order, Any]:
    """A batch whose sequence was used in a former transaction is taken for new data."""
    order, before = _ORDER(self, client, batch)
    return (Order.NEXT, None) if order is Order.USED else (order, before)


def dooms_by_what_is_refused(self: Transaction, *what: Any) -> list[TxnSend | None]:
    """A batch with sequences of a former transaction is held against the transaction that is open."""
    sends = _ACCEPT(self, *what)
    if any(send is not None and send.error_code for send in sends):
        self.writer.abandon()
    return sends


# -- time


def waits_for_its_turn(self: LogOwner, _: str) -> AbstractAsyncContextManager[None]:
    """Lets an abort wait until requests of the transaction are done with data brokers."""
    return self._turns.ordinary()


def overdue_wherever_it_is(self: LogOwners, view: IdView, owner: LogOwner | None) -> bool:
    """Aborts an id's transaction at its time-out, though another instance has claimed the id since."""
    return self._is_overdue(view) if owner is not None else self._is_silent(view)


async def times_out_when_settled(self: LogOwner) -> None:
    """Delays the abort at the time-out until data brokers have taken, or refused for good, all they were sent."""
    if self.transaction is not None and self.is_overdue(trio.current_time()):
        await self.transaction.writer.flush()
    await _TIME_OUT(self)


def ended_without_a_claim(self: LogOwners, view: IdView) -> None:
    """Aborts a transaction that is overdue elsewhere, as this instance sees it."""
    if view.ongoing is not None:
        view.aborted.add(view.ongoing.producer)
        view.ongoing = None
        view._forget_aborted()


async def lost_without_a_claim(self: LogOwner, why: str) -> TxnError:
    """Forgets a transaction that is overdue here."""
    self._drop("failed")
    return self.id.doom(why)


# -- data


async def announces_behind(self: Announcements, transaction: Transaction, *what: Any) -> None:
    """The data do not wait for what announces them."""

    async def announce() -> None:
        with suppress(KproxyError, OSError):
            await _ANNOUNCE(self, transaction, *what)

    assert isinstance(transaction.writer, TransactionWriter)
    transaction.writer._connections.nursery.start_soon(announce)


async def announces_in_doubt(self: ClaimKeeper, body: Message) -> bool:
    """Does not require that an unacknowledged append has come."""
    await self._append(self._tools.log.append_unread, body)
    return True


def gives_the_sequence_on(self: Writes, send: TxnSend, error_code: int, now: float) -> None:
    """Makes room for the next batch when one is refused for good."""
    track = self._busy[send.place]
    self._settle(send, error_code)
    track.sends.remove(send)
    track.next_sequence = send.sequence
    if not track.sends:
        del self._busy[send.place]


# -- snapshots


async def deletes_first(self: Snapshots, partition: int, *parts: Any) -> bool:
    """Deletes the records that a snapshot states before the snapshot is there."""
    with suppress(KproxyError, OSError, RemoteProtocolError):
        await self._appender.delete_records(partition, self._follower.position(partition))
    return await _TAKE(self, partition, *parts)


def goes_on_at_the_start(self: LogPartition, start: int) -> None:
    """A reader whose position was deleted from the log continues after the deleted part."""
    if self.position == NOTHING:
        _RESTART(self, start)
    else:
        self.stale, self.position, self.fetched_epoch = False, start, -1
