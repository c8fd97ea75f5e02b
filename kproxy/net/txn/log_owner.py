"""One transactional id as this instance owns it: begin, write, decide; each step counts when the log shows it.

prepare (a state that admits nothing else) -> append -> complete (what the view says after the record). The broker's
response to an append decides nothing, nor does the response to the client; the view does.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from typing import Final

import structlog
import trio

from kproxy.codec._generated.transaction_offsets import TransactionOffsets
from kproxy.codec.messages import ErrorCode
from kproxy.codec.topic_partition import TopicPartition
from kproxy.errors import RemoteProtocolError
from kproxy.net.txn.claim_keeper import ClaimKeeper
from kproxy.net.txn.former_epochs import Former, Uncertain
from kproxy.net.txn.id_lock import Interrupted
from kproxy.net.txn.owner import Owner, places_of
from kproxy.net.txn.owner_services import OwnerTools
from kproxy.net.txn.partition_ends import PartitionEnds
from kproxy.net.txn.transaction import Transaction, why_not_committed, written_before
from kproxy.net.txn.writer import TransactionWriter
from kproxy.txn.claims import (
    NOBODY,
    fenced,
    initialized_client,
    needs_client_producer_id,
    next_client,
    refuse_replaced,
    was_answered,
)
from kproxy.txn.ids import Producer
from kproxy.txn.late_requests import COORDINATOR
from kproxy.txn.logged_group_offsets import is_other_generation, one_of_each_member
from kproxy.txn.prepared_parts import ALONE, NOTHING_BESIDE, DecidedParts, DecisionScope, prepared_parts
from kproxy.txn.repeated_ends import last_end
from kproxy.txn.requests import ClientBatch, TxnRequest, Written
from kproxy.txn.states import Event
from kproxy.txn.transactional_id import not_added
from kproxy.txn.txn_error import TxnError
from kproxy.txn.verdict import Verdict
from kproxy.txn.view import IdView
from kproxy.txn.view_values import ASKED, DOOMED, HAND, LOST, LOST_MEMBERS

#: Decisions of parts that others' claims came before.
_MOST_TRIES: Final = 10
_RESTARTED: Final = "kproxy was restarted in the transaction"
log = structlog.get_logger("kproxy.transactions")


class LogOwner(Owner):
    """Coordinates one id for as long as nobody else claims it."""

    def __init__(self, transactional_id: str, tools: OwnerTools) -> None:
        """``tools`` are shared with the other owners of this instance."""
        super().__init__(tools.stats, tools.connections())
        self.keeper = ClaimKeeper(transactional_id, tools, self.id)
        self._tools = tools
        #: What the last transaction wrote: the next one announces it at once, in one record.
        self._usual: set[TopicPartition] = set()
        self._ends = PartitionEnds(tools.ends, tools.topics)
        #: The transaction whose decision got no response, while the log could not be read either.
        self._undecided: Transaction | None = None
        #: Whether a transaction may have begun with a former coordinator that the log knows nothing of.
        self._adopted = False
        #: Whether another instance continues the client's transaction.
        self._has_left = False

    # -- who may ask

    @property
    def is_elsewhere(self) -> bool:
        """Whether another instance has the id by now, and nothing is open here that its claim has aborted."""
        is_idle = self.transaction is None and self._undecided is None and not self._lock.locked()
        return self._has_left or (is_idle and self.keeper.is_elsewhere(self.keeper.view))

    async def initialize(self, timeout_ms: int, resumed: Producer, client_id: str) -> Producer:
        """InitProducerId: fences the former producer, aborts what is open, and gives the client its next identity."""
        self._refuse_while_deciding()

        async def identity(view: IdView | None) -> Producer:
            known = view.client if view is not None else Producer(-1, -1)
            fresh = await self._tools.new_producer_id() if needs_client_producer_id(known) else -1
            return initialized_client(view, resumed, fresh)

        async with self._turn_to_initialize(resumed):
            self.used_at = trio.current_time()
            if resumed != NOBODY and await self._was_answered(resumed):
                return self.keeper.client
            self.keeper.client_id, self.keeper.timeout_ms = client_id, timeout_ms
            self.keeper.instance_id = self._tools.instance_id
            await self.keeper.claim_for(identity, resumed)
            self._drop("initialized")
            self._adopted = self._has_left = False
            self._undecided = None
            self.id.initialize()
            return self.keeper.client

    async def _was_answered(self, resumed: Producer) -> bool:
        """Whether the log has a response to this InitProducerId: then it aborts nothing. Nor does one that is refused.

        Where another kproxy gave the response this one coordinates the id from now on, unless a transaction is open
        there: its client has received that response. TxnError.
        """
        view = await self.keeper.read_to_end()
        if view is None or view.claim is None or not was_answered(view, resumed):
            refuse_replaced(view, resumed)
            return False
        if view.client != self.keeper.client:
            if view.ongoing is not None and view.claim.instance_id != self._tools.instance_id:
                raise TxnError(ErrorCode.CONCURRENT_TRANSACTIONS, f"a transaction is open at {view.claim.instance_id}")
            self._drop("fenced")
            self._undecided, self.id.doomed = None, None
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
        async with self._lock:
            await self._adopt(view, continues=True)

    async def _adopt(self, view: IdView, *, continues: bool = False) -> None:
        self.keeper.take_over(view)
        former = None
        if continues and view.awaits_client():
            view, former = await self._continue(view)
        elif view.ongoing is not None:
            view = await self.keeper.claim_again()
        if view.last is not None:
            self.id.restore(committed=view.last.committed)
        self._adopted = True
        if former is not None:
            self._restore(await self._begin(), former, view)
        elif view.is_doomed:
            self.id.doom(_RESTARTED)

    async def _continue(self, view: IdView) -> tuple[IdView, Former | None]:
        """The view after a claim that continues what is open, and what there is of it; None: it was aborted. TxnError.

        The claim comes first: from then on the log takes nothing from the former instance. Then its data are fenced.
        """
        assert view.ongoing is not None
        view = await self.keeper.claim_to_continue(view.ongoing.producer)
        if view.ongoing is None:
            return view, None  # a member came before the claim
        name, instance_id = self.keeper.transactional_id, self._tools.instance_id
        try:
            former = await self._tools.former.read(view, view.continued(view.ongoing.producer))
        except Uncertain as error:
            if not self.keeper.holds(view):
                raise self.keeper.continued_elsewhere(view) from error
            log.warning("can't continue a transaction, aborting it", transactional_id=name, reason=str(error))
            return await self.keeper.claim_again(), None
        if not self.keeper.holds(view):
            raise self.keeper.continued_elsewhere(view)
        log.info("continuing a transaction of another instance", transactional_id=name, instance_id=instance_id)
        return view, former

    def _restore(self, transaction: Transaction, former: Former, view: IdView) -> None:
        """What the former instances of this transaction knew, as far as the log and the partitions say it.

        A partition without data is not among those that the client has added: its AddPartitionsToTxn may be late.
        """
        assert view.claim is not None
        assert view.ongoing is not None
        self._stats.resumed += 1
        elapsed_ms = max(0, view.claim.at.timestamp_ms - view.ongoing.since.timestamp_ms)
        transaction.began_at -= elapsed_ms / 1000
        transaction.is_continued, transaction.former = True, former.written
        transaction.joined.update(place for done in former.written.values() for place in done)
        pending = view.pending.get(transaction.producer, [])
        transaction.members = one_of_each_member([record.replaced(topics=[]) for record in pending if record.topics])
        transaction.former_groups = {record.group_id for record in pending}
        for place, following in former.following.items():
            sent = [
                (one.sequence, one.records, written_before(place, one.base_offset, one.records))
                for one in former.sent.get(place, ())
            ]
            self._sequences.restore(self.keeper.client, place, following, sent)

    def _admit(self, request: TxnRequest, coordinator: str | None) -> None:
        self.used_at = trio.current_time()
        view = self.keeper.view
        is_open = self.transaction is not None and not self.id.state.is_pending
        if is_open and self.transaction is not None and self._is_former(self.transaction.producer):
            raise self._leave()
        if view is not None and self.keeper.is_elsewhere(view) and self._is_lost(request.client, view):
            self._drop("fenced")
            raise self._leave()
        self.id.admit(request, coordinator, view.client if view is not None else NOBODY)

    def _is_lost(self, client: Producer, view: IdView) -> bool:
        """Whether the claim of another instance has ended what is open here, and the client that asks has the id.

        To continue here would acknowledge data that no commit of the other instance knows. A client that has no
        response to its last end has the id, too.
        """
        last = last_end(view)
        has_id = client == view.client or (last is not None and client == last.client)
        part = self.transaction.producer if self.transaction is not None else None
        is_over = part is not None and view.verdict(part) is not Verdict.UNDECIDED
        return has_id and (client != self.keeper.client or (is_over and not self.id.state.is_pending))

    def _refuse_while_deciding(self) -> None:
        """TxnError while a decision is under way, unless it waits for data: an abort comes before it then."""
        if self._undecided is None and not self._turns.is_waiting:
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
            await self._fence_others(transaction, places)
            transaction.joined.update(places)

    async def _fence_others(self, transaction: Transaction, places: Sequence[TopicPartition]) -> None:
        """No instance that has not read the claims of others acknowledges data of this transaction. TxnError.

        It would treat them as data of its own transaction, which a claim has aborted: the client's identity is the
        same, in the first protocol.
        """
        view, fenced_at = self.keeper.view, self.keeper.fenced_at
        if not self.keeper.had_others or view is None:
            return
        known = transaction.joined | fenced_at
        new = [place for place in places if place not in known]
        if not new:
            return
        try:
            await self._wait(lambda: self._tools.former.fence(view.generations, transaction.producer, new))
        except (OSError, RemoteProtocolError) as error:
            raise TxnError(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(error)) from error
        fenced_at.update(new)

    def _is_former(self, part: Producer) -> bool:
        """Whether another instance continues what this one has begun under an epoch."""
        view = self.keeper.view
        return view is not None and view.is_former(part)

    def discard(self) -> None:
        """What is open is nothing of this owner's any more."""
        if self.id.drop():
            self._stats.open -= 1
        self._abandon()

    def _leave(self) -> TxnError:
        """Another instance continues the open transaction."""
        view = self.keeper.view
        assert view is not None
        self._has_left = True
        self.discard()
        return self.keeper.continued_elsewhere(view)

    async def _announce(self, transaction: Transaction, request: TxnRequest, batches: Sequence[ClientBatch]) -> None:
        """Has partitions in the log, before anything is written there."""
        sequences, client = self._sequences, request.client
        firsts = {
            place: sequences.following(client, place, batch.base_sequence)
            for batch in reversed(batches)
            for place in places_of([batch])
            if not transaction.is_announced(batch, client, sequences)
        }
        if not (written := [place for place in dict.fromkeys(places_of(batches)) if place in firsts]):
            return
        added, usual = transaction.unannounced(transaction.joined), transaction.unannounced(self._usual)
        ends = await self._wait(lambda: self._ends.with_likely(written, added, usual))
        if self.keeper.claim is None:
            raise await self._lose("the claim was lost")
        if not request.is_own and all(batch.base_sequence >= 0 for batch in batches):
            firsts = {place: firsts.get(place, sequences.following(client, place, 0)) for place in ends}
        else:
            firsts = {}
        if not await self.keeper.announce(transaction.announcement(self.keeper.claim.nonce, ends, firsts)):
            raise await self._lose("the log did not take the transaction's partitions")
        transaction.announced.update(ends)
        transaction.first_sequences.update(firsts)

    async def _begin(self) -> Transaction:
        if self.transaction is not None:
            return self.transaction
        former_claim = self.keeper.claim
        producer = await self.keeper.take_epoch()
        if self.keeper.claim is not former_claim and self._has_aborted_data():
            self.id.restore(committed=False)  # to abort must be a success then
            raise self.id.doom("another instance began the transaction")
        self._adopted = False
        self.transaction = Transaction(producer, TransactionWriter(self._connections, *producer))
        if self.id.begin():
            self._stats.open += 1
            self._tools.traces.begun(self.keeper.transactional_id, self.keeper.client_id)
        return self.transaction

    def _has_aborted_data(self) -> bool:
        """Whether the claim of this instance has aborted data: another one began the transaction just before it."""
        view = self.keeper.view
        last = view.last if view is not None and view.is_doomed else None
        is_ours = view is not None and view.claim is not None and last is not None and last.at == view.claim.at
        is_other = self.keeper.former_instance != self._tools.instance_id
        return is_ours and is_other and last is not None and last.reason == LOST

    async def _begin_to_end(self, *, committed: bool) -> Transaction:
        """As ``_begin``; an abort succeeds, whatever the claim for it has aborted."""
        try:
            return await self._begin()
        except TxnError as error:
            if committed or error is not self.id.doomed:
                raise
            self.id.doomed = None
            return await self._begin()

    async def _lose(self, why: str) -> TxnError:
        """Has the open transaction aborted by a claim of ours, unless somebody else's has done it; what to tell."""
        view = self.keeper.view
        if view is not None and view.client != self.keeper.client:
            self._stats.count_fenced()
            self._drop("fenced")
            return self.keeper.fenced()
        open_part = self.transaction.producer if self.transaction is not None else None
        if view is None or open_part is None or view.verdict(open_part) is Verdict.UNDECIDED:
            try:
                await self.keeper.claim_again(open_part or NOBODY)
            except TxnError:
                if open_part is not None and self._is_former(open_part):
                    raise self._leave() from None
                raise
        else:
            self.keeper.claim = None  # a claim now would abort a transaction of another instance
        self._drop("failed")
        return self.id.doom(why)

    def _drop(self, reason: str) -> None:
        if self.transaction is not None and self.transaction.is_continued:
            # what the client has no response to it may give up, and use its sequences for something else
            self._sequences.clear()
        super()._drop(reason)

    def _count_aborted(self, reason: str) -> None:
        if self._undecided is not None:
            return  # it is counted
        places = self.transaction.announced if self.transaction is not None else ()
        super()._count_aborted(reason)
        self._tools.traces.ended(self.keeper.transactional_id, reason, places)

    # -- data

    async def produce(
        self, request: TxnRequest, batches: Sequence[ClientBatch], *, implicit: bool, accepted: Callable[[], None]
    ) -> list[Written]:
        places = places_of(batches)
        async with self._turn_to_grow(request, None):
            transaction = await self._begin() if implicit else self.transaction
            if transaction is None or not (implicit or transaction.joined.issuperset(places)):
                raise self._not_added("the partition")
            size = sum(len(batch.batch) for batch in batches)
            with suppress(Interrupted):  # the writer refuses the batches then, and their sequences are used up
                await self._announce(transaction, request, batches)
                await self._wait(lambda: transaction.writer.room(size))
            sends = transaction.accept(request.client, batches, self._sequences)
            accepted()
        return await self._results(transaction, sends)

    def _not_added(self, what: str) -> TxnError:
        """The error for what was not added to the transaction; or was, at a kproxy that died before the log knew it."""
        if self._adopted and self.transaction is None:
            # to abort must be a success then: a client gives up for good otherwise
            self._adopted = False
            self.id.restore(committed=False)
            return self.id.doom(_RESTARTED)
        if self.transaction is not None and self.transaction.is_continued:
            return self.id.doom(_RESTARTED)
        return not_added(what)

    async def commit_offsets(self, request: TxnRequest, offsets: TransactionOffsets, *, implicit: bool) -> None:
        """Appends the offsets to the log; they move when the transaction is committed."""
        async with self._turn_to_grow(request, offsets.group_id):
            added = self.transaction.added_groups if self.transaction is not None else ()
            if not implicit and offsets.group_id not in added:
                raise self._not_added(f"group {offsets.group_id}")
            await self._check_member(offsets)
            transaction = await self._begin()
            if is_other_generation(offsets, transaction.members):
                raise TxnError(ErrorCode.ILLEGAL_GENERATION, "the transaction has offsets of another generation")
            if not implicit and offsets.group_id in transaction.former_groups:
                raise self.id.doom(_RESTARTED)  # whether what is there was late can't be told
            if not implicit:
                self.id.take_offsets(transaction.added_groups, offsets, request.connection)
            if self.keeper.claim is None:
                raise await self._lose("the claim was lost")
            offsets.nonce = self.keeper.claim.nonce
            offsets.producer_id, offsets.epoch = transaction.producer
            view = await self.keeper.append(offsets)
            if view is None or offsets not in view.pending.get(transaction.producer, []):
                raise await self._lose("the log did not take the group's offsets")
            if offsets.topics:
                transaction.members = one_of_each_member([*transaction.members, offsets.replaced(topics=[])])

    async def _check_member(self, offsets: TransactionOffsets) -> None:
        """TxnError if the member that read what these offsets say, or its generation, is not current (KIP-447).

        Also while too many offsets are in open transactions, or wait for brokers that do not take them.
        """
        self._tools.groups.check_room()
        error = await self._wait(lambda: self._tools.groups.check(offsets))
        if error:
            raise TxnError(ErrorCode(error), f"group {offsets.group_id}, generation {offsets.generation_id}")

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
            elif bumps or self._reports_doom(committed, also):
                # empty, but the log has to know of it
                await self._decide(await self._begin_to_end(committed=committed), committed, bumps)
            else:
                await self._check_nothing_open()
                self.id.end_nothing(committed=committed)
            if self._waits(beside):
                why = "another claim came before the decision: what was prepared still is"
                raise TxnError(ErrorCode.CONCURRENT_TRANSACTIONS, why)
            if not committed:
                self._refuse_overtaken()
            if bumps:
                await self._raise_epoch(request.client)
            return self.keeper.client

    async def _check_nothing_open(self) -> None:
        """TxnError if the client has begun its transaction at another instance.

        A former instance may have begun it, and the log not know it yet. After a claim nothing of that counts.
        """
        view = await self.keeper.read_to_end()
        if view is not None and self.keeper.is_elsewhere(view):
            self._has_left = True
            raise self.keeper.continued_elsewhere(view)
        if view is not None and self.keeper.claim is None and not view.expired:
            await self.keeper.claim_again()

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
        raise TxnError(ErrorCode.CONCURRENT_TRANSACTIONS, "others claim the transactional id at the same time")

    def _turn_to_end(self, request: TxnRequest, committed: bool) -> AbstractAsyncContextManager[None]:
        """The turn; an urgent one for an abort by the client that has the id. TxnError while it is being decided."""
        if self._undecided is not None:
            return self._turns.ordinary()
        if committed:
            self.id.refuse_pending()
            return self._turns.ordinary()
        self._refuse_while_deciding()
        self._admit(request, COORDINATOR)
        return self._turn_to_abort("the client aborted the transaction")

    def _reports_doom(self, committed: bool, also: DecisionScope) -> bool:
        """Whether this aborts what kproxy had to abort before: only after such an abort may the client continue."""
        view = self.keeper.view
        last = view.last if view is not None and view.is_doomed else None
        return not committed and also.reason == ASKED and last is not None and last.reason == DOOMED

    def _repeated(self, request: TxnRequest, committed: bool) -> Producer | None:
        found = self.id.repeated_end(request, last_end(self.keeper.view), committed=committed)
        if found is not None and self.transaction is None and not committed:
            self.id.doomed = None  # the client has aborted what was lost
        return found

    async def _decide(
        self,
        transaction: Transaction,
        committed: bool,
        bumps: bool,
        beside: DecidedParts = NOTHING_BESIDE,
        reason: str = ASKED,
    ) -> None:
        """Has the log show a decision. TxnError if it was to be committed and is aborted. ``reason`` of an abort."""
        self.id.ask_to_end(committed=committed)
        self._tools.traces.step(self.keeper.transactional_id, "commit asked" if committed else "abort asked")
        try:
            why = await self._why_not(transaction) if committed else reason
            if why is None:
                self._tools.traces.step(self.keeper.transactional_id, "data acknowledged")
            as_asked = why is None or not committed  # else the client has to abort, which raises its epoch
            verdict = await self._until_decided(
                transaction, why, bumps and as_asked, beside if as_asked else NOTHING_BESIDE
            )
        except BaseException:
            self._has_left |= self._is_former(transaction.producer)
            # its outcome has to be known before any response; nothing proceeds before
            self._count_aborted("failed")
            self._abandon()
            self.keeper.claim, self._undecided = None, transaction
            raise
        if verdict is Verdict.COMMITTED:
            self._committed()
            self._tools.traces.ended(self.keeper.transactional_id, "committed", transaction.announced)
            self._tools.groups.committed(self.keeper.transactional_id, transaction.producer)
            return
        self._drop("client" if why in (ASKED, HAND) else "failed")
        if committed:
            raise self.id.doom(why or "another claim aborted the transaction")

    async def _find_out(self) -> None:
        """Learns from the log, or by a claim, the outcome of a decision that got no response. TxnError."""
        transaction = self._undecided
        if transaction is None:
            return
        view = await self._settled(transaction, await self.keeper.read_to_end())
        self._undecided = None
        self._take_decided(view, transaction)
        if view.verdict(transaction.producer) is Verdict.COMMITTED:
            self.id.apply(Event.COMMITTED)
            self._tools.groups.committed(self.keeper.transactional_id, transaction.producer)
        else:
            self.id.apply(Event.ABORTED)
            self.id.doom("the decision did not reach the log")

    async def _settled(self, transaction: Transaction, view: IdView | None) -> IdView:
        """A view that shows what became of a transaction, by a claim if it must. TxnError if others continue it."""
        part = transaction.producer
        if view is not None and view.verdict(part) is not Verdict.UNDECIDED and not view.is_former(part):
            return view
        try:
            return await self.keeper.settle(part)
        finally:
            self._has_left |= self._is_former(part)

    def _take_decided(self, view: IdView, transaction: Transaction) -> None:
        """The client's identity after a decision of its own: the one that this decision gave it.

        After a claim it keeps its own. The view's may be another producer's, whose claim follows in the log: what
        this client asks for next is fenced then.
        """
        last = view.last
        is_last = last is not None and last.producer == transaction.producer and not last.by_claim
        counted = is_last or view.verdict(transaction.producer) is Verdict.COMMITTED
        if counted and transaction.next_client is not None:
            self.keeper.client = transaction.next_client

    async def _why_not(self, transaction: Transaction) -> str | None:
        """Why a transaction can't be committed; None if it can: all its data are acknowledged."""
        try:
            return await self._wait(lambda: self._find_fault(transaction))
        except Interrupted as error:
            return error.message

    async def _find_fault(self, transaction: Transaction) -> str | None:
        await transaction.writer.flush()
        if (why := why_not_committed(transaction, self._ends, self._tools.log.views)) is not None:
            return why
        for offsets in transaction.members:
            error = await self._tools.groups.check(offsets)
            if error:
                return f"group {offsets.group_id} is not at generation {offsets.generation_id} any more: error {error}"
        return None

    async def _until_decided(
        self, transaction: Transaction, why: str | None, bumps: bool, beside: DecidedParts
    ) -> Verdict:
        """Appends the decision (None: to commit) and gives the verdict that the log shows; by a claim if it must."""
        written = transaction.writer.written() if why is None else None
        fresh = await self._tools.new_producer_id() if bumps and needs_client_producer_id(self.keeper.client) else -1
        following_client = next_client(self.keeper.client, fresh) if bumps else self.keeper.client
        began = trio.current_time()
        if self.keeper.claim is None:
            view = await self.keeper.read_to_end()
        else:
            body = transaction.decision(self.keeper.claim.nonce, following_client, written, why or "", beside)
            view = await self.keeper.append(body)
        view = await self._settled(transaction, view)
        self._take_decided(view, transaction)
        self._stats.appends.observe(trio.current_time() - began)
        if written is not None:
            self._usual = {*written, *(place for done in transaction.former.values() for place in done)}
            self._ends.note(written)
        return view.verdict(transaction.producer)

    async def prepare(self, request: TxnRequest) -> None:
        """Leaves the transaction, with all its data acknowledged, to a later decision. TxnError if it is aborted."""
        async with self._turn_to_grow(request, None):
            transaction = await self._begin()
            why = await self._why_not(transaction) if not transaction.is_continued else "another instance began it"
            if why is not None:
                raise await self._lose(why)
            view = None
            if self.keeper.claim is not None:
                view = await self.keeper.append(transaction.preparation(self.keeper.claim.nonce))
            if view is None or transaction.producer not in view.prepared:
                view = await self.keeper.claim_again()  # the record may still have come first
            if transaction.producer not in view.prepared:
                raise await self._lose("the log did not take it")
            self.transaction = None
            self.id.apply(Event.PREPARED)
            self._stats.open -= 1
            self._tools.traces.ended(self.keeper.transactional_id, "prepared", transaction.announced)

    async def decide(self, client: Producer | None, *, committed: bool, also: DecisionScope) -> None:
        """Decides parts that were prepared: ``client``, if given, must be the owner of the id.

        What is open here is aborted by an abort; a commit is CONCURRENT_TRANSACTIONS then. TxnError unless the log
        shows the decision.
        """
        async with self._turn_to_decide(client, committed):
            self.used_at = trio.current_time()
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
            raise TxnError(ErrorCode.CONCURRENT_TRANSACTIONS, "others claim the transactional id at the same time")

    def _turn_to_decide(self, client: Producer | None, committed: bool) -> AbstractAsyncContextManager[None]:
        """The turn; an urgent one for an abort, unless it names another client than this instance knows. TxnError."""
        if committed or client not in (None, self.keeper.client):
            if self._undecided is None:
                self.id.refuse_pending()
            return self._turns.ordinary()
        self._refuse_while_deciding()
        return self._turn_to_abort("the transaction was aborted by hand")

    async def _follow(self, client: Producer | None) -> IdView:
        """What the log says now; if another claim holds, this owner continues under that one. TxnError."""
        view = await self.keeper.read_to_end()
        if view is None or view.claim is None:
            raise TxnError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, "the log does not know the transactional id")
        if client not in (None, view.client):
            raise fenced(view.client)
        if not self.keeper.holds(view):
            if self.transaction is not None:
                self._drop("failed")
                self.id.doom("another claim aborted the transaction")
            self.keeper.serve(view)
        return view

    async def _decided(self, committed: bool, beside: DecidedParts) -> bool:
        """Whether the log shows the decision; if not, something came in between. TxnError if it may not be."""
        transaction = self.transaction
        if committed and transaction is not None:
            raise TxnError(ErrorCode.CONCURRENT_TRANSACTIONS, "the producer of the id has an open transaction here")
        try:
            # not _begin alone: the log has to know that an operator aborted what the claim for this aborts
            part = transaction or await self._begin_to_end(committed=committed)
            reason = HAND if transaction is not None or self._is_client_unaware() else ASKED
            await self._decide(part, committed, bumps=False, beside=beside, reason=reason)
        except TxnError as error:
            if error.error_code is not ErrorCode.TRANSACTION_ABORTABLE:
                raise
            self.id.doomed = None
            return False
        if transaction is not None:
            self.id.doom("the transaction was aborted by hand")
        return not self._waits(beside)

    def _is_client_unaware(self) -> bool:
        """Whether what the client itself wrote is aborted, by a claim or by kproxy, and the client may not know it."""
        view = self.keeper.view
        last = view.last if view is not None and view.is_doomed else None
        return last is not None and last.reason != LOST_MEMBERS

    def _waits(self, beside: DecidedParts) -> bool:
        """Whether parts are still undecided: a claim came before the decision, and aborted only what was open."""
        view = self.keeper.view
        prepared = view.prepared if view is not None else {}
        return any(Producer(row.producer_id, row.epoch) in prepared for row in beside.parts)

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
        if not self.is_overdue(trio.current_time()):
            return
        why = f"the transaction took longer than its {self.keeper.timeout_ms} ms"
        async with self._turn_to_abort(why):
            if self.is_overdue(trio.current_time()):
                await self._lose(why)
