"""One transaction that has begun here: its data, its partitions, its groups, and what its decision has to say."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from kproxy.codec._generated.transaction_decision import (
    TransactionDecision,
    TransactionDecisionCopy,
    TransactionDecisionPart,
    TransactionDecisionPartition,
    TransactionDecisionTopic,
)
from kproxy.codec._generated.transaction_partitions import (
    TransactionPartitions,
    TransactionPartitionsPartition,
    TransactionPartitionsTopic,
)
from kproxy.codec._generated.transaction_prepare import (
    TransactionPrepare,
    TransactionPrepareCopy,
    TransactionPreparePartition,
    TransactionPrepareTopic,
)
from kproxy.codec.error_codes import error_name
from kproxy.codec.messages import ErrorCode
from kproxy.codec.topic_partition import TopicPartition
from kproxy.txn.client_sequences import ClientSequences, Order
from kproxy.txn.ids import Producer
from kproxy.txn.late_requests import AddedGroups
from kproxy.txn.prepared_parts import NOTHING_BESIDE, DecidedParts
from kproxy.txn.procedures.outside import Writer
from kproxy.txn.procedures.partition_ends import PartitionEnds
from kproxy.txn.requests import ClientBatch, Written
from kproxy.txn.views import Views
from kproxy.txn.writes import GIVEN_UP, PartitionWrites, TxnSend

if TYPE_CHECKING:
    from kproxy.codec._generated.transaction_offsets import TransactionOffsets


#: What the offsets may take in memory that say which copy counts of batches that were sent more than once. None can be
#: dropped while the data may be read (``OldCopies``): where a broker took a second copy, readers would see both. So at
#: this limit a transaction that had to send a batch again is aborted, and only such a one: its client tries it again.
_MOST_COPIES_BYTES: Final = 64 << 20


class Transaction:
    """An open transaction, under an epoch of its own."""

    def __init__(self, producer: Producer, writer: Writer, began_at: float) -> None:
        """``producer`` is the one in the batches; ``began_at`` in seconds, by ``Time.now``."""
        self.producer = producer
        self.writer = writer
        self.began_at = began_at
        #: Partitions that the client has added to it.
        self.joined: set[TopicPartition] = set()
        #: Partitions that are in the log.
        self.announced: set[TopicPartition] = set()
        #: The client's sequence that the log names as its first, by partition where nothing was accepted yet.
        self.first_sequences: dict[TopicPartition, int] = {}
        #: Whether two batches of the client had the same sequence, so that one is of a former transaction.
        self.is_contradicted = False
        #: Whether another instance began it.
        self.is_continued = False
        #: What other instances have written for it, by the epoch of each.
        self.former: Mapping[Producer, Mapping[TopicPartition, PartitionWrites]] = {}
        #: Groups whose offsets other instances have taken for it.
        self.former_groups: Collection[str] = ()
        #: Each member, without its offsets, that has offsets in the log: a commit checks that it is still current.
        self.members: list[TransactionOffsets] = []
        #: Whether a broker's group has offsets of it.
        self.moves_groups = False
        #: Groups that the client has added to it.
        self.added_groups = AddedGroups()
        #: The identity that its decision gives the client, once that was sent to the log.
        self.next_client: Producer | None = None

    @property
    def is_empty(self) -> bool:
        """Whether it has no data and no group offsets, neither of this instance nor of others."""
        return not (self.announced or self.members or self.former)

    def unannounced(self, places: Iterable[TopicPartition]) -> list[TopicPartition]:
        """The partitions that the log does not name yet."""
        return [place for place in places if place not in self.announced]

    def accept(
        self, client: Producer, batches: Sequence[ClientBatch], sequences: ClientSequences[TxnSend]
    ) -> list[TxnSend | None]:
        """Gives each batch its place in the order; a repeated one is its first coming, one out of order is None.

        One with sequences of a former transaction is refused. It dooms nothing, since it may be a late copy. One with
        the sequence of another batch of this transaction dooms it: one of the two belongs to a former transaction.
        """
        sends: list[TxnSend | None] = []
        fresh: list[tuple[int, ClientBatch]] = []
        for at, batch in enumerate(batches):
            order, before = sequences.order(client, batch)
            sends.append(before)
            if order is Order.USED:
                sequences.pass_over(batch)
                sends[at] = _refused(batch)
            elif order is Order.CONTRADICTED:
                self.is_contradicted = True
                sends[at] = _refused(batch)
            elif order is Order.NEXT:
                fresh.append((at, batch))
        for turn in _turns(fresh):
            accepted = self.writer.accept([(one.topic, one.partition, one.batch, one.records) for _, one in turn])
            for (at, batch), send in zip(turn, accepted, strict=True):
                sequences.note(batch, send)
                if self.first_sequences:
                    self.first_sequences.pop((batch.topic, batch.partition), None)
                sends[at] = send
        return sends

    def is_announced(self, batch: ClientBatch, client: Producer, sequences: ClientSequences[TxnSend]) -> bool:
        """Whether the log names the batch's partition and, if it is to be the first there, the client's sequence."""
        place = (batch.topic, batch.partition)
        if place not in self.announced:
            return False
        first = self.first_sequences.get(place) if self.first_sequences else None
        return first is None or first == sequences.following(client, place, batch.base_sequence)

    def announcement(
        self, nonce: bytes, ends: Mapping[TopicPartition, int], first_sequences: Mapping[TopicPartition, int]
    ) -> TransactionPartitions:
        """The record that names partitions, each with an offset below which none of the data lies.

        ``first_sequences``: what the first batch of the client's has in each, if the client counts its records.
        """
        topics: dict[str, TransactionPartitionsTopic] = {}
        for (name, index), end in ends.items():
            topic = topics.setdefault(name, TransactionPartitionsTopic(name))
            first = first_sequences.get((name, index), -1)
            topic.partitions.append(TransactionPartitionsPartition(index, end, first))
        return TransactionPartitions(nonce, *self.producer, list(topics.values()))

    def decision(
        self,
        nonce: bytes,
        next_client: Producer,
        written: Mapping[TopicPartition, PartitionWrites] | None,
        reason: str,
        beside: DecidedParts = NOTHING_BESIDE,
    ) -> TransactionDecision:
        """The record that commits what was written, or (None) aborts, and what was prepared with it."""
        self.next_client = next_client
        part = TransactionDecisionPart(*self.producer, _topics(written if written is not None else {}))
        others = [
            TransactionDecisionPart(row.producer_id, row.epoch, _topics(_prepared(row)) if written is not None else [])
            for row in beside.parts
        ]
        if written is not None:
            others += [TransactionDecisionPart(*former, _topics(done)) for former, done in self.former.items()]
        return TransactionDecision(
            nonce=nonce,
            producer_id=self.producer.producer_id,
            epoch=self.producer.epoch,
            committed=written is not None,
            next_client_producer_id=next_client.producer_id,
            next_client_epoch=next_client.epoch,
            batch_id=beside.batch_id,
            reason=reason,
            parts=[part, *others],
        )

    def preparation(self, nonce: bytes, batch_id: str | None = None) -> TransactionPrepare:
        """The record that leaves the transaction to a later decision, which then needs nobody's memory.

        ``batch_id``: the only one under which it can be committed, if it is given.
        """
        topics: dict[str, TransactionPrepareTopic] = {}
        for (name, index), done in self.writer.written().items():
            topic = topics.setdefault(name, TransactionPrepareTopic(name))
            copies = [TransactionPrepareCopy(*copy) for copy in done.copies]
            topic.partitions.append(TransactionPreparePartition(index, done.end_offset, copies))
        return TransactionPrepare(nonce, *self.producer, list(topics.values()), batch_id)


def why_not_committed(transaction: Transaction, ends: PartitionEnds, views: Views) -> str | None:
    """The reason why settled data can't be committed, now or after a prepare; None if they can."""
    if (why := why_not_written(transaction)) is not None:
        return why
    written = transaction.writer.written()
    if (topic := ends.recreated(written)) is not None:
        return _recreated(topic)
    if any(done.copies for done in written.values()) and views.copies_bytes() >= _MOST_COPIES_BYTES:
        return f"batches were sent again, and {_MOST_COPIES_BYTES} bytes of offsets of such batches are kept already"
    return None


def _recreated(topic: str) -> str:
    return f"{topic} was deleted and created again"


def why_not_written(transaction: Transaction) -> str | None:
    """The reason why a batch was refused or not written: the transaction can only be aborted; None if there is none."""
    writer = transaction.writer
    if transaction.is_contradicted:
        return "two batches of the client have the same sequence number and different records"
    if writer.failed is None:
        return None
    if writer.recreated is not None:
        return _recreated(writer.recreated)
    return f"a batch of the transaction was not written: {error_name(writer.failed)}"


def written_of(send: TxnSend | None) -> Written:
    """The error code that a client receives for a batch whose outcome is known."""
    if send is None:
        return Written(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1, -1)
    if send.error_code:
        return Written(send.error_code, -1, -1)
    return Written(0, send.base_offset, send.log_append_time_ms)


def written_before(place: TopicPartition, base_offset: int, records: int) -> TxnSend:
    """A batch that another instance has written."""
    return TxnSend(place, memoryview(b""), records, -1, settled=True, base_offset=base_offset)


def _refused(batch: ClientBatch) -> TxnSend:
    """A batch for which its client has to abort the transaction."""
    place = (batch.topic, batch.partition)
    return TxnSend(place, memoryview(b""), batch.records, -1, settled=True, error_code=GIVEN_UP)


def _turns(batches: list[tuple[int, ClientBatch]]) -> list[list[tuple[int, ClientBatch]]]:
    """Batches in order; within a turn at most one of each partition."""
    if len(batches) == 1:
        return [batches]
    turns: list[list[tuple[int, ClientBatch]]] = []
    seen: Counter[TopicPartition] = Counter()
    for at, batch in batches:
        place = (batch.topic, batch.partition)
        if seen[place] == len(turns):
            turns.append([])
        turns[seen[place]].append((at, batch))
        seen[place] += 1
    return turns


def _prepared(record: TransactionPrepare) -> Mapping[TopicPartition, PartitionWrites]:
    return {
        (topic.name, row.index): PartitionWrites(
            row.end_offset, tuple((copy.base_sequence, copy.base_offset) for copy in row.copies)
        )
        for topic in record.topics
        for row in topic.partitions
    }


def _topics(written: Mapping[TopicPartition, PartitionWrites]) -> list[TransactionDecisionTopic]:
    topics: dict[str, TransactionDecisionTopic] = {}
    for (name, index), done in written.items():
        topic = topics.setdefault(name, TransactionDecisionTopic(name))
        copies = [TransactionDecisionCopy(*copy) for copy in done.copies]
        topic.partitions.append(TransactionDecisionPartition(index, done.end_offset, copies))
    return list(topics.values())
