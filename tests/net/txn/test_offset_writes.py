"""What kproxy asks the coordinators to write a group's offsets: a transaction of its own, or a plain commit."""

from typing import Any

import pytest

from kproxy.codec._generated.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from kproxy.codec._generated.end_txn import EndTxnRequest, EndTxnResponse
from kproxy.codec._generated.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kproxy.codec._generated.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from kproxy.codec._generated.transaction_offsets import TransactionOffsets, TransactionOffsetsPartition
from kproxy.codec._generated.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from kproxy.codec.messages import ErrorCode, Message
from kproxy.net.brokers.coordinators import GROUP, TRANSACTION
from kproxy.net.txn.offset_writes import PREFIX, fence, write
from kproxy.txn.ids import Producer
from kproxy.txn.logged_group_offsets import Unmirrored
from tests.net.txn.fake_groups import FakeGroups

PRODUCER = Producer(7, 3)
NAME = PREFIX + "g"
OFFSETS = {
    ("t", 0): TransactionOffsetsPartition(0, 5, 2, "m"),
    ("t", 1): TransactionOffsetsPartition(1, 6, 3, None),
    ("u", 0): TransactionOffsetsPartition(0, 7, 4, ""),
}
#: Topic, partition, offset, leader epoch, metadata.
ROWS = [("t", 0, 5, 2, "m"), ("t", 1, 6, 3, None), ("u", 0, 7, 4, "")]
NEWEST = TransactionOffsets(group_id="g", generation_id=4, member_id="member", group_instance_id="static")
NOBODY = (-1, "", None)


async def written(groups: FakeGroups, producer: Producer | None = PRODUCER) -> None:
    await write(groups, "g", producer, Unmirrored(OFFSETS, (), NEWEST))  # type: ignore[arg-type]


def rows(request: Any) -> list[tuple[Any, ...]]:
    return [
        (topic.name, row.partition_index, row.committed_offset, row.committed_leader_epoch, row.committed_metadata)
        for topic in request.topics
        for row in topic.partitions
    ]


def member(request: Any) -> tuple[int, str, str | None]:
    return request.generation_id_or_member_epoch, request.member_id, request.group_instance_id


def refused(error: ErrorCode) -> OffsetCommitResponse:
    row = OffsetCommitResponsePartition(0, error)
    return OffsetCommitResponse(topics=[OffsetCommitResponseTopic("t", partitions=[row])])


def refused_in_transaction(error: ErrorCode) -> TxnOffsetCommitResponse:
    row = TxnOffsetCommitResponsePartition(0, error)
    return TxnOffsetCommitResponse(topics=[TxnOffsetCommitResponseTopic("t", partitions=[row])])


class TestFence:
    async def test_a_group_has_a_transactional_id_of_its_own(self) -> None:
        groups = FakeGroups()
        groups.answers[InitProducerIdRequest] = [InitProducerIdResponse(producer_id=7, producer_epoch=3)]
        assert await fence(groups, "g") == PRODUCER  # type: ignore[arg-type]
        (asked,) = groups.asked
        assert (asked.key, asked.key_type, asked.versions) == (NAME, TRANSACTION, (0, 4))
        assert (asked.request.transactional_id, asked.request.transaction_timeout_ms) == (NAME, 10_000)

    async def test_there_is_none_where_kproxy_may_not_use_transactions(self) -> None:
        old = FakeGroups(has_transactions=False)
        assert await fence(old, "g") is None  # type: ignore[arg-type]
        assert old.asked == []
        groups = FakeGroups()
        error = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        groups.answers[InitProducerIdRequest] = [InitProducerIdResponse(error_code=error)]
        assert await fence(groups, "g") is None  # type: ignore[arg-type]

    async def test_another_error_is_a_failure(self) -> None:
        groups = FakeGroups()
        error = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        groups.answers[InitProducerIdRequest] = [InitProducerIdResponse(error_code=error)]
        with pytest.raises(OSError, match=r"group g can't be written.*31"):
            await fence(groups, "g")  # type: ignore[arg-type]


class TestInTransactions:
    async def test_the_offsets_are_committed_by_a_transaction_and_can_be_read_afterwards(self) -> None:
        groups = FakeGroups()
        await written(groups)
        add, commit, end, again = groups.asked
        assert [(one.key, one.key_type, one.versions) for one in groups.asked] == [
            (NAME, TRANSACTION, (0, 3)),
            ("g", GROUP, (0, 3)),
            (NAME, TRANSACTION, (0, 3)),
            (NAME, TRANSACTION, (0, 4)),
        ]
        assert add.request == AddOffsetsToTxnRequest(NAME, *PRODUCER, "g")
        assert rows(commit.request) == ROWS
        commit.request.topics = []
        assert commit.request == TxnOffsetCommitRequest(NAME, "g", *PRODUCER)
        assert end.request == EndTxnRequest(NAME, *PRODUCER, committed=True)
        assert isinstance(again.request, InitProducerIdRequest)

    @pytest.mark.parametrize(
        ("kind", "answer", "asked"),
        [
            (AddOffsetsToTxnRequest, AddOffsetsToTxnResponse(error_code=ErrorCode.INVALID_PRODUCER_EPOCH), 1),
            (TxnOffsetCommitRequest, refused_in_transaction(ErrorCode.INVALID_PRODUCER_EPOCH), 2),
            (EndTxnRequest, EndTxnResponse(error_code=ErrorCode.INVALID_PRODUCER_EPOCH), 3),
        ],
    )
    async def test_nothing_more_is_asked_after_a_refusal(self, kind: type, answer: Message, asked: int) -> None:
        groups = FakeGroups()
        groups.answers[kind] = [answer]
        with pytest.raises(OSError, match="47"):
            await written(groups)
        assert len(groups.asked) == asked

    @pytest.mark.parametrize(("version", "keeps"), [(0, False), (1, False), (2, True), (3, True)])
    async def test_leader_epochs_are_sent_from_version_2_on(self, version: int, keeps: bool) -> None:
        groups = FakeGroups()
        groups.version = version
        await written(groups)
        expected = ROWS if keeps else [(*row[:3], -1, row[4]) for row in ROWS]
        assert rows(groups.asked[1].request) == expected


class TestPlainly:
    async def test_the_member_that_committed_them_is_named(self) -> None:
        groups = FakeGroups()
        await written(groups, None)
        (asked,) = groups.asked
        assert (asked.key, asked.key_type, asked.versions) == ("g", GROUP, (0, 9))
        assert (asked.request.group_id, *member(asked.request)) == ("g", 4, "member", "static")
        assert rows(asked.request) == ROWS

    async def test_a_group_that_does_not_know_the_member_is_asked_once_more_without_one(self) -> None:
        groups = FakeGroups()
        groups.answers[OffsetCommitRequest] = [refused(ErrorCode.UNKNOWN_MEMBER_ID)]
        await written(groups, None)
        assert [member(one.request) for one in groups.asked] == [(4, "member", "static"), NOBODY]
        assert rows(groups.asked[1].request) == ROWS

    async def test_a_group_that_takes_neither_has_them_not_written(self) -> None:
        groups = FakeGroups()
        groups.answers[OffsetCommitRequest] = [
            refused(ErrorCode.ILLEGAL_GENERATION),
            refused(ErrorCode.UNKNOWN_MEMBER_ID),
        ]
        with pytest.raises(OSError, match="25"):
            await written(groups, None)

    async def test_the_offsets_of_deleted_topics_count_as_written(self) -> None:
        groups = FakeGroups()
        groups.answers[OffsetCommitRequest] = [refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]
        await written(groups, None)
        assert len(groups.asked) == 1

    async def test_metadata_that_are_too_long_are_left_out_once(self) -> None:
        groups, error = FakeGroups(), ErrorCode.OFFSET_METADATA_TOO_LARGE
        groups.answers[TxnOffsetCommitRequest] = [refused_in_transaction(error)] * 5
        with pytest.raises(OSError, match="12"):
            await written(groups)
        asked = [rows(one.request) for one in groups.asked if isinstance(one.request, TxnOffsetCommitRequest)]
        assert asked == [ROWS, [(*row[:4], "") for row in ROWS]]

    @pytest.mark.parametrize(
        ("version", "epochs", "instance"), [(5, False, False), (6, True, False), (7, True, True), (9, True, True)]
    )
    async def test_leader_epochs_are_sent_from_version_6_on_and_static_members_from_7(
        self, version: int, epochs: bool, instance: bool
    ) -> None:
        groups = FakeGroups()
        groups.version = version
        await written(groups, None)
        (asked,) = groups.asked
        assert [row[3] for row in rows(asked.request)] == ([2, 3, 4] if epochs else [-1] * 3)
        assert asked.request.group_instance_id == ("static" if instance else None)
