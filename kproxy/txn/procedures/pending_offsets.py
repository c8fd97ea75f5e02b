"""Offsets of consumer groups in open transactions: they are in the log, and move when the transaction is committed."""

from kproxy.codec._generated.transaction_offsets import TransactionOffsets
from kproxy.codec.messages import ErrorCode
from kproxy.txn.logged_group_offsets import one_of_each_member
from kproxy.txn.procedures.claim_keeper import ClaimKeeper
from kproxy.txn.procedures.id_lock import Wait
from kproxy.txn.procedures.outside import Groups
from kproxy.txn.procedures.transaction import Transaction
from kproxy.txn.txn_error import TxnError


class PendingOffsets:
    """The group offsets in the open transaction of one transactional id."""

    def __init__(self, keeper: ClaimKeeper, groups: Groups) -> None:
        """``groups`` says which members and generations are current."""
        self._keeper = keeper
        self._groups = groups

    async def check_member(self, offsets: TransactionOffsets, wait: Wait) -> None:
        """TxnError if the member that read what these offsets say, or its generation, is not current (KIP-447).

        Also while too many offsets are in open transactions, or wait for brokers that do not take them.
        """
        self._groups.check_room()
        error = await wait(lambda: self._groups.check(offsets))
        if error:
            raise TxnError(ErrorCode(error), f"group {offsets.group_id}, generation {offsets.generation_id}")

    async def append(self, transaction: Transaction, offsets: TransactionOffsets) -> str | None:
        """Appends offsets; the reason if the log does not show them, and the transaction must be aborted. TxnError."""
        if self._keeper.claim is None:
            return "the claim was lost"
        offsets.nonce = self._keeper.claim.nonce
        offsets.producer_id, offsets.epoch = transaction.producer
        view = await self._keeper.append(offsets)
        if view is None or offsets not in view.pending.get(transaction.producer, []):
            return "the log did not take the group's offsets"
        if offsets.topics:
            transaction.members = one_of_each_member([*transaction.members, offsets.replaced(topics=[])])
        return None
