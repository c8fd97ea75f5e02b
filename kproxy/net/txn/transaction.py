"""One transaction that has begun here: its data, its partitions, its groups, and what its decision has to say."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import trio

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
from kproxy.codec.messages import ErrorCode
from kproxy.net.txn.writer import TransactionWriter
from kproxy.txn.client_sequences import ClientSequences, Order
from kproxy.txn.ids import Producer
from kproxy.txn.requests import ClientBatch
from kproxy.txn.requests import Written as WrittenBatch
from kproxy.txn.view import Place
from kproxy.txn.writes import TxnSend, Written

if TYPE_CHECKING:
    from kproxy.codec._generated.transaction_offsets import TransactionOffsets


class Transaction:
    """Under an epoch of its own."""

    def __init__(self, producer: Producer, writer: TransactionWriter) -> None:
        """``producer`` as it stands in the batches."""
        self.producer = producer
        self.writer = writer
        #: trio's clock, seconds.
        self.began_at = trio.current_time()
        #: Partitions that the client has added to it.
        self.joined: set[Place] = set()
        #: Partitions that stand in the log.
        self.announced: set[Place] = set()
        #: Offsets of groups that stand in the log.
        self.groups: list[TransactionOffsets] = []

    def unannounced(self, places: Iterable[Place]) -> list[Place]:
        """Those that the log does not name yet."""
        return [place for place in places if place not in self.announced]

    def accept(
        self, client: Producer, batches: Sequence[ClientBatch], sequences: ClientSequences[TxnSend]
    ) -> list[TxnSend | None]:
        """Gives each batch its place in the order; a repeated one is its first coming, one out of order is None."""
        sends: list[TxnSend | None] = []
        fresh: list[tuple[int, ClientBatch]] = []
        for at, batch in enumerate(batches):
            order, before = sequences.order(client, batch)
            sends.append(before)
            if order is Order.NEXT:
                fresh.append((at, batch))
        accepted = self.writer.accept([(one.topic, one.partition, one.batch, one.records) for _, one in fresh])
        for (at, batch), send in zip(fresh, accepted, strict=True):
            sequences.note(batch, send)
            sends[at] = send
        return sends

    def announcement(self, nonce: bytes, ends: Mapping[Place, int]) -> TransactionPartitions:
        """The record that names partitions, each with an offset below which none of the data lies."""
        topics: dict[str, TransactionPartitionsTopic] = {}
        for (name, index), end in ends.items():
            topic = topics.setdefault(name, TransactionPartitionsTopic(name))
            topic.partitions.append(TransactionPartitionsPartition(index, end))
        return TransactionPartitions(nonce, *self.producer, list(topics.values()))

    def decision(
        self, nonce: bytes, next_client: Producer, written: Mapping[Place, Written] | None, reason: str
    ) -> TransactionDecision:
        """The record that commits what was written, or (None) aborts."""
        part = TransactionDecisionPart(*self.producer, _topics(written or {}))
        return TransactionDecision(
            nonce=nonce,
            producer_id=self.producer.producer_id,
            epoch=self.producer.epoch,
            committed=written is not None,
            next_client_producer_id=next_client.producer_id,
            next_client_epoch=next_client.epoch,
            reason=reason,
            parts=[part],
        )


def told(send: TxnSend | None) -> WrittenBatch:
    """What a client is told of a batch whose fate is definite."""
    if send is None:
        return WrittenBatch(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1, -1)
    if send.error_code:
        return WrittenBatch(send.error_code, -1, -1)
    return WrittenBatch(0, send.base_offset, send.log_append_time_ms)


def _topics(written: Mapping[Place, Written]) -> list[TransactionDecisionTopic]:
    topics: dict[str, TransactionDecisionTopic] = {}
    for (name, index), done in written.items():
        topic = topics.setdefault(name, TransactionDecisionTopic(name))
        copies = [TransactionDecisionCopy(*copy) for copy in done.copies]
        topic.partitions.append(TransactionDecisionPartition(index, done.end_offset, copies))
    return list(topics.values())
