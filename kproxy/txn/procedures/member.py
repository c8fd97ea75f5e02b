"""One member of a transaction: a part under a producer id of its own, which joins, writes, and prepares.

It may do so at any instance: the log alone says which transaction it joined, and whether its part is prepared.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from kproxy.codec._generated.transaction_member import TransactionMember, TransactionMemberNative
from kproxy.codec.messages import ErrorCode, Message
from kproxy.codec.topic_partition import TopicPartition
from kproxy.txn.client_sequences import ClientSequences
from kproxy.txn.ids import Producer
from kproxy.txn.log_records import Entry
from kproxy.txn.procedures.claim_keeper import ClaimKeeper
from kproxy.txn.procedures.id_lock import IdLock, Interrupted
from kproxy.txn.procedures.outside import NotAppended, OwnerTools
from kproxy.txn.procedures.partition_ends import PartitionEnds
from kproxy.txn.procedures.transaction import Transaction, why_not_committed, written_of
from kproxy.txn.requests import ClientBatch, Written, places_of, size_of
from kproxy.txn.txn_error import TxnError
from kproxy.txn.verdict import Verdict
from kproxy.txn.view import IdView

if TYPE_CHECKING:
    from kproxy.txn.writes import TxnSend

#: Appends of the record that prepares, each with the appender's own patience.
_MOST_PREPARES: Final = 3


class Member:
    """A member of a transaction. Its records have sequences of their own, so that nobody else's come in between."""

    def __init__(self, transactional_id: str, name: str, producer: Producer, tools: OwnerTools) -> None:
        """``producer``: under which nothing was written yet."""
        self.transactional_id = transactional_id
        self.name = name
        self.producer = producer
        self._keeper = ClaimKeeper(transactional_id, tools)
        self._tools = tools
        self._nonce = tools.nonce()
        self._sequence = 0
        self._turns = IdLock(tools.time)
        self._connections = tools.connections()
        self._transaction = Transaction(producer, self._connections.writer(producer), tools.time.now())
        self._sequences: ClientSequences[TxnSend] = ClientSequences()
        self._ends = PartitionEnds(tools.ends, tools.topics, tools.time)

    async def join(self, view: IdView, main: Producer) -> bool:
        """Joins the transaction ``main``; whether the log shows that. It is asked once: another try is another part."""
        assert view.claim is not None
        body = TransactionMember(view.claim.nonce, *main, self.name, *self.producer, self._nonce, self._native())
        with suppress(NotAppended):
            await self._tools.log.append(self._entry(body), *self.producer, self._next_sequence())
        return self.has_joined(await self._keeper.read_to_end())

    def has_joined(self, view: IdView | None) -> bool:
        """Whether the log shows it as an undecided member."""
        joined = view.members.get(self.producer) if view is not None else None
        return joined is not None and joined.nonce == self._nonce

    def _native(self) -> TransactionMemberNative | None:
        """The broker's transaction that it writes in; None if it writes in none."""
        return None

    # -- data

    async def produce(self, batches: Sequence[ClientBatch], accepted: Callable[[], None]) -> list[Written]:
        """Writes batches; ``accepted`` is called when they have their place in the order. TxnError: none is written."""
        writer, size = self._transaction.writer, size_of(batches)
        async with self._turns.ordinary():
            if writer.failed is None:
                with suppress(Interrupted):  # the writer refuses the batches then
                    await self._announce(places_of(batches))
                    await self._turns.wait(lambda: writer.room(size))
            sends = self._transaction.accept(self.producer, batches, self._sequences)
            accepted()
        await writer.settled([send for send in sends if send is not None])
        return [written_of(send) for send in sends]

    async def _announce(self, places: Sequence[TopicPartition]) -> None:
        wanted = self._transaction.unannounced(dict.fromkeys(places))
        if not wanted:
            return
        ends = await self._turns.wait(lambda: self._ends.of(wanted))
        body = self._transaction.announcement(self._nonce, ends, {})
        try:
            await self._tools.log.append_unread(self._entry(body), *self.producer, self._next_sequence())
        except NotAppended as error:
            raise TxnError(ErrorCode.TRANSACTION_ABORTABLE, f"the log did not take its partitions: {error}") from error
        self._transaction.announced.update(wanted)

    # -- the end

    async def prepare(self) -> None:
        """Has the log show that the part waits for a decision. TxnError if it is aborted, or that can't be known."""
        writer = self._transaction.writer
        async with self._turns.ordinary():
            await self._turns.wait(writer.flush)
            if (why := why_not_committed(self._transaction, self._ends, self._tools.log.views)) is not None:
                raise TxnError(ErrorCode.TRANSACTION_ABORTABLE, why)
            body = self._transaction.preparation(self._nonce)
            body.producer_id, body.epoch = self.producer
            await self._until_prepared(body, self._next_sequence())

    async def _until_prepared(self, body: Message, sequence: int) -> None:
        for _ in range(_MOST_PREPARES):
            # under one sequence: however often it is sent, it is in the log once
            with suppress(NotAppended):
                await self._tools.log.append(self._entry(body), *self.producer, sequence)
            view = await self._keeper.read_to_end()
            if view is not None and (self.producer in view.prepared or _is_committed(view, self.producer)):
                return
            if view is None or view.verdict(self.producer) is not Verdict.UNDECIDED:
                raise TxnError(ErrorCode.TRANSACTION_ABORTABLE, "its transaction was decided or claimed without it")
        raise TxnError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "whether it is prepared is not known: ask again")

    async def give_up(self) -> None:
        """Ends a member that will not be prepared; the log aborts it with what it joined."""
        self._transaction.writer.abandon()
        async with self._turns.urgent("the member was given up"):
            pass  # no request waits for data brokers any more

    def close(self) -> None:
        """Gives up what is not written, and closes its connections."""
        self._transaction.writer.abandon()
        self._connections.close()

    def _entry(self, body: Message) -> Entry:
        return Entry(self.transactional_id, body)

    def _next_sequence(self) -> int:
        sequence, self._sequence = self._sequence, self._sequence + 1
        return sequence


def _is_committed(view: IdView, part: Producer) -> bool:
    """The caller that decides may have read the record that prepares before its writer has."""
    return view.verdict(part) is Verdict.COMMITTED
