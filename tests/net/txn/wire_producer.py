"""A transactional producer in frames: each request in the version that is asked for, over any connection."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kproxy.codec._generated.add_offsets_to_txn import AddOffsetsToTxnRequest
from kproxy.codec._generated.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnRequestAddPartitionsToTxnTopic,
)
from kproxy.codec._generated.end_txn import EndTxnRequest
from kproxy.codec._generated.find_coordinator import FindCoordinatorRequest
from kproxy.codec._generated.init_producer_id import InitProducerIdRequest
from kproxy.codec._generated.produce import (
    ProduceRequest,
    ProduceRequestPartitionProduceData,
    ProduceRequestTopicProduceData,
)
from kproxy.codec._generated.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from kproxy.codec.batch import Record, build_batch
from kproxy.codec.messages import ApiKey
from kproxy.codec.topic_partition import TopicPartition
from kproxy.proxy.transaction_messages import NO_PRODUCER
from kproxy.txn.ids import Producer
from tests.net.harness import FrameClient

#: The versions of a client that joins partitions by AddPartitionsToTxn, and of one that does by writing (KIP-890).
TV1: Mapping[int, int] = {
    ApiKey.FIND_COORDINATOR: 3,
    ApiKey.INIT_PRODUCER_ID: 4,
    ApiKey.ADD_PARTITIONS_TO_TXN: 3,
    ApiKey.ADD_OFFSETS_TO_TXN: 3,
    ApiKey.TXN_OFFSET_COMMIT: 3,
    ApiKey.END_TXN: 3,
    ApiKey.PRODUCE: 9,
}
TV2: Mapping[int, int] = {
    ApiKey.FIND_COORDINATOR: 6,
    ApiKey.INIT_PRODUCER_ID: 5,
    ApiKey.TXN_OFFSET_COMMIT: 5,
    ApiKey.END_TXN: 5,
    ApiKey.PRODUCE: 12,
}


def transactional_batch(value: str, producer: Producer, sequence: int) -> bytes:
    """A batch with one record, of now: brokers delete what is older than their retention."""
    return bytes(
        build_batch(
            [Record(0, int(time.time() * 1000), None, value.encode(), ())],
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            base_sequence=sequence,
            is_transactional=True,
        )
    )


def produce_request(
    transactional_id: str, batches: Mapping[TopicPartition, bytes], *, acks: int = -1, **ids: bytes
) -> Any:
    """A Produce request; ``ids``: topic ids by name, for v13."""
    topics: dict[str, ProduceRequestTopicProduceData] = {}
    for (name, index), data in batches.items():
        topic = topics.setdefault(name, ProduceRequestTopicProduceData(name=name, topic_id=ids.get(name, bytes(16))))
        topic.partition_data.append(ProduceRequestPartitionProduceData(index=index, records=data))
    return ProduceRequest(
        transactional_id=transactional_id, acks=acks, timeout_ms=60_000, topic_data=list(topics.values())
    )


@dataclass
class WireProducer:
    """One producer; raises nothing: each method returns the error code that the client receives."""

    client: FrameClient
    transactional_id: str
    versions: Mapping[int, int] = field(default_factory=lambda: TV1)
    producer: Producer = NO_PRODUCER
    sequences: dict[TopicPartition, int] = field(default_factory=dict)

    async def call(self, request: Any) -> Any:
        """The response to any request."""
        return await self.client.call(request, self.versions[request.API_KEY])

    async def find(self, *names: str) -> Any:
        """FindCoordinator, of this id if none is named."""
        names = names or (self.transactional_id,)
        if self.versions[ApiKey.FIND_COORDINATOR] < 4:
            return await self.call(FindCoordinatorRequest(key=names[0], key_type=1))
        return await self.call(FindCoordinatorRequest(key_type=1, coordinator_keys=list(names)))

    async def init(self, timeout_ms: int = 60_000) -> int:
        """InitProducerId; the error code."""
        answer = await self.call(InitProducerIdRequest(self.transactional_id, timeout_ms))
        if not answer.error_code:
            self.producer = Producer(answer.producer_id, answer.producer_epoch)
            self.sequences.clear()
        return int(answer.error_code)

    async def add(self, *places: TopicPartition) -> list[int]:
        """AddPartitionsToTxn; the error codes in order."""
        topics: dict[str, list[int]] = {}
        for topic, index in places:
            topics.setdefault(topic, []).append(index)
        answer = await self.call(
            AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self.transactional_id,
                v3_and_below_producer_id=self.producer.producer_id,
                v3_and_below_producer_epoch=self.producer.epoch,
                v3_and_below_topics=[
                    AddPartitionsToTxnRequestAddPartitionsToTxnTopic(name, rows) for name, rows in topics.items()
                ],
            )
        )
        return [
            row.partition_error_code
            for topic in answer.results_by_topic_v3_and_below
            for row in topic.results_by_partition
        ]

    def batches(self, value: str, *places: TopicPartition) -> dict[TopicPartition, bytes]:
        """The next batch for each place; its sequence is used up."""
        made = {}
        for place in places:
            sequence = self.sequences.get(place, 0)
            self.sequences[place] = sequence + 1
            made[place] = transactional_batch(value, self.producer, sequence)
        return made

    async def produce(self, value: str, *places: TopicPartition, **ids: bytes) -> list[int]:
        """Produce of one record for each place; the error codes in order."""
        answer = await self.call(produce_request(self.transactional_id, self.batches(value, *places), **ids))
        return [row.error_code for topic in answer.responses for row in topic.partition_responses]

    async def add_offsets(self, group: str) -> int:
        """AddOffsetsToTxn."""
        answer = await self.call(AddOffsetsToTxnRequest(self.transactional_id, *self.producer, group))
        return int(answer.error_code)

    async def commit_offsets(self, group: str, offsets: Sequence[tuple[str, int, int]], **ids: bytes) -> list[int]:
        """TxnOffsetCommit of (topic, partition, offset) as a consumer that is no member; the error codes in order.

        ``ids`` of the topics, which v6 names by them.
        """
        topics = [
            TxnOffsetCommitRequestTopic(
                name, ids.get(name, bytes(16)), [TxnOffsetCommitRequestPartition(index, offset, -1, "m")]
            )
            for name, index, offset in offsets
        ]
        answer = await self.call(
            TxnOffsetCommitRequest(
                transactional_id=self.transactional_id,
                group_id=group,
                producer_id=self.producer.producer_id,
                producer_epoch=self.producer.epoch,
                topics=topics,
            )
        )
        return [row.error_code for topic in answer.topics for row in topic.partitions]

    async def end(self, *, committed: bool = True) -> int:
        """EndTxn."""
        answer = await self.call(EndTxnRequest(self.transactional_id, *self.producer, committed))
        if not answer.error_code and self.versions[ApiKey.END_TXN] >= 5:
            self.producer = Producer(answer.producer_id, answer.producer_epoch)
            self.sequences.clear()
        return int(answer.error_code)
