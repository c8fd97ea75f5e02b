"""One transactional id as this instance owns it, decided on kproxy's log: which request may begin, write and decide."""

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from typing import Final

from kproxy.codec._generated.transaction_offsets import TransactionOffsets
from kproxy.codec.messages import ErrorCode
from kproxy.codec.topic_partition import TopicPartition
from kproxy.txn.claims import NOBODY, fenced, initialized_client, overtaken
from kproxy.txn.ids import Producer
from kproxy.txn.late_requests import COORDINATOR
from kproxy.txn.logged_group_offsets import is_other_generation
from kproxy.txn.prepared_parts import (
    ALONE,
    NOTHING_BESIDE,
    DecidedParts,
    DecisionScope,
    is_any_prepared,
    prepared_parts,
)
from kproxy.txn.procedures.id_lock import Interrupted
from kproxy.txn.procedures.takeover import restore
from kproxy.txn.procedures.transaction_at_log import RESTARTED, TransactionAtLog
from kproxy.txn.repeated_ends import last_end
from kproxy.txn.requests import ClientBatch, TxnRequest, Written, places_of, size_of
from kproxy.txn.states import TransactionEvent
from kproxy.txn.txn_error import TxnError
from kproxy.txn.unasked_aborts import is_client_unaware, must_be_recorded
from kproxy.txn.view import IdView
from kproxy.txn.view_values import ASKED, HAND

#: Decisions of parts that others' claims came before.
_MOST_TRIES: Final = 10


class LogOwner(TransactionAtLog):
    """Coordinates one id for as long as nobody else claims it."""

    # -- who may ask

    @property
    def is_elsewhere(self) -> bool:
        """Whether another instance has the id by now, and nothing is open here that its claim has aborted.

        Also if the client is not known here, as an InitProducerId was refused, or somebody has decided by hand: the
        log says which client has the id, and what it has open.
        """
        if self.id.is_unknown:
            return self.keeper.has_left or not self._lock.locked()
        is_idle = self.transaction is None and self._decider.undecided is None and not self._lock.locked()
        return self.keeper.has_left or (is_idle and self.keeper.is_elsewhere(self.keeper.view))

    async def initialize(self, timeout_ms: int, resumed: Producer, client_id: str) -> Producer:
        """InitProducerId: fences the former producer, aborts what is open, and gives the client its next identity."""
        self._refuse_while_deciding()
        async with self._turn_to_initialize(resumed):
            self.used_at = self._now()
            if resumed != NOBODY and await self._was_answered(resumed):
                return self.keeper.client
            self.keeper.client_id, self.keeper.timeout_ms = client_id, timeout_ms
            self.keeper.instance_id = self._tools.instance_id
            await self.keeper.claim_to_initialize(resumed)
            self._drop("initialized")
            self._adopted, self._decider.undecided = False, None
            self.id.initialize()
            return self.keeper.client

    async def _was_answered(self, resumed: Producer) -> bool:
        """Whether the log has a response to this InitProducerId: then it aborts nothing. Nor does one that is refused.

        Where another kproxy gave the response this one coordinates the id from now on, unless a transaction is open
        there: its client has received that response. TxnError.
        """
        view = await self._takeover.answered(resumed)
        if view is None:
            return False
        if self.id.is_unknown or view.client != self.keeper.client:
            self._drop("fenced")
            self._decider.undecided, self.id.doomed = None, None
            self.id.forget_connections()
            await self._adopt(view)
        return True

    def _turn_to_initialize(self, resumed: Producer) -> AbstractAsyncContextManager[None]:
        """The turn; an urgent one where the client will get another identity, and what is open will be aborted."""
        try:
            initialized_client(self.keeper.view, resumed, 0)
        except TxnError:
            return self._turns.ordinary()
        return self._turns.urgent("the transactional id was initialized again")

    def _turn_to_abort(self, why: str) -> AbstractAsyncContextManager[None]:
        """A turn that waits for no data broker; the open transaction can only be aborted from now on."""
        if self.transaction is not None:
            self.transaction.writer.abandon()
        return self._turns.urgent(why)

    async def adopt(self, view: IdView) -> None:
        """Coordinates the id for a client whose former coordinator has ended, or does not answer it. TxnError.

        What was open there is continued, or aborted where it can't be told what was written.
        """
        async with self._turns.ordinary():
            await self._adopt(view, continues=True)

    async def _adopt(self, view: IdView, *, continues: bool = False) -> None:
        view, former = await self._takeover.take(view, continues=continues)
        self.id.acts_for_others = False
        if view.last is not None:
            self.id.restore(committed=view.last.committed)
        self._adopted = True
        if former is not None:
            self._stats.resumed += 1
            restore(await self._begin(), former, view, self._sequences)
        elif view.is_doomed:
            self.id.doom(RESTARTED)

    def _admit(self, request: TxnRequest, coordinator: str | None) -> None:
        self.used_at = self._now()
        view = self.keeper.view
        part = self.transaction.producer if self.transaction is not None else None
        if part is not None and not self.id.state.is_pending and self.keeper.is_former(part):
            raise self._leave()
        if (
            view is not None
            and self.keeper.is_elsewhere(view)
            and self.id.is_ended_elsewhere(request.client, view, part)
        ):
            self._drop("fenced")
            raise self._leave()
        self.id.admit(request, coordinator, view.client if view is not None else NOBODY)

    def _refuse_while_deciding(self) -> None:
        """TxnError while a decision is under way, unless it waits for data: an abort comes before it then."""
        if self._decider.undecided is None and not self._turns.is_waiting:
            self.id.refuse_pending()

    # -- a transaction begins, and grows

    def _turn_to_grow(self, request: TxnRequest, coordinator: str | None) -> AbstractAsyncContextManager[None]:
        """The turn, for which no request waits while the outcome of an end is open: it is refused at once."""
        self.id.refuse_pending()
        return super()._turn_to_grow(request, coordinator)

    async def join(self, request: TxnRequest, places: Sequence[TopicPartition]) -> None:
        """All partitions that have joined by then are written to the log with the first data.

        A client adds a partition once, or repeats the request. Else another instance has ended this transaction, and
        the log says so.
        """
        if self.transaction is not None and not self.transaction.joined.isdisjoint(places):
            await self.keeper.read_to_end()
        async with self._turn_to_grow(request, COORDINATOR):
            transaction = await self._begin()
            await self._announcements.fence_others(transaction, places, self._wait)
            transaction.joined.update(places)

    # -- data

    async def produce(
        self, request: TxnRequest, batches: Sequence[ClientBatch], *, implicit: bool, accepted: Callable[[], None]
    ) -> list[Written]:
        async with self._turn_to_grow(request, None):
            transaction = await self._begin() if implicit else self.transaction
            self._check_joined(places_of(batches), implicit=implicit)
            assert transaction is not None
            with suppress(Interrupted):  # the writer refuses the batches then, and their sequences are used up
                why = await self._announcements.announce(transaction, request, batches, self._wait)
                if why is not None:
                    raise await self._lose(why)
                await self._wait(lambda: transaction.writer.room(size_of(batches)))
            sends = transaction.accept(request.client, batches, self._sequences)
            accepted()
        return await self._results(transaction, sends)

    async def commit_offsets(self, request: TxnRequest, offsets: TransactionOffsets, *, implicit: bool) -> None:
        """Appends the offsets to the log; they move when the transaction is committed."""
        async with self._turn_to_grow(request, offsets.group_id):
            self._check_group_added(offsets.group_id, implicit=implicit)
            await self._offsets.check_member(offsets, self._wait)
            transaction = await self._begin()
            if is_other_generation(offsets, transaction.members):
                raise TxnError(ErrorCode.ILLEGAL_GENERATION, "the transaction has offsets of another generation")
            if not implicit and offsets.group_id in transaction.former_groups:
                raise self.id.doom(RESTARTED)  # whether what is there was late can't be told
            if not implicit:
                self.id.take_offsets(transaction.added_groups, offsets, request.connection)
            if (why := await self._offsets.append(transaction, offsets)) is not None:
                raise await self._lose(why)

    # -- the end

    async def end(self, request: TxnRequest, *, committed: bool, bumps: bool, also: DecisionScope = ALONE) -> Producer:
        if (repeated := self._repeated(request, committed)) is not None:
            return repeated
        async with self._turn_to_end(request, committed):
            await self._find_out()
            if (repeated := self._repeated(request, committed)) is not None:
                return repeated  # it was decided while another had the lock
            self._admit(request, COORDINATOR)
            self.id.begin_to_end(committed=committed)
            beside = DecidedParts(also.batch_id if committed else None, prepared_parts(self.keeper.view, also))
            if self.transaction is not None or beside != NOTHING_BESIDE:
                await self._decide(await self._begin_to_end(committed=committed), committed, bumps, beside, also.reason)
            elif bumps or must_be_recorded(self.keeper.view, also, committed=committed):
                # empty, but the log has to know of it
                await self._decide(await self._begin_to_end(committed=committed), committed, bumps)
            else:
                await self._decider.check_nothing_open()
                self.id.end_nothing(committed=committed)
            if is_any_prepared(self.keeper.view, beside):
                why = "another claim came before the decision: what was prepared still is"
                raise TxnError(ErrorCode.CONCURRENT_TRANSACTIONS, why)
            if not committed:
                self._refuse_overtaken()
            if bumps:
                await self._raise_epoch(request.client)
            return self.keeper.client

    def _refuse_overtaken(self) -> None:
        """TxnError (PRODUCER_FENCED) where another producer took the id while this abort was in flight."""
        if self.keeper.view is not None and self.keeper.view.client != self.keeper.client:
            raise self.id.replaced()

    async def _raise_epoch(self, client: Producer) -> None:
        """Gives the client its next identity where a claim has aborted its transaction, which gives none. TxnError.

        The client's sequences begin at 0 after each EndTxn (KIP-890): under the same epoch they would be taken for
        those of the transaction before.
        """
        for _ in range(_MOST_TRIES):
            if self.keeper.client != client:
                return
            await self._decide(await self._begin_to_end(committed=False), committed=False, bumps=True)
        raise overtaken()

    def _turn_to_end(self, request: TxnRequest, committed: bool) -> AbstractAsyncContextManager[None]:
        """The turn; an urgent one for an abort by the client that has the id. TxnError while it is being decided."""
        if self._decider.undecided is not None:
            return self._turns.ordinary()
        if committed:
            self.id.refuse_pending()
            return self._turns.ordinary()
        if self.id.is_unknown:
            return self._turns.ordinary()  # the first InitProducerId has the turn, and says which client has the id
        self._refuse_while_deciding()
        self._admit(request, COORDINATOR)
        return self._turn_to_abort("the client aborted the transaction")

    def _repeated(self, request: TxnRequest, committed: bool) -> Producer | None:
        found = self.id.repeated_end(request, last_end(self.keeper.view), committed=committed)
        if found is not None and self.transaction is None and not committed:
            self.id.doomed = None  # the client has aborted what was lost
        return found

    async def prepare(self, request: TxnRequest, batch_id: str | None = None) -> None:
        """Leaves the transaction, with all its data acknowledged, to a later decision. TxnError if it is aborted."""
        async with self._turn_to_grow(request, None):
            transaction = await self._begin()
            why = await self._why_not(transaction) if not transaction.is_continued else "another instance began it"
            if why is None and not await self._decider.prepare(transaction, batch_id):
                why = "the log did not take it"
            if why is not None:
                raise await self._lose(why)
            self.transaction = None
            self.id.apply(TransactionEvent.PREPARED)
            self._stats.open -= 1
            self._tools.traces.ended(self.keeper.transactional_id, "prepared", transaction.announced)

    async def decide(self, client: Producer | None, *, committed: bool, also: DecisionScope) -> None:
        """Decides parts that were prepared: ``client``, if given, must be the owner of the id.

        What is open here is aborted by an abort; a commit is CONCURRENT_TRANSACTIONS then. TxnError unless the log
        shows the decision.
        """
        async with self._turn_to_decide(client, committed):
            self.used_at = self._now()
            await self._find_out()
            for _ in range(_MOST_TRIES):
                view = await self._follow(client)
                if committed and view.has_committed(also.batch_id):
                    return
                parts = prepared_parts(view, also)
                if not committed and not parts and view.open_since() is None and self.transaction is None:
                    return
                if await self._decided(committed, DecidedParts(also.batch_id if committed else None, parts)):
                    return
            raise overtaken()

    def _turn_to_decide(self, client: Producer | None, committed: bool) -> AbstractAsyncContextManager[None]:
        """The turn; an urgent one for an abort, unless it names another client than this instance knows. TxnError."""
        if committed or client not in (None, self.keeper.client):
            if self._decider.undecided is None:
                self.id.refuse_pending()
            return self._turns.ordinary()
        self._refuse_while_deciding()
        return self._turn_to_abort("the transaction was aborted by hand")

    async def _follow(self, client: Producer | None) -> IdView:
        """The view at the end of the log; if another claim holds, this owner continues under that one. TxnError."""
        view = await self.keeper.read_to_end()
        if view is None or view.claim is None:
            raise TxnError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, "the log does not know the transactional id")
        if client not in (None, view.client):
            raise fenced(view.client)
        if not self.keeper.holds(view):
            if self.transaction is not None:
                self._drop("failed")
                self.id.doom("another claim aborted the transaction")
            self.id.acts_for_others |= view.client != self.keeper.client
            self.keeper.serve(view)
        return view

    async def _decided(self, committed: bool, beside: DecidedParts) -> bool:
        """Whether the log shows the decision; if not, something came in between. TxnError if it may not be."""
        transaction = self.transaction
        if committed and transaction is not None:
            raise TxnError(ErrorCode.CONCURRENT_TRANSACTIONS, "the producer of the id has an open transaction here")
        try:
            # not _begin alone: the log has to know that an operator aborted what the claim for this aborts
            part = await self._begin_to_end(committed=committed)
            reason = HAND if transaction is not None or is_client_unaware(self.keeper.view) else ASKED
            await self._decide(part, committed, bumps=False, beside=beside, reason=reason)
        except TxnError as error:
            if error.error_code is not ErrorCode.TRANSACTION_ABORTABLE:
                raise
            self.id.doomed = None
            return False
        if transaction is not None:
            self.id.doom("the transaction was aborted by hand")
        return not is_any_prepared(self.keeper.view, beside)

    # -- time

    def is_overdue(self, now: float) -> bool:
        """Whether the open transaction has taken longer than transaction.timeout.ms; ``now`` by trio's clock."""
        transaction = self.transaction
        return transaction is not None and now > transaction.began_at + self.keeper.timeout_ms / 1000

    async def give_up(self, client: Producer, why: str) -> None:
        """Aborts this client's open transaction by a claim, on somebody else's behalf; its client gets the reason."""
        self._refuse_while_deciding()
        if self.transaction is None or client != self.keeper.client:
            return
        async with self._turn_to_abort(why):
            if self.transaction is not None and client == self.keeper.client:
                await self._lose(why)

    async def time_out(self) -> None:
        """Aborts the open transaction by a claim if it is overdue. TxnError if that can't be done now."""
        if not self.is_overdue(self._now()):
            return
        why = f"the transaction took longer than its {self.keeper.timeout_ms} ms"
        async with self._turn_to_abort(why):
            if self.is_overdue(self._now()):
                await self._lose(why)
