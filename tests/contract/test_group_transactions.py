"""Offsets of consumer groups in brokers' own transactions: when they move, and who is refused."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from kproxy.codec._generated.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from kproxy.codec._generated.end_txn import EndTxnRequest, EndTxnResponse
from kproxy.codec._generated.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from kproxy.codec._generated.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)
from kproxy.codec._generated.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from kproxy.codec.messages import ErrorCode
from kproxy.testing.cluster_client import ClusterClient
from tests.contract.coordinators import GROUP, STARTING, find_coordinator, init_transactional_id
from tests.contract.test_groups import Consumer
from tests.support.patience import repeat_while

_BUSY = (*STARTING, ErrorCode.CONCURRENT_TRANSACTIONS)


@dataclass
class Mover:
    """A producer that moves one group's offsets of a topic's first partition."""

    client: ClusterClient
    group: str
    topic: str
    version: int = 3
    producer: tuple[int, int] = field(default=(-1, -1))

    @property
    def name(self) -> str:
        return f"mover-{self.group}"

    def init(self) -> None:
        answer = repeat_while(
            lambda answer: answer.error_code in _BUSY, lambda: init_transactional_id(self.client, self.name)
        )
        assert answer.error_code == ErrorCode.NONE
        self.producer = (answer.producer_id, answer.producer_epoch)

    def add(self) -> ErrorCode:
        request = AddOffsetsToTxnRequest(self.name, *self.producer, self.group)
        while True:
            answer = self.client.any_broker().call(request, 3, AddOffsetsToTxnResponse)
            if answer.error_code not in _BUSY:
                return ErrorCode(answer.error_code)

    def commit(self, offset: int, generation: int = -1, member: str = "", index: int = 0) -> ErrorCode:
        rows = [TxnOffsetCommitRequestPartition(index, offset, -1, "note")]
        request = TxnOffsetCommitRequest(
            self.name,
            self.group,
            *self.producer,
            generation,
            member,
            None,
            [TxnOffsetCommitRequestTopic(self.topic, partitions=rows)],
        )
        while True:
            answer = self.client.any_broker().call(request, self.version, TxnOffsetCommitResponse)
            error = answer.topics[0].partitions[0].error_code
            if error not in _BUSY:
                return ErrorCode(error)

    def commit_by_id(self, offset: int, generation: int, member: str) -> list[ErrorCode]:
        """The errors of a topic that there is not, of a partition that there is, and of one that there is not."""
        asked = MetadataRequest(topics=[MetadataRequestTopic(name=self.topic)])
        topic_id = self.client.any_broker().call(asked, 12, MetadataResponse).topics[0].topic_id
        topics = [
            TxnOffsetCommitRequestTopic(
                topic_id=place, partitions=[TxnOffsetCommitRequestPartition(index, offset, -1, "") for index in indexes]
            )
            for place, indexes in ((b"\1" * 16, [0]), (topic_id, [0, 9]))
        ]
        request = TxnOffsetCommitRequest(self.name, self.group, *self.producer, generation, member, None, topics)
        while True:
            answer = self.client.any_broker().call(request, 6, TxnOffsetCommitResponse)
            rows = {(topic.topic_id, row.partition_index): row for topic in answer.topics for row in topic.partitions}
            places = [(topic.topic_id, row.partition_index) for topic in topics for row in topic.partitions]
            errors = [ErrorCode(rows[place].error_code) for place in places]
            if not {*errors} & {*_BUSY}:
                return errors

    def end(self, committed: bool = True) -> ErrorCode:
        request = EndTxnRequest(self.name, *self.producer, committed)
        while True:
            answer = self.client.any_broker().call(request, 3, EndTxnResponse)
            if answer.error_code not in _BUSY:
                return ErrorCode(answer.error_code)

    def told(self, *, stable: bool = True) -> tuple[int, ErrorCode]:
        request = OffsetFetchRequest(self.group, [OffsetFetchRequestTopic(self.topic, [0])], require_stable=stable)
        row = self.client.any_broker().call(request, 7, OffsetFetchResponse).topics[0].partitions[0]
        return row.committed_offset, ErrorCode(row.error_code)

    def settled(self) -> int:
        return repeat_while(lambda told: told[1] is ErrorCode.UNSTABLE_OFFSET_COMMIT, self.told)[0]


@pytest.fixture
def consumer(bootstrap: str, client: ClusterClient, unique: str) -> Iterator[Consumer]:
    find_coordinator(client, unique, GROUP)
    one = Consumer(bootstrap, unique)
    yield one
    one.connection.close()


@pytest.fixture
def mover(client: ClusterClient, unique: str, topic: str) -> Mover:
    find_coordinator(client, unique, GROUP)
    made = Mover(client, unique, topic)
    made.init()
    return made


def test_offsets_move_with_the_commit_and_are_unstable_until_then(mover: Mover) -> None:
    assert mover.add() is ErrorCode.NONE
    assert mover.commit(5) is ErrorCode.NONE
    assert mover.told() == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    assert mover.told(stable=False) == (-1, ErrorCode.NONE)
    assert mover.end() is ErrorCode.NONE
    assert mover.settled() == 5


def test_an_abort_moves_nothing(mover: Mover) -> None:
    assert (mover.add(), mover.commit(5), mover.end(committed=False)) == (ErrorCode.NONE,) * 3
    assert mover.settled() == -1


def test_a_plain_commit_after_it_wins(mover: Mover, consumer: Consumer) -> None:
    assert (mover.add(), mover.commit(5)) == (ErrorCode.NONE,) * 2
    assert consumer.commit(mover.topic, 9) is ErrorCode.NONE
    assert mover.end() is ErrorCode.NONE
    assert mover.settled() == 9


def test_live_groups_take_it_from_nobodys_member_but_not_from_a_wrong_one(mover: Mover, consumer: Consumer) -> None:
    consumer.join()
    consumer.sync()
    assert mover.add() is ErrorCode.NONE
    assert mover.commit(4, 7, consumer.member_id) is ErrorCode.ILLEGAL_GENERATION
    assert mover.commit(4, consumer.generation, "nobody") is ErrorCode.UNKNOWN_MEMBER_ID
    assert mover.commit(4, consumer.generation, consumer.member_id) is ErrorCode.NONE
    assert mover.commit(5) is ErrorCode.NONE
    assert mover.end() is ErrorCode.NONE
    assert mover.settled() == 5


def test_who_asks_for_the_id_again_aborts_and_fences(mover: Mover, client: ClusterClient) -> None:
    assert (mover.add(), mover.commit(5)) == (ErrorCode.NONE,) * 2
    newer = Mover(client, mover.group, mover.topic)
    newer.init()
    assert mover.settled() == -1
    assert mover.commit(6) in (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_TXN_STATE)
    assert mover.end() is ErrorCode.PRODUCER_FENCED
    assert mover.add() is ErrorCode.PRODUCER_FENCED
    assert (newer.add(), newer.commit(7), newer.end()) == (ErrorCode.NONE,) * 3
    newer.init()  # answers when the end is complete: nothing is unstable any more
    assert newer.told() == (7, ErrorCode.NONE)


def test_a_group_that_has_not_joined_is_refused(mover: Mover) -> None:
    assert mover.commit(5) is ErrorCode.INVALID_TXN_STATE
    mover.version = 4
    assert mover.commit(5) is ErrorCode.TRANSACTION_ABORTABLE


def test_topics_by_id(mover: Mover, consumer: Consumer) -> None:
    """KIP-1319. Partitions that there are not are refused, whatever else is wrong with the request."""
    consumer.join()
    consumer.sync()
    nobody = [ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert mover.commit_by_id(4, consumer.generation, "nobody") == nobody
    gone = [ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert mover.commit_by_id(4, consumer.generation, consumer.member_id) == gone
    assert mover.end() is ErrorCode.NONE
    assert mover.settled() == 4


def test_partitions_that_there_are_not(mover: Mover) -> None:
    assert mover.add() is ErrorCode.NONE
    assert mover.commit(5, index=9) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
