"""Has the log show what becomes of a transaction: a decision counts when it is read back, and a claim settles the rest.

The broker's response to the append decides nothing. Where the log shows no decision a claim is made, which aborts what
is undecided below it: then either the decision came before that claim and counts, or it never will.
"""

from kproxy.txn.claims import needs_client_producer_id, next_client
from kproxy.txn.prepared_parts import DecidedParts
from kproxy.txn.procedures.claim_keeper import ClaimKeeper
from kproxy.txn.procedures.outside import OwnerTools
from kproxy.txn.procedures.partition_ends import PartitionEnds
from kproxy.txn.procedures.transaction import Transaction, why_not_committed
from kproxy.txn.verdict import Verdict
from kproxy.txn.view import IdView


class LogDecider:
    """Decides the transactions of one transactional id, for the request that has its turn."""

    def __init__(self, keeper: ClaimKeeper, tools: OwnerTools, ends: PartitionEnds) -> None:
        """``ends``: of the partitions, as they were announced."""
        self._keeper = keeper
        self._tools = tools
        self._ends = ends
        #: The transaction whose decision got no response, while the log could not be read either.
        self.undecided: Transaction | None = None

    async def find_fault(self, transaction: Transaction) -> str | None:
        """The reason why a transaction can't be committed; None if it can: all its data are acknowledged."""
        await transaction.writer.flush()
        if (why := why_not_committed(transaction, self._ends, self._tools.log.views)) is not None:
            return why
        for offsets in transaction.members:
            error = await self._tools.groups.check(offsets)
            if error:
                return f"group {offsets.group_id} is not at generation {offsets.generation_id} any more: error {error}"
        return None

    async def decide(self, transaction: Transaction, why: str | None, *, bumps: bool, beside: DecidedParts) -> Verdict:
        """Appends the decision and returns the verdict that the log shows; by a claim if it must. TxnError.

        ``why``: the reason of an abort; None: to commit. ``bumps``: the client gets its next identity with it.
        """
        written = transaction.writer.written() if why is None else None
        known = self._keeper.client
        fresh = await self._tools.new_producer_id() if bumps and needs_client_producer_id(known) else -1
        following_client = next_client(known, fresh) if bumps else known
        began = self._tools.time.now()
        if self._keeper.claim is None:
            view = await self._keeper.read_to_end()
        else:
            body = transaction.decision(self._keeper.claim.nonce, following_client, written, why or "", beside)
            view = await self._keeper.append(body)
        verdict = await self._settled(transaction, view)
        self._tools.stats.appends.observe(self._tools.time.now() - began)
        if written is not None:
            self._ends.note(written, transaction.former.values())
        return verdict

    def leave_open(self, transaction: Transaction) -> None:
        """Records that the outcome of a decision is not known: nothing proceeds before ``find_out``."""
        self._keeper.note_left(transaction.producer)
        self._keeper.claim, self.undecided = None, transaction

    async def find_out(self) -> Verdict | None:
        """The outcome of a decision that was left open, from the log or by a claim; None: there is none. TxnError."""
        transaction = self.undecided
        if transaction is None:
            return None
        verdict = await self._settled(transaction, await self._keeper.read_to_end())
        self.undecided = None
        return verdict

    async def prepare(self, transaction: Transaction, batch_id: str | None = None) -> bool:
        """Leaves a transaction, all acknowledged, to a later decision; whether the log shows that.

        ``batch_id``: as of ``Owner.prepare``. TxnError, also if another instance continues it.
        """
        view = None
        if self._keeper.claim is not None:
            view = await self._keeper.append(transaction.preparation(self._keeper.claim.nonce, batch_id))
        if view is None or transaction.producer not in view.prepared:
            view = await self._keeper.claim_again(transaction.producer)  # the record may still have come first
        return transaction.producer in view.prepared

    async def check_nothing_open(self) -> None:
        """TxnError if the client has begun its transaction at another instance.

        A former instance may have begun it, and the log not know it yet. After a claim nothing of that counts.
        """
        view = await self._keeper.read_to_end()
        if view is not None and self._keeper.is_elsewhere(view):
            raise self._keeper.continued_elsewhere(view)
        if view is not None and self._keeper.claim is None and not view.expired:
            await self._keeper.claim_again()

    async def _settled(self, transaction: Transaction, view: IdView | None) -> Verdict:
        """The verdict on a transaction, by a claim if the log does not show it. TxnError if others continue it."""
        part = transaction.producer
        if view is None or view.verdict(part) is Verdict.UNDECIDED or view.is_former(part):
            try:
                view = await self._keeper.settle(part)
            finally:
                self._keeper.note_left(part)
        self._take_decided(view, transaction)
        verdict = view.verdict(part)
        if verdict is Verdict.COMMITTED:
            self._tools.groups.committed(self._keeper.transactional_id, part)
        return verdict

    def _take_decided(self, view: IdView, transaction: Transaction) -> None:
        """The client's identity after a decision of its own: the one that this decision gave it.

        After a claim it keeps its own. The view's may be another producer's, whose claim follows in the log: what
        this client asks for next is fenced then.
        """
        last = view.last
        is_last = last is not None and last.producer == transaction.producer and not last.by_claim
        counted = is_last or view.verdict(transaction.producer) is Verdict.COMMITTED
        if counted and transaction.next_client is not None:
            self._keeper.client = transaction.next_client
