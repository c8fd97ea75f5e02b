"""A transactional id is taken over from another instance, and its client's open transaction is continued here.

The claim comes first: from then on the log takes nothing from the former instance. Then its data are fenced and read.
Where it can't be told what was written the transaction is aborted.
"""

from typing import NamedTuple

from kproxy.codec.messages import ErrorCode
from kproxy.txn.claims import refuse_replaced, was_answered
from kproxy.txn.client_sequences import ClientSequences
from kproxy.txn.ids import Producer
from kproxy.txn.logged_group_offsets import one_of_each_member
from kproxy.txn.procedures.claim_keeper import ClaimKeeper
from kproxy.txn.procedures.former import Former, Uncertain
from kproxy.txn.procedures.outside import OwnerTools
from kproxy.txn.procedures.transaction import Transaction, written_before
from kproxy.txn.txn_error import TxnError
from kproxy.txn.view import IdView
from kproxy.txn.writes import TxnSend


class TakenOver(NamedTuple):
    """An id that this instance coordinates from now on."""

    view: IdView
    #: The former instances' data of the transaction that is continued; None: nothing is open.
    former: Former | None


class Takeover:
    """The takeover of one transactional id by this instance."""

    def __init__(self, keeper: ClaimKeeper, tools: OwnerTools) -> None:
        """``keeper`` claims for the client from now on."""
        self._keeper = keeper
        self._tools = tools

    async def answered(self, resumed: Producer) -> IdView | None:
        """The view with the response to an InitProducerId that names an identity (KIP-360); None: it has none.

        TxnError if the request is refused, or another instance has given the response and has a transaction open:
        its client has received that response.
        """
        view = await self._keeper.read_to_end()
        if view is None or view.claim is None or not was_answered(view, resumed):
            refuse_replaced(view, resumed)
            return None
        is_open = view.ongoing is not None and view.claim.instance_id != self._tools.instance_id
        if is_open and view.client != self._keeper.client:
            raise TxnError(ErrorCode.CONCURRENT_TRANSACTIONS, f"a transaction is open at {view.claim.instance_id}")
        return view

    async def take(self, view: IdView, *, continues: bool) -> TakenOver:
        """Coordinates the id for the client that has it; what is open is continued, if it can be, or aborted. TxnError.

        Nothing is claimed if nothing is open.
        """
        self._keeper.take_over(view)
        if continues and view.awaits_client():
            return await self._continue(view)
        return TakenOver(view if view.ongoing is None else await self._keeper.claim_again(), None)

    async def _continue(self, view: IdView) -> TakenOver:
        assert view.ongoing is not None
        view = await self._keeper.claim_to_continue(view.ongoing.producer)
        if view.ongoing is None:
            return TakenOver(view, None)  # a member came before the claim
        name, instance_id = self._keeper.transactional_id, self._tools.instance_id
        try:
            former = await self._tools.former.read(view, view.continued(view.ongoing.producer))
        except Uncertain as error:
            if not self._keeper.holds(view):
                raise self._keeper.continued_elsewhere(view) from error
            self._tools.report("warning", "can't continue a transaction, aborting it", name, reason=str(error))
            return TakenOver(await self._keeper.claim_again(), None)
        if not self._keeper.holds(view):
            raise self._keeper.continued_elsewhere(view)
        self._tools.report("info", "continuing a transaction of another instance", name, instance_id=instance_id)
        return TakenOver(view, former)


def restore(transaction: Transaction, former: Former, view: IdView, sequences: ClientSequences[TxnSend]) -> None:
    """Restores a transaction from its former instances, as far as the log and the partitions name its state.

    A partition without data is not among those that the client has added: its AddPartitionsToTxn may be late.
    """
    assert view.claim is not None
    assert view.ongoing is not None
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
        sequences.restore(view.client, place, following, sent)
