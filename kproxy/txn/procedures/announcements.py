"""The steps before a transaction writes to a partition: the log names it, and others are fenced there.

Readers look for undecided records only where the log says so. So the log names a partition, and an offset below which
none of the data lies, before the first record is sent there.
"""

from collections.abc import Sequence

from kproxy.codec.messages import ErrorCode
from kproxy.codec.topic_partition import TopicPartition
from kproxy.errors import RemoteProtocolError
from kproxy.txn.client_sequences import ClientSequences
from kproxy.txn.procedures.claim_keeper import ClaimKeeper
from kproxy.txn.procedures.id_lock import Wait
from kproxy.txn.procedures.outside import OwnerTools
from kproxy.txn.procedures.partition_ends import PartitionEnds
from kproxy.txn.procedures.transaction import Transaction
from kproxy.txn.requests import ClientBatch, TxnRequest, places_of
from kproxy.txn.txn_error import TxnError
from kproxy.txn.writes import TxnSend


class Announcements:
    """The announcements of the partitions that one transactional id writes."""

    def __init__(
        self, keeper: ClaimKeeper, tools: OwnerTools, ends: PartitionEnds, sequences: ClientSequences[TxnSend]
    ) -> None:
        """``sequences``: of the client, by which the next instance recognizes what it repeats."""
        self._keeper = keeper
        self._tools = tools
        self._ends = ends
        self._sequences = sequences

    async def announce(
        self, transaction: Transaction, request: TxnRequest, batches: Sequence[ClientBatch], wait: Wait
    ) -> str | None:
        """Has the partitions of batches in the log; the reason if they are not, and the transaction must be aborted.

        With the first of them come those that the client has added, and those of the last transaction. TxnError if a
        partition can't be written; Interrupted by ``wait``, which waits for the ends of partitions.
        """
        sequences, client = self._sequences, request.client
        firsts = {
            place: sequences.following(client, place, batch.base_sequence)
            for batch in reversed(batches)
            for place in places_of([batch])
            if not transaction.is_announced(batch, client, sequences)
        }
        if not firsts:
            return None
        written = [place for place in dict.fromkeys(places_of(batches)) if place in firsts]
        added = transaction.unannounced(transaction.joined)
        ends = await wait(lambda: self._ends.with_likely(written, added, transaction.announced))
        if self._keeper.claim is None:
            return "the claim was lost"
        if not request.is_own and all(batch.base_sequence >= 0 for batch in batches):
            firsts = {place: firsts.get(place, sequences.following(client, place, 0)) for place in ends}
        else:
            firsts = {}
        if not await self._keeper.announce(transaction.announcement(self._keeper.claim.nonce, ends, firsts)):
            return "the log did not take the transaction's partitions"
        transaction.announced.update(ends)
        transaction.first_sequences.update(firsts)
        return None

    async def fence_others(self, transaction: Transaction, places: Sequence[TopicPartition], wait: Wait) -> None:
        """No instance that has not read the claims of others acknowledges data of this transaction. TxnError.

        It would treat them as data of its own transaction, which a claim has aborted: the client's identity is the
        same, in the first protocol.
        """
        view, fenced_at = self._keeper.view, self._keeper.fenced_at
        if not self._keeper.had_others or view is None:
            return
        known = transaction.joined | fenced_at
        new = [place for place in places if place not in known]
        if not new:
            return
        try:
            await wait(lambda: self._tools.former.fence(view.generations, transaction.producer, new))
        except (OSError, RemoteProtocolError) as error:
            raise TxnError(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(error)) from error
        fenced_at.update(new)
