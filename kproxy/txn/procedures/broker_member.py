"""Members whose data are in transactions of the broker's, each with an id of its own; the log still decides them.

Joining, preparing and deciding are written to kproxy's log as for any member, under a producer id of kproxy's. The
record of the join names the member's transaction at the broker. So any reader of the log can end that transaction, at
any time.
"""

from collections.abc import Sequence
from contextlib import suppress

from kproxy.codec._generated.transaction_member import TransactionMemberNative
from kproxy.codec.messages import ErrorCode
from kproxy.codec.topic_partition import TopicPartition
from kproxy.txn.ids import Producer
from kproxy.txn.procedures.broker_protocol import BrokerCoordinator, Protocol
from kproxy.txn.procedures.id_lock import Interrupted
from kproxy.txn.procedures.member import Member
from kproxy.txn.procedures.member_ids import MemberIds
from kproxy.txn.procedures.outside import OwnerTools, WriteTerms
from kproxy.txn.procedures.transaction import Transaction
from kproxy.txn.txn_error import TxnError
from kproxy.txn.view import IdView
from kproxy.txn.view_values import BrokerTransaction


class BrokerMember(Member):
    """One such member: the broker hides its data from readers until it receives the decision."""

    def __init__(
        self,
        transactional_id: str,
        name: str,
        producer: Producer,
        tools: OwnerTools,
        transaction: BrokerTransaction,
        requests: BrokerCoordinator,
        slots: MemberIds,
    ) -> None:
        """``producer``: for its records in kproxy's log. ``transaction``: nothing was written in it yet.

        ``slots`` has given the transactional id of ``transaction``, and is informed whether the member keeps it.
        """
        super().__init__(transactional_id, name, producer, tools)
        self.broker_transaction = transaction
        self._requests = requests
        self._slots = slots
        self._protocol = Protocol.of(transaction.level)
        terms = WriteTerms(transaction.transactional_id, self._protocol.produce, line=())
        writer = self._connections.writer(transaction.producer, terms)
        self._transaction = Transaction(transaction.producer, writer, tools.time.now())

    async def join(self, view: IdView, main: Producer) -> bool:
        """Joins a transaction. If the log names its transaction, nobody else uses the id before that transaction has
        ended.

        If it does not, the join record was late and names an epoch under which nothing was ever written.
        """
        joined = False
        try:
            joined = await super().join(view, main)
        finally:
            if joined:
                self._slots.joined(self.producer, self.broker_transaction)
            else:
                self._slots.give_back(self.broker_transaction.transactional_id)
        return joined

    def _native(self) -> TransactionMemberNative:
        name, producer, level, timeout_ms = self.broker_transaction
        return TransactionMemberNative(name, *producer, level, timeout_ms)

    async def _announce(self, places: Sequence[TopicPartition]) -> None:
        """The broker receives the partitions, kproxy's log need not: in the second protocol with the batches."""
        wanted = self._transaction.unannounced(dict.fromkeys(places))
        if wanted and self._protocol.adds:
            try:
                await self._turns.wait(lambda: self._requests.add_partitions(self.broker_transaction.producer, wanted))
            except Interrupted:
                self._transaction.announced.update(wanted)  # the broker may have them, and has to receive the abort
                raise
            except TxnError as error:
                raise TxnError(ErrorCode.TRANSACTION_ABORTABLE, error.message) from error
        self._transaction.announced.update(wanted)

    async def give_up(self) -> None:
        """Aborts it at the broker at once, so that readers need not wait; where that fails it is done later."""
        await super().give_up()
        if self._transaction.announced:
            with suppress(TxnError):
                await self._requests.end(self.broker_transaction.producer, self._protocol, committed=False)
