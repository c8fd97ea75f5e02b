"""Members whose data are in transactions of the broker's, each with an id of its own; the log still decides them.

Joining, preparing and deciding are written to kproxy's log as for any member, under a producer id of kproxy's. The
record of the join names the member's transaction at the broker. So any reader of the log can end that transaction, at
any time.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import trio

from kproxy.codec._generated.transaction_member import TransactionMemberNative
from kproxy.codec.messages import ErrorCode
from kproxy.codec.topic_partition import TopicPartition
from kproxy.config.transaction_options import TransactionOptions
from kproxy.net.brokers.backoff import Backoff
from kproxy.net.brokers.cluster import Cluster
from kproxy.net.txn.broker.broker_requests import BrokerRequests
from kproxy.net.txn.broker.longest_transaction import LongestTransaction
from kproxy.net.txn.broker.member_ids import MemberIds
from kproxy.txn.ids import Producer
from kproxy.txn.procedures.broker_protocol import Protocol
from kproxy.txn.procedures.id_lock import Interrupted
from kproxy.txn.procedures.member import Member
from kproxy.txn.procedures.outside import OwnerTools, WriteTerms
from kproxy.txn.procedures.transaction import Transaction
from kproxy.txn.txn_error import TxnError
from kproxy.txn.view import IdView
from kproxy.txn.view_values import BrokerTransaction

_REST_SECONDS: Final = 1.0
_AT_A_TIME: Final = 8


class BrokerMember(Member):
    """One such member: the broker hides its data from readers until it receives the decision."""

    def __init__(
        self,
        transactional_id: str,
        name: str,
        producer: Producer,
        tools: OwnerTools,
        transaction: BrokerTransaction,
        requests: BrokerRequests,
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


class BrokerMembers:
    """Begins the transactions of the broker's that members write in."""

    def __init__(self, cluster: Cluster, config: TransactionOptions, slots: MemberIds) -> None:
        """``slots``: names for their ids."""
        self._cluster = cluster
        self._config = config
        self._patience_s = config.delivery_timeout_ms / 1000
        self._longest = LongestTransaction(cluster, config.transaction_max_timeout_ms)
        self._slots = slots
        self._fencing = trio.Semaphore(_AT_A_TIME)

    async def make(
        self, transactional_id: str, name: str, producer: Producer, tools: OwnerTools, timeout_ms: int
    ) -> BrokerMember:
        """A member that has not joined. TxnError; INVALID_TRANSACTION_TIMEOUT if the broker ends it before that.

        An id is given up where its InitProducerId had no answer: that may still come, and would abort what a member has
        written since, also where its commit is decided.
        """
        until, backoff = trio.current_time() + self._patience_s, Backoff(self._config)
        while True:
            slot = await self._slots.take()
            requests = BrokerRequests(self._cluster, slot, self._patience_s)
            try:
                protocol, longest = await self._checked(requests, slot, timeout_ms)
            except BaseException:
                self._slots.give_back(slot)
                raise
            try:
                begun = await requests.init(longest, repeats=False)
            except TxnError as error:
                if error.error_code is not ErrorCode.COORDINATOR_NOT_AVAILABLE:
                    self._slots.give_back(slot)
                    raise
                if trio.current_time() >= until:
                    raise
                await backoff.pause()
                continue
            self._slots.fenced(slot)
            transaction = BrokerTransaction(slot, begun, protocol.level, longest)
            return BrokerMember(transactional_id, name, producer, tools, transaction, requests, self._slots)

    async def _checked(self, requests: BrokerRequests, slot: str, timeout_ms: int) -> tuple[Protocol, int]:
        protocol = await requests.protocol()
        longest = await self._longest.ms(slot)
        if timeout_ms > longest:
            why = f"{timeout_ms} ms is more than the brokers' transaction.max.timeout.ms, {longest} ms"
            raise TxnError(ErrorCode.INVALID_TRANSACTION_TIMEOUT, why)
        return protocol, longest

    async def run(self) -> None:
        """Fences what may arrive late of members whose ids rest; for ever."""
        async with trio.open_nursery() as nursery:
            while True:
                await self._slots.until_unfenced()
                await trio.sleep(_REST_SECONDS)
                while (resting := self._slots.take_unfenced()) is not None:
                    nursery.start_soon(self._fence, *resting)

    async def _fence(self, slot: str, timeout_ms: int) -> None:
        """Has the broker raise the epoch of an id, which ends what a late request has opened.

        The id is given up unless the first request is answered: one that comes late would abort the next member.
        """
        requests = BrokerRequests(self._cluster, slot, self._patience_s)
        backoff, is_sure = Backoff(self._config), True
        async with self._fencing:
            while True:
                try:
                    await requests.init(timeout_ms, repeats=False)
                    break
                except TxnError as error:
                    is_sure = False
                    if error.error_code is not ErrorCode.COORDINATOR_NOT_AVAILABLE:
                        break
                await backoff.pause()
        self._slots.fenced(slot)
        if is_sure:
            self._slots.give_back(slot)
