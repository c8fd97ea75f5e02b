"""One transactional producer of either protocol, request by request; it decides nothing and retries nothing."""

import time
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from kproxy.codec._generated.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from kproxy.codec._generated.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnRequestAddPartitionsToTxnTopic,
    AddPartitionsToTxnResponse,
)
from kproxy.codec._generated.end_txn import EndTxnRequest, EndTxnResponse
from kproxy.codec._generated.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kproxy.codec._generated.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic, OffsetFetchResponse
from kproxy.codec._generated.produce import (
    ProduceRequest,
    ProduceRequestPartitionProduceData,
    ProduceRequestTopicProduceData,
    ProduceResponse,
)
from kproxy.codec._generated.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from kproxy.codec.batch import Record, build_batch
from kproxy.codec.messages import ErrorCode
from kproxy.codec.topic_partition import TopicPartition
from verification.chaos.coordinator_link import GROUP, TRANSACTION, CoordinatorLink
from verification.chaos.link import Address, Link, LinkLost, find_leaders
from verification.history import Producer

TIMEOUT_MS: Final = 15_000
_REQUEST_MS: Final = 4_000
_PATIENCE_S: Final = 6.0
_INIT_VERSION: Final = 4
_ADD_VERSION: Final = 3
_FETCH_VERSION: Final = 7
NOBODY: Final = Producer(-1, -1)


class Protocol(NamedTuple):
    """The versions of a producer's requests, and whether each EndTxn returns a new epoch (KIP-890)."""

    produce: int
    end: int
    offsets: int
    second: bool


FIRST: Final = Protocol(produce=9, end=3, offsets=3, second=False)
SECOND: Final = Protocol(produce=12, end=5, offsets=5, second=True)


class Refused(Exception):
    """A response holds an error."""

    def __init__(self, error_code: int) -> None:
        self.error = ErrorCode(error_code)
        super().__init__(self.error.name)


class RawTransactions:
    """Requests of one producer. Each method raises ``LinkLost`` without a response and ``Refused`` for an error."""

    def __init__(self, bootstrap: Address, client_id: str, transactional_id: str, protocol: Protocol) -> None:
        self.protocol = protocol
        self.identity = NOBODY
        self.transactional_id = transactional_id
        self._bootstrap = bootstrap
        self._client_id = client_id
        self._sequences: dict[TopicPartition, int] = {}
        self._leaders: dict[TopicPartition, Address] = {}
        self._links: dict[Address, Link] = {}
        self._coordinator = CoordinatorLink(bootstrap, client_id, transactional_id, TRANSACTION)
        self._group = CoordinatorLink(bootstrap, client_id, transactional_id, GROUP)
        """The group has the name of the transactional id."""

    async def init(self, timeout_ms: int = TIMEOUT_MS) -> Producer:
        """InitProducerId: become the producer of the transactional id."""
        request = InitProducerIdRequest(self.transactional_id, timeout_ms)
        answer = await self._coordinator.call(request, _INIT_VERSION, InitProducerIdResponse)
        _check(answer.error_code)
        self.become(Producer(answer.producer_id, answer.producer_epoch))
        return self.identity

    def become(self, identity: Producer) -> None:
        """Use another identity; its sequence numbers begin at 0."""
        if identity != self.identity:
            self._sequences.clear()
        self.identity = identity

    async def add_partitions(self, places: Sequence[TopicPartition]) -> None:
        """AddPartitionsToTxn."""
        topics: dict[str, list[int]] = {}
        for topic, partition in places:
            topics.setdefault(topic, []).append(partition)
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.identity.producer_id,
            v3_and_below_producer_epoch=self.identity.epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnRequestAddPartitionsToTxnTopic(name, indexes) for name, indexes in topics.items()
            ],
        )
        answer = await self._coordinator.call(request, _ADD_VERSION, AddPartitionsToTxnResponse)
        for topic_row in answer.results_by_topic_v3_and_below:
            for row in topic_row.results_by_partition:
                _check(row.partition_error_code)

    def batch(self, place: TopicPartition, values: Sequence[str]) -> bytes:
        """Return the next batch of a partition; to retry, write the same batch again."""
        sequence = self._sequences.get(place, 0)
        self._sequences[place] = sequence + len(values)
        at = time.time_ns() // 1_000_000
        records = [Record(number, at, None, value.encode(), ()) for number, value in enumerate(values)]
        made = build_batch(
            records,
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.epoch,
            base_sequence=sequence,
            is_transactional=True,
        )
        return bytes(made)

    async def write(self, place: TopicPartition, data: bytes) -> int:
        """Produce one batch; return its first offset, -1 if it is not known."""
        link, leader = await self._leader_link(place)
        row = ProduceRequestPartitionProduceData(index=place[1], records=data)
        topic = ProduceRequestTopicProduceData(name=place[0], partition_data=[row])
        request = ProduceRequest(self.transactional_id, acks=-1, timeout_ms=_REQUEST_MS, topic_data=[topic])
        try:
            answer = await link.call(request, self.protocol.produce, ProduceResponse, _PATIENCE_S)
        except LinkLost:
            self._forget(place, leader)
            raise
        found = answer.responses[0].partition_responses[0]
        if found.error_code and found.error_code != ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            self._leaders.pop(place, None)
            raise Refused(found.error_code)
        return found.base_offset

    async def add_group(self) -> None:
        """AddOffsetsToTxn."""
        request = AddOffsetsToTxnRequest(self.transactional_id, *self.identity, self.transactional_id)
        _check((await self._coordinator.call(request, _ADD_VERSION, AddOffsetsToTxnResponse)).error_code)

    async def commit_offsets(self, offsets: Mapping[TopicPartition, int]) -> None:
        """TxnOffsetCommit."""
        topics: dict[str, TxnOffsetCommitRequestTopic] = {}
        for (name, partition), offset in offsets.items():
            topic = topics.setdefault(name, TxnOffsetCommitRequestTopic(name))
            topic.partitions.append(TxnOffsetCommitRequestPartition(partition, offset, -1, ""))
        group = self.transactional_id
        request = TxnOffsetCommitRequest(group, group, *self.identity, topics=list(topics.values()))
        answer = await self._group.call(request, self.protocol.offsets, TxnOffsetCommitResponse)
        for topic_row in answer.topics:
            for row in topic_row.partitions:
                _check(row.error_code)

    async def end(self, identity: Producer, *, commit: bool) -> Producer:
        """EndTxn under an identity; return the identity for the next transaction (the same with the first protocol)."""
        request = EndTxnRequest(self.transactional_id, *identity, commit)
        answer = await self._coordinator.call(request, self.protocol.end, EndTxnResponse)
        _check(answer.error_code)
        return Producer(answer.producer_id, answer.producer_epoch) if self.protocol.second else identity

    async def position(self, place: TopicPartition) -> int:
        """OffsetFetch: the group's committed offset, once no transaction has one pending; 0 if there is none."""
        request = OffsetFetchRequest(
            self.transactional_id, [OffsetFetchRequestTopic(place[0], [place[1]])], require_stable=True
        )
        answer = await self._group.call(request, _FETCH_VERSION, OffsetFetchResponse)
        _check(answer.error_code)
        row = answer.topics[0].partitions[0]
        _check(row.error_code)
        return max(0, row.committed_offset)

    def close_coordinators(self) -> None:
        """Close the connections to both coordinators; the next request finds them again."""
        self._coordinator.close()
        self._group.close()

    def close(self) -> None:
        """Close all connections."""
        self.close_coordinators()
        for link in self._links.values():
            link.close()
        self._links.clear()

    async def _leader_link(self, place: TopicPartition) -> tuple[Link, Address]:
        if place not in self._leaders:
            self._leaders |= await find_leaders(self._bootstrap, self._client_id, [place[0]], _PATIENCE_S)
        leader = self._leaders.get(place)
        if leader is None:
            raise LinkLost(f"no leader of {place[0]}-{place[1]}")
        if leader not in self._links:
            self._links[leader] = await Link.open(leader, self._client_id)
        return self._links[leader], leader

    def _forget(self, place: TopicPartition, leader: Address) -> None:
        self._leaders.pop(place, None)
        link = self._links.pop(leader, None)
        if link is not None:
            link.close()


def _check(error_code: int) -> None:
    if error_code:
        raise Refused(error_code)
