"""A transactional producer for the contract tests, of either protocol, that asks again where the broker is busy."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
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
from kproxy.codec._generated.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from kproxy.codec.messages import ErrorCode
from kproxy.testing.cluster_client import ClusterClient
from tests.contract.batches import batch
from tests.contract.coordinators import STARTING, TRANSACTION, find_coordinator
from tests.support.patience import eventually, repeat_while

_BUSY: Final = (*STARTING, ErrorCode.CONCURRENT_TRANSACTIONS)
NONE: Final = ErrorCode.NONE


class Protocol(NamedTuple):
    """The versions of a client's requests."""

    produce: int
    end: int
    offsets: int
    bumps: bool


TV1: Final = Protocol(11, 4, 4, False)
TV2: Final = Protocol(12, 5, 5, True)


def until(told: Callable[[], ErrorCode]) -> ErrorCode:
    """The response once the coordinator has started and is not busy any more."""
    return repeat_while(_BUSY.__contains__, told)


@dataclass
class NativeProducer:
    """One transactional id on a cluster of one broker; it writes one topic."""

    client: ClusterClient
    name: str
    topic: str
    protocol: Protocol = TV2
    timeout_ms: int = 60_000
    producer: tuple[int, int] = (-1, -1)
    #: The next sequence of each partition.
    sequences: dict[int, int] = field(default_factory=dict)

    def ask_init(self, *, named: bool = False, version: int = 4) -> ErrorCode:
        """InitProducerId, once; ``named``: with the producer it has."""
        had = self.producer if named else (-1, -1)
        request = InitProducerIdRequest(self.name, self.timeout_ms, *had)
        answer = self.client.any_broker().call(request, version, InitProducerIdResponse)
        if answer.error_code == NONE:
            self.producer = (answer.producer_id, answer.producer_epoch)
            self.sequences.clear()
        return ErrorCode(answer.error_code)

    def init(self) -> None:
        """InitProducerId until it is answered."""
        find_coordinator(self.client, self.name, TRANSACTION)
        assert until(self.ask_init) is NONE

    def add(self, *indexes: int, version: int = 3) -> ErrorCode:
        """AddPartitionsToTxn; the first partition's error."""
        wanted = AddPartitionsToTxnRequestAddPartitionsToTxnTopic(self.topic, list(indexes))
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=self.producer[0],
            v3_and_below_producer_epoch=self.producer[1],
            v3_and_below_topics=[wanted],
        )

        def ask() -> ErrorCode:
            answer = self.client.any_broker().call(request, version, AddPartitionsToTxnResponse)
            return ErrorCode(answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code)

        return until(ask)

    def ask_produce(self, data: bytes | bytearray, index: int = 0) -> ErrorCode:
        """One batch as it is, once."""
        version = self.protocol.produce
        answer = self.client.produce(self.topic, index, data, version=version, transactional_id=self.name)
        return ErrorCode(answer.error_code)

    def batch(self, value: bytes, index: int = 0, *, seq: int | None = None) -> bytearray:
        """The next batch of a partition."""
        pid, epoch = self.producer
        if seq is None:
            seq = self.sequences.get(index, 0)
            self.sequences[index] = seq + 1
        return batch(value, pid=pid, epoch=epoch, seq=seq, transactional=True, first_ms=int(time.time() * 1000))

    def write(self, value: bytes, *indexes: int) -> None:
        """One record to each partition, added before if the protocol wants that."""
        places = indexes or (0,)
        if not self.protocol.bumps:
            assert self.add(*places) is NONE
        for index in places:
            data = self.batch(value, index)
            assert until(lambda data=data, index=index: self.ask_produce(data, index)) is NONE  # type: ignore[misc]

    def ask_end(self, *, committed: bool = True) -> tuple[ErrorCode, tuple[int, int]]:
        """EndTxn, once; the error and the producer that it tells."""
        request = EndTxnRequest(self.name, *self.producer, committed)
        answer = self.client.any_broker().call(request, self.protocol.end, EndTxnResponse)
        return ErrorCode(answer.error_code), (answer.producer_id, answer.producer_epoch)

    def end(self, *, committed: bool = True) -> ErrorCode:
        """EndTxn until it is answered; continues under the identity in the response."""
        told = (-1, -1)

        def ask() -> ErrorCode:
            nonlocal told
            error, told = self.ask_end(committed=committed)
            return error

        error = until(ask)
        if error is NONE and self.protocol.bumps:
            self.producer = told
            self.sequences.clear()
        return error

    def add_group(self, group: str) -> ErrorCode:
        """AddOffsetsToTxn."""
        request = AddOffsetsToTxnRequest(self.name, *self.producer, group)
        return until(lambda: ErrorCode(self.client.any_broker().call(request, 3, AddOffsetsToTxnResponse).error_code))

    def ask_offsets(self, group: str, offset: int) -> ErrorCode:
        """TxnOffsetCommit of the first partition, once."""
        rows = [TxnOffsetCommitRequestPartition(0, offset, -1, "")]
        request = TxnOffsetCommitRequest(
            self.name, group, *self.producer, topics=[TxnOffsetCommitRequestTopic(self.topic, partitions=rows)]
        )
        answer = self.client.any_broker().call(request, self.protocol.offsets, TxnOffsetCommitResponse)
        return ErrorCode(answer.topics[0].partitions[0].error_code)

    def offsets(self, group: str, offset: int) -> ErrorCode:
        """TxnOffsetCommit until it is answered, the group added before if the protocol wants that."""
        if not self.protocol.bumps:
            assert self.add_group(group) is NONE
        return until(lambda: self.ask_offsets(group, offset))

    def stable(self, index: int = 0) -> int:
        """The last stable offset of a partition."""
        return self.client.offset(self.topic, index, isolation_level=1)

    def settle(self, index: int = 0) -> int:
        """The last stable offset once it is the end of the log."""
        eventually(lambda: self.stable(index) == self.client.offset(self.topic, index))
        return self.client.offset(self.topic, index)


def committed_offset(client: ClusterClient, group: str, topic: str) -> tuple[int, ErrorCode]:
    """A group's offset of the first partition, if it is stable."""
    request = OffsetFetchRequest(group, [OffsetFetchRequestTopic(topic, [0])], require_stable=True)
    row = client.any_broker().call(request, 7, OffsetFetchResponse).topics[0].partitions[0]
    return row.committed_offset, ErrorCode(row.error_code)
