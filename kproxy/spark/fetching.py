"""Record sets of a range of offsets in one partition, one after the other, with bounded memory.

The next Fetch is in flight while the last response is processed; so at most two responses are held. A reader of
committed data gets whole batches without those that Kafka's own transactions aborted, which a broker leaves to its
clients to drop. kproxy never sends what its own transactions hide.
"""

import logging
import time
from collections.abc import Iterator
from typing import Final, NamedTuple, TypeAlias

from kproxy.codec._generated.fetch import (
    FetchRequest,
    FetchRequestFetchPartition,
    FetchRequestFetchTopic,
    FetchResponse,
    FetchResponsePartitionData,
)
from kproxy.codec.batch import read_header
from kproxy.codec.messages import ErrorCode
from kproxy.codec.records import MAGIC_OFFSET
from kproxy.errors import RemoteProtocolError
from kproxy.spark.broker_connection import Connection
from kproxy.spark.kafka_cluster import EARLIEST, PASSING, KafkaCluster, Passing, TopicPartition, refusal
from kproxy.spark.spark_errors import DataLost, KafkaError
from kproxy.txn.verdict import NothingKnown, Verdict
from kproxy.txn.visibility import Aborted, entries, visible

Buffer: TypeAlias = bytes | bytearray | memoryview

#: Versions that carry every codec and name topics.
_VERSIONS: Final = (4, 12)
_WAIT_MS: Final = 500
_MAGIC_V2: Final = 2
_LOG: Final = logging.getLogger(__name__)


class Range(NamedTuple):
    """Offsets of one partition, from ``start`` up to, but not with, ``end``."""

    partition: TopicPartition
    start: int
    end: int

    @property
    def size(self) -> int:
        """How many offsets; not all need have a record."""
        return self.end - self.start


class Reading(NamedTuple):
    """How a range is read."""

    #: Without what is aborted, for which the range must end at or below the last stable offset.
    committed: bool
    #: Whether it is an error that records of the range were deleted.
    fail_on_data_loss: bool
    #: How much one response may hold; one batch at least is always given.
    fetch_bytes: int
    #: How long nothing may come.
    patience_s: float


class _AllDecided(NothingKnown):
    """``Decisions`` for what kproxy lets through: the rest never comes."""

    def verdict(self, producer_id: int, epoch: int) -> Verdict:
        return Verdict.COMMITTED


_ALL_DECIDED: Final = _AllDecided()


def record_sets(cluster: KafkaCluster, wanted: Range, how: Reading) -> Iterator[Buffer]:
    """The record sets that hold the range; the first and the last may hold records beyond it.

    ``cluster`` is to be used for nothing else meanwhile. Raises DataLost, or KafkaError if nothing came for
    ``how.patience_s``.
    """
    fetcher = _Fetcher(cluster, wanted, how)
    try:
        yield from fetcher.run()
    finally:
        fetcher.stop()


def end_offset(record_set: Buffer, position: int) -> int:
    """The offset after the last whole batch, ``position`` if there is none. Raises RemoteProtocolError."""
    for entry in entries(record_set):
        if entry[MAGIC_OFFSET] == _MAGIC_V2:
            header = read_header(entry)
            position = max(position, header.base_offset + header.last_offset_delta + 1)
        else:
            position = max(position, int.from_bytes(entry[:8], "big", signed=True) + 1)
    return position


class _Fetcher:
    """The course of one range."""

    def __init__(self, cluster: KafkaCluster, wanted: Range, how: Reading) -> None:
        self._cluster = cluster
        self._wanted = wanted
        self._how = how
        self._position = wanted.start
        #: The connection on which a request is in flight.
        self._asked: Connection | None = None
        self._version = 0
        self._progress = time.monotonic()

    def run(self) -> Iterator[Buffer]:
        while self._position < self._wanted.end:
            row = self._cluster.insist(self._answer)
            if row.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                self._step_over_loss()
                continue
            data = self._take(row)
            if self._position < self._wanted.end:
                self._cluster.insist(self._ask)
            if data:
                yield data

    def stop(self) -> None:
        """Forgets a response that is in flight."""
        if self._asked is not None:
            self._cluster.drop(self._asked)
            self._asked = None

    def _ask(self) -> None:
        """Sends the next request, unless it is in flight."""
        if self._asked is not None:
            return
        leader = self._cluster.leader(self._wanted.partition)
        self._version = leader.version(FetchRequest, *_VERSIONS)
        try:
            leader.send(self._request(self._position, committed=self._how.committed), self._version)
        except KafkaError as error:
            self._cluster.drop(leader)
            raise Passing(str(error)) from error
        self._asked = leader

    def _answer(self) -> FetchResponsePartitionData:
        """The response for the present position. Raises Passing."""
        self._ask()
        asked, self._asked = self._asked, None
        assert asked is not None
        try:
            response = asked.receive(self._version, FetchResponse)
        except KafkaError as error:
            self._cluster.drop(asked)
            raise Passing(str(error)) from error
        return self._row(asked, response)

    def _row(self, asked: Connection, response: FetchResponse) -> FetchResponsePartitionData:
        rows = [row for topic in response.responses for row in topic.partitions]
        code = response.error_code or (rows[0].error_code if rows else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if code in (ErrorCode.NONE, ErrorCode.OFFSET_OUT_OF_RANGE):
            return rows[0]
        problem = f"{asked.address} can't give records of {self._wanted.partition}: {refusal(code)}"
        raise (Passing if code in PASSING else KafkaError)(problem)

    def _request(self, position: int, *, committed: bool) -> FetchRequest:
        part = FetchRequestFetchPartition(
            partition=self._wanted.partition.partition,
            fetch_offset=position,
            partition_max_bytes=self._how.fetch_bytes,
        )
        return FetchRequest(
            max_wait_ms=_WAIT_MS,
            min_bytes=1,
            max_bytes=self._how.fetch_bytes,
            isolation_level=int(committed),
            topics=[FetchRequestFetchTopic(topic=self._wanted.partition.topic, partitions=[part])],
        )

    def _take(self, row: FetchResponsePartitionData) -> Buffer:
        """The whole batches of a response; moves to the offset after them."""
        data = row.records or b""
        partition = self._wanted.partition
        try:
            if self._how.committed:
                aborted = [Aborted(each.producer_id, each.first_offset) for each in row.aborted_transactions or ()]
                seen = visible(
                    data,
                    topic=partition.topic,
                    partition=partition.partition,
                    first_offset=self._position,
                    aborted=aborted,
                    decisions=_ALL_DECIDED,
                )
                data, position = b"".join(seen.pieces) if seen.changed else data, seen.next_offset
            else:
                position = end_offset(data, self._position)
        except RemoteProtocolError as error:
            raise KafkaError(f"{partition} at offset {self._position}: no record set: {error}") from error
        if position > self._position:
            self._position, self._progress = position, time.monotonic()
        else:
            self._nothing_new(row)
        return data

    def _nothing_new(self, row: FetchResponsePartitionData) -> None:
        """Whether nothing is left of the range, as where compaction took its end; if not, waits, within patience."""
        if row.high_watermark >= self._wanted.end and not self._is_anything_left():
            self._position = self._wanted.end
        elif time.monotonic() - self._progress > self._how.patience_s:
            missing = f"{self._wanted.partition}: offsets {self._position} to {self._wanted.end - 1}"
            raise KafkaError(f"{missing} did not come in {self._how.patience_s:g} s")

    def _is_anything_left(self) -> bool:
        """Whether the log itself, whatever may be seen of it, has a batch in the rest of the range."""
        asked = self._cluster.leader(self._wanted.partition)
        request = self._request(self._position, committed=False)
        row = self._row(asked, self._cluster.ask(asked, request, _VERSIONS, FetchResponse))
        data = row.records or b""
        first = next(entries(data), None)
        if first is None:
            return bool(data)
        return int.from_bytes(first[:8], "big", signed=True) < self._wanted.end

    def _step_over_loss(self) -> None:
        """Continues at the oldest record there is, or raises DataLost."""
        partition, end = self._wanted.partition, self._wanted.end
        earliest = self._cluster.offsets({partition: EARLIEST})[partition] or 0
        lost = min(max(earliest, self._position), end) if earliest > self._position else end
        problem = f"{partition}: the records from offset {self._position} to {lost - 1} no longer exist"
        if self._how.fail_on_data_loss:
            raise DataLost(f"{problem}; set failOnDataLoss to false to continue without them")
        _LOG.warning("%s", problem)
        self._position, self._progress = lost, time.monotonic()
