"""What one transaction says to the log, what its batches become, and why it may not be committed."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from kproxy.codec._generated.transaction_prepare import (
    TransactionPrepare,
    TransactionPrepareCopy,
    TransactionPreparePartition,
    TransactionPrepareTopic,
)
from kproxy.codec.messages import ErrorCode
from kproxy.codec.topic_partition import TopicPartition
from kproxy.txn.client_sequences import ClientSequences
from kproxy.txn.ids import Producer
from kproxy.txn.prepared_parts import DecidedParts
from kproxy.txn.procedures import transaction as module
from kproxy.txn.procedures.transaction import (
    Transaction,
    why_not_committed,
    why_not_written,
    written_before,
    written_of,
)
from kproxy.txn.requests import ClientBatch, Written
from kproxy.txn.writes import PartitionWrites, TxnSend

ME, CLIENT, NEXT = Producer(7, 3), Producer(4000, 1), Producer(4000, 2)
P0, P1, Q0 = ("t", 0), ("t", 1), ("u", 0)
NONCE = b"n" * 16
WRITTEN: Mapping[TopicPartition, PartitionWrites] = {
    P0: PartitionWrites(5, ((0, 1), (2, 3))),
    P1: PartitionWrites(6, ()),
    Q0: PartitionWrites(7, ()),
}
#: As a record says it: topic, partition, end offset, copies.
SAID = [("t", 0, 5, [(0, 1), (2, 3)]), ("t", 1, 6, []), ("u", 0, 7, [])]


class Writer:
    """Takes what it is given, and has written what a test says."""

    def __init__(self) -> None:
        self.turns: list[list[TopicPartition]] = []
        self.failed: int | None = None
        self.recreated: str | None = None
        self.has: Mapping[TopicPartition, PartitionWrites] = {}

    def accept(self, batches: Sequence[tuple[str, int, memoryview, int]]) -> list[TxnSend]:
        self.turns.append([(topic, index) for topic, index, _, _ in batches])
        return [TxnSend((topic, index), batch, records, -1) for topic, index, batch, records in batches]

    def written(self) -> Mapping[TopicPartition, PartitionWrites]:
        return self.has


class Ends:
    """Of this topic the partitions were deleted and created again."""

    topic: str | None = None

    def recreated(self, _: object) -> str | None:
        return self.topic


class Views:
    """Holds so many bytes of offsets of batches that were sent again."""

    def __init__(self, size: int = 0) -> None:
        self._size = size

    def copies_bytes(self) -> int:
        return self._size


def begun() -> tuple[Transaction, Writer]:
    writer: Any = Writer()
    return Transaction(ME, writer, 0.0), writer


def batch(place: TopicPartition, sequence: int = -1) -> ClientBatch:
    return ClientBatch(*place, memoryview(b""), 1, sequence)


def said(topics: Sequence[Any]) -> list[tuple[Any, ...]]:
    return [
        (topic.name, row.index, row.end_offset, [(copy.base_sequence, copy.base_offset) for copy in row.copies])
        for topic in topics
        for row in topic.partitions
    ]


def test_one_that_has_begun_holds_nothing() -> None:
    one, _ = begun()
    assert one.began_at == 0.0
    assert (one.is_continued, one.former, one.former_groups) == (False, {}, ())
    assert (one.moves_groups, one.next_client) == (False, None)
    assert (one.joined, one.members, "g" in one.added_groups) == (set(), [], False)


class TestAccepting:
    async def test_a_repeated_batch_is_its_first_coming_and_one_out_of_order_is_none(self) -> None:
        one, writer = begun()
        sequences = ClientSequences[TxnSend]()
        (first,) = one.accept(CLIENT, [batch(P0, 3)], sequences)
        assert first is not None
        assert one.accept(CLIENT, [batch(P0, 3), batch(P1, 0)], sequences)[0] is first
        assert one.accept(CLIENT, [batch(P0, 9)], sequences) == [None]
        assert writer.turns == [[P0], [P1]]

    async def test_a_batch_with_sequences_of_a_former_transaction_is_not_written(self) -> None:
        one, writer = begun()
        sequences = ClientSequences[TxnSend]()
        one.accept(CLIENT, [batch(P0, 3)], sequences)
        sequences.begin()
        late, new = one.accept(CLIENT, [batch(P0, 3), batch(P1, 0)], sequences)
        assert written_of(late) == Written(ErrorCode.TRANSACTION_ABORTABLE, -1, -1)
        assert new is not None
        assert not new.settled
        assert writer.turns == [[P0], [P1]]
        longer = batch(P0, 3)._replace(records=2)
        one.accept(CLIENT, [longer], sequences)
        assert sequences.following(CLIENT, P0, -1) == 5

    async def test_two_batches_with_one_sequence_can_only_be_aborted(self) -> None:
        """A copy of the transaction before arrived for the first time in this one, before what has its sequence now."""
        one, writer = begun()
        sequences = ClientSequences[TxnSend]()
        one.accept(CLIENT, [batch(P0, 3)], sequences)
        sequences.begin()
        (late,) = one.accept(CLIENT, [batch(P0, 4)._replace(crc=1)], sequences)
        assert late is not None
        assert why_not_written(one) is None
        (new,) = one.accept(CLIENT, [batch(P0, 4)._replace(crc=2)], sequences)
        assert written_of(new) == Written(ErrorCode.TRANSACTION_ABORTABLE, -1, -1)
        assert writer.turns == [[P0], [P0]], "the second is not written"
        assert why_not_written(one) == "two batches of the client have the same sequence number and different records"

    async def test_batches_of_one_partition_go_one_after_another(self) -> None:
        one, writer = begun()
        batches = [batch(place) for place in (P0, P1, P0, P0, P1)]
        sends = one.accept(CLIENT, batches, ClientSequences())
        assert [send.place for send in sends if send is not None] == [P0, P1, P0, P0, P1]
        assert len({id(send) for send in sends}) == 5
        assert writer.turns == [[P0, P1], [P0, P1], [P0]]

    async def test_a_first_sequence_that_the_log_names_is_the_only_one(self) -> None:
        one, _ = begun()
        sequences = ClientSequences[TxnSend]()
        assert not one.is_announced(batch(P0, 3), CLIENT, sequences)
        one.announced.add(P0)
        assert one.is_announced(batch(P0, 3), CLIENT, sequences)
        one.first_sequences[P0] = 3
        assert [one.is_announced(batch(P0, at), CLIENT, sequences) for at in (2, 3, 4)] == [False, True, False]
        one.accept(CLIENT, [batch(P0, 3)], sequences)
        assert one.first_sequences == {}
        assert one.is_announced(batch(P0, 4), CLIENT, sequences)
        assert one.unannounced([P0, P1]) == [P1]


class TestRecords:
    async def test_partitions_are_announced_with_their_ends(self) -> None:
        one, _ = begun()
        record = one.announcement(NONCE, {P0: 5, P1: 6, Q0: 7}, {P1: 8})
        assert (record.nonce, record.producer_id, record.epoch) == (NONCE, *ME)
        rows = [
            (topic.name, row.index, row.end_offset, row.first_sequence)
            for topic in record.topics
            for row in topic.partitions
        ]
        assert rows == [("t", 0, 5, -1), ("t", 1, 6, 8), ("u", 0, 7, -1)]
        assert [topic.name for topic in record.topics] == ["t", "u"]

    @pytest.mark.parametrize("committed", [True, False])
    async def test_a_decision_names_data_only_if_it_commits_them(self, committed: bool) -> None:
        one, _ = begun()
        former = Producer(7, 2)
        one.former = {former: {P0: PartitionWrites(4, ())}}
        copies = [TransactionPrepareCopy(0, 1)]
        prepared = TransactionPrepare(
            NONCE, 9, 1, [TransactionPrepareTopic("v", [TransactionPreparePartition(2, 8, copies)])]
        )
        beside = DecidedParts("b1" if committed else None, [prepared])
        record = one.decision(NONCE, NEXT, WRITTEN if committed else None, "why", beside)
        assert one.next_client == NEXT
        assert (record.nonce, record.producer_id, record.epoch, record.committed) == (NONCE, *ME, committed)
        assert (record.next_client_producer_id, record.next_client_epoch) == NEXT
        assert (record.batch_id, record.reason) == (beside.batch_id, "why")
        parts = [((part.producer_id, part.epoch), said(part.topics)) for part in record.parts]
        if committed:
            assert parts == [(ME, SAID), ((9, 1), [("v", 2, 8, [(0, 1)])]), (former, [("t", 0, 4, [])])]
        else:
            assert parts == [(ME, []), ((9, 1), [])]

    async def test_a_commit_of_nothing_is_one(self) -> None:
        one, _ = begun()
        record = one.decision(NONCE, NEXT, {}, "")
        assert (record.committed, [said(part.topics) for part in record.parts]) == (True, [[]])

    async def test_what_is_prepared_needs_nobodys_memory(self) -> None:
        one, writer = begun()
        writer.has = WRITTEN
        record = one.preparation(NONCE)
        assert (record.nonce, record.producer_id, record.epoch, said(record.topics)) == (NONCE, *ME, SAID)
        assert [topic.name for topic in record.topics] == ["t", "u"]


class TestCommitting:
    @pytest.mark.parametrize(
        ("failed", "recreated", "copies", "size", "why"),
        [
            (None, None, True, 63, None),
            (None, None, False, 64, None),
            (None, None, True, 64, "batches were sent again, and 64 bytes of offsets of such batches are kept already"),
            (None, None, True, 65, "batches were sent again, and 64 bytes of offsets of such batches are kept already"),
            (3, "t", True, 65, "a batch of the transaction was not written: UNKNOWN_TOPIC_OR_PARTITION"),
            (None, "t", True, 65, "t was deleted and created again"),
        ],
    )
    async def test_why_it_may_not_be(
        self,
        monkeypatch: pytest.MonkeyPatch,
        failed: int | None,
        recreated: str | None,
        copies: bool,
        size: int,
        why: str | None,
    ) -> None:
        monkeypatch.setattr(module, "_MOST_COPIES_BYTES", 64)
        one, writer = begun()
        writer.failed = failed
        writer.has = WRITTEN if copies else {P1: PartitionWrites(6, ())}
        ends: Any = Ends()
        ends.topic = recreated
        views: Any = Views(size)
        assert why_not_committed(one, ends, views) == why

    async def test_a_batch_has_an_offset_or_an_error(self) -> None:
        send = TxnSend(P0, memoryview(b""), 1, 0, settled=True, base_offset=5, log_append_time_ms=6)
        assert written_of(send) == Written(0, 5, 6)
        send.error_code = 3
        assert written_of(send) == Written(3, -1, -1)
        assert written_of(None) == Written(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1, -1)

    async def test_a_batch_that_another_instance_has_written_has_its_offset(self) -> None:
        send = written_before(P0, 5, 2)
        assert (send.place, send.records, send.sequence, send.settled) == (P0, 2, -1, True)
        assert written_of(send) == Written(0, 5, -1)
