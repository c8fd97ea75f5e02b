"""The open transaction of an id that kproxy's log decides, from its first epoch to the decision that the log shows.

prepare (a state that admits nothing else) -> append -> complete (what the view says after the record). The broker's
response to an append decides nothing, nor does the response to the client; the view does.
"""

from typing import Final

from kproxy.codec.messages import ErrorCode
from kproxy.txn.prepared_parts import (
    NOTHING_BESIDE,
    DecidedParts,
)
from kproxy.txn.procedures.announcements import Announcements
from kproxy.txn.procedures.claim_keeper import ClaimKeeper
from kproxy.txn.procedures.id_lock import Interrupted
from kproxy.txn.procedures.log_decider import LogDecider
from kproxy.txn.procedures.outside import OwnerTools
from kproxy.txn.procedures.owner import Owner
from kproxy.txn.procedures.partition_ends import PartitionEnds
from kproxy.txn.procedures.pending_offsets import PendingOffsets
from kproxy.txn.procedures.takeover import Takeover
from kproxy.txn.procedures.transaction import Transaction
from kproxy.txn.states import TransactionEvent
from kproxy.txn.txn_error import TxnError
from kproxy.txn.unasked_aborts import has_claim_aborted_data
from kproxy.txn.verdict import Verdict
from kproxy.txn.view_values import ASKED, HAND

#: The reason why a transaction that kproxy began before a restart can only be aborted.
RESTARTED: Final = "kproxy was restarted in the transaction"


class TransactionAtLog(Owner):
    """Begins it, loses it and has it decided; which requests may do so is for ``LogOwner`` to say."""

    def __init__(self, transactional_id: str, tools: OwnerTools) -> None:
        """``tools`` are shared with the other owners of this instance."""
        super().__init__(tools.stats, tools.connections(), tools.time)
        self.keeper = ClaimKeeper(transactional_id, tools, self.id)
        self._tools = tools
        ends = PartitionEnds(tools.ends, tools.topics, tools.time)
        self._announcements = Announcements(self.keeper, tools, ends, self._sequences)
        self._offsets = PendingOffsets(self.keeper, tools.groups)
        self._decider = LogDecider(self.keeper, tools, ends)
        self._takeover = Takeover(self.keeper, tools)
        #: Whether a transaction may have begun with a former coordinator that the log knows nothing of.
        self._adopted = False

    # -- it begins, and is lost

    async def _begin(self) -> Transaction:
        if self.transaction is not None:
            return self.transaction
        former_claim = self.keeper.claim
        producer = await self.keeper.take_epoch()
        if self.keeper.claim is not former_claim and self._has_aborted_data():
            self.id.restore(committed=False)  # to abort must be a success then
            raise self.id.doom("another instance began the transaction")
        self._adopted = False
        self._sequences.begin()
        self.transaction = Transaction(producer, self._connections.writer(producer), self._now())
        self.id.begin()
        self._stats.open += 1
        self._tools.traces.begun(self.keeper.transactional_id, self.keeper.client_id)
        return self.transaction

    def _has_aborted_data(self) -> bool:
        """Whether the claim of this instance has aborted data: another one began the transaction just before it."""
        is_other = self.keeper.former_instance != self._tools.instance_id
        return is_other and has_claim_aborted_data(self.keeper.view)

    async def _begin_to_end(self, *, committed: bool) -> Transaction:
        """Begins an end (``_begin``); an abort succeeds, whatever the claim for it has aborted."""
        try:
            return await self._begin()
        except TxnError as error:
            if committed or error is not self.id.doomed:
                raise
            return await self._begin()

    async def _lose(self, why: str) -> TxnError:
        """Has the open transaction aborted by a claim of ours, unless somebody else's has done it; what to answer."""
        view = self.keeper.view
        if view is not None and view.client != self.keeper.client:
            self._stats.count_fenced()
            self._drop("fenced")
            return self.keeper.fenced()
        if self.transaction is None:
            # an abort saw it before it waited for its turn; a claim now would abort what is open there
            return TxnError(ErrorCode.NOT_COORDINATOR, "another instance has the transaction")
        open_part = self.transaction.producer
        if view is None or view.verdict(open_part) is Verdict.UNDECIDED:
            try:
                await self.keeper.claim_again(open_part)
            except TxnError:
                if self.keeper.is_former(open_part):
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
        if self.transaction is None:
            return  # it is counted
        places = self.transaction.announced
        super()._count_aborted(reason)
        self._tools.traces.ended(self.keeper.transactional_id, reason, places)

    def _not_added(self, what: str) -> TxnError:
        """The error, also for what was added at a kproxy that ended before the log knew it."""
        if self._adopted:
            # to abort must be a success then: a client gives up for good otherwise
            self._adopted = False
            self.id.restore(committed=False)
            return self.id.doom(RESTARTED)
        if self.transaction is not None and self.transaction.is_continued:
            return self.id.doom(RESTARTED)
        return super()._not_added(what)

    def discard(self) -> None:
        """Forgets the open transaction, which is no longer this owner's."""
        if self.id.drop():
            self._stats.open -= 1
        self._abandon()

    def _leave(self) -> TxnError:
        """Another instance continues the open transaction."""
        view = self.keeper.view
        assert view is not None
        self.discard()
        return self.keeper.continued_elsewhere(view)

    # -- it is decided

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
            verdict = await self._decider.decide(
                transaction, why, bumps=bumps and as_asked, beside=beside if as_asked else NOTHING_BESIDE
            )
        except BaseException:
            # its outcome has to be known before any response; nothing proceeds before
            self._count_aborted("failed")
            self._abandon()
            self._decider.leave_open(transaction)
            raise
        if verdict is Verdict.COMMITTED:
            self._committed()
            self._tools.traces.ended(self.keeper.transactional_id, "committed", transaction.announced)
            return
        self._drop("client" if why in (ASKED, HAND) else "failed")
        if committed:
            raise self.id.doom(why or "another claim aborted the transaction")

    async def _find_out(self) -> None:
        """Learns from the log, or by a claim, the outcome of a decision that got no response. TxnError."""
        verdict = await self._decider.find_out()
        if verdict is Verdict.COMMITTED:
            self.id.apply(TransactionEvent.COMMITTED)
        elif verdict is not None:
            self.id.apply(TransactionEvent.ABORTED)
            self.id.doom("the decision did not reach the log")

    async def _why_not(self, transaction: Transaction) -> str | None:
        """The reason why a transaction can't be committed; None if it can: all its data are acknowledged.

        One that only decides what others have prepared waits for no broker, so nothing that comes later aborts it:
        the log would say that data of the owner's are lost.
        """
        if transaction.is_empty:
            return await self._decider.find_fault(transaction)
        try:
            return await self._wait(lambda: self._decider.find_fault(transaction))
        except Interrupted as error:
            return error.message
