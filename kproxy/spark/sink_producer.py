"""The producer of one task attempt: rows become requests, each of which is sent once, within bounded memory.

The connections are the attempt's own, for the client.id tells its member. Nothing is sent a second time: data of a
member go out under a producer id of kproxy's, so sequences of the attempt's own would not tell a repetition from new
data. What fails, fails the attempt, whose member is aborted; what a broker does not take at once kproxy repeats on its
own side.
"""

import random
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kproxy.codec._generated.produce import (
    ProduceRequest,
    ProduceRequestPartitionProduceData,
    ProduceRequestTopicProduceData,
    ProduceResponse,
)
from kproxy.codec.error_codes import error_name
from kproxy.codec.messages import ErrorCode
from kproxy.spark.kafka_cluster import TopicPartition
from kproxy.spark.key_hash import key_hashes
from kproxy.spark.record_encoding import ANYWHERE, Packed, Rows, pack
from kproxy.spark.sink_rows import Columns, rows_of
from kproxy.spark.sink_topics import SinkTopics
from kproxy.spark.spark_errors import KafkaError

if TYPE_CHECKING:
    from kproxy.spark.broker_connection import Connection
    from kproxy.spark.sink_options import SinkOptions

#: Rows that wait to be sent together: the larger, the fuller are the batches of many partitions.
_WAITING_BYTES: Final = 8 << 20
#: On each connection: this bounds what kproxy keeps of it.
_IN_FLIGHT: Final = 5
_ALL: Final = -1
#: The first version has batches of format v2; from 13 on topics are named by their ids.
_VERSIONS: Final = (3, 12)

#: What to do about errors whose name does not say it.
_ADVICE: Final[Mapping[int, str]] = MappingProxyType(
    {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED: ": give the principal of this query Write on the topic",
        ErrorCode.INVALID_TXN_STATE: ": the task's part of the transaction has ended, as after a restart of kproxy "
        "or after transaction.timeout.ms; nothing of it is visible, and the next run of task or query writes all of it",
        ErrorCode.POLICY_VIOLATION: ": kproxy's own transactions refuse compacted topics; start kproxy with "
        "transactions.home: broker, or with a rule TRANSACTIONAL_ID=broker",
        ErrorCode.MESSAGE_TOO_LARGE: ": set kafka.batch.size below the topic's max.message.bytes, or raise that",
    }
)


class Sender:
    """Writes rows; the first that fails, fails all. Use it in one thread, and close it."""

    def __init__(
        self, options: "SinkOptions", columns: Columns, client_id: str, clock: Callable[[], float] = time.time
    ) -> None:
        """Connects when rows come. ``clock``: of rows without a timestamp, in seconds."""
        self._options = options
        self._columns = columns
        self._clock = clock
        # While a broker is unavailable kproxy keeps the request: a missing response is no reason to give up before the
        # transaction's own time-out.
        self._cluster = options.open_cluster(client_id, longest_request_ms=options.timeout_ms)
        self._topics = SinkTopics(self._cluster, create=options.creates_topics)
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_bytes = 0
        self._spread = Spread(options.packing.batch_bytes)
        self._requests: dict[Connection, _Request] = {}
        self._awaited: deque[tuple[Connection, int]] = deque()

    def send(self, batch: pa.RecordBatch) -> int:
        """Sends the rows of a batch, now or with later ones; returns how many. KafkaError if one failed.

        OptionError as of ``rows_of``.
        """
        for piece in _pieces(batch):
            self._waiting.append(piece)
            self._waiting_bytes += piece.nbytes
            if self._waiting_bytes >= _WAITING_BYTES:
                self._send_waiting()
        return int(batch.num_rows)

    def flush(self) -> None:
        """Until every row is acknowledged; errors as of ``send``."""
        self._send_waiting()
        self._receive(leave=0)

    def close(self) -> None:
        """Drops what is left, and the connections; harmless when called again."""
        self._waiting.clear()
        self._cluster.close()

    def _send_waiting(self) -> None:
        if not self._waiting:
            return
        together = pa.Table.from_batches(self._waiting).combine_chunks().to_batches()
        self._waiting.clear()
        self._waiting_bytes = 0
        now_ms = int(self._clock() * 1000)
        for batch in together:
            for topic, rows in rows_of(batch, self._columns, self._options.topic, now_ms):
                self._send_rows(topic, rows)
        for connection in list(self._requests):
            self._send_request(connection)

    def _send_rows(self, topic: str, rows: Rows) -> None:
        if not self._topics.has(topic):
            self._receive(leave=0)  # the question may go over a connection on which responses are to come
        count = self._topics.partitions(topic)
        chosen = self._spread.choose(rows, count)
        if (highest := int(chosen.max())) >= count:
            what = f"the topic has {count} partitions: correct the column partition"
            raise KafkaError(f"a record for {topic}-{highest} was not written: {what}")
        order = np.argsort(chosen, kind="stable")
        ends = np.searchsorted(chosen[order], np.arange(count + 1))
        rows = rows if (chosen == chosen[0]).all() else rows.take(order)
        for partition in range(count):
            start, end = int(ends[partition]), int(ends[partition + 1])
            if start < end:
                for packed in pack(rows.slice(start, end), self._options.packing):
                    self._add(TopicPartition(topic, partition), packed)

    def _add(self, to: TopicPartition, packed: Packed) -> None:
        """Puts a batch into the next request to the partition's leader."""
        most = self._options.request_bytes
        if packed.largest > most:
            what = f"it takes up to {packed.largest} bytes, and kafka.max.request.size is {most}: raise that"
            raise KafkaError(f"a record for {to} was not written: {what}")
        connection = self._cluster.insist(lambda: self._leader(to))
        request = self._requests.get(connection)
        if request is not None and not request.has_room(to, packed, most):
            self._send_request(connection)
            request = None
        if request is None:
            request = self._requests[connection] = _Request()
        request.add(to, packed)

    def _leader(self, to: TopicPartition) -> "Connection":
        """A connection to it. A login that ends soon is renewed by another connection, so responses come first."""
        if not self._cluster.has_leader(to):
            self._receive(leave=0)
        connection = self._cluster.leader(to, renew=False)
        if not connection.is_old:
            return connection
        if connection in self._requests:
            self._send_request(connection)
        self._receive(leave=0)
        return self._cluster.leader(to)

    def _send_request(self, connection: "Connection") -> None:
        request = self._requests.pop(connection).message(self._options.timeout_ms)
        if connection.awaited >= _IN_FLIGHT:
            self._receive(leave=_IN_FLIGHT - 1, of=connection)
        version = connection.version(ProduceRequest, *_VERSIONS)
        connection.send(request, version)
        self._awaited.append((connection, version))

    def _receive(self, *, leave: int, of: "Connection | None" = None) -> None:
        """Receives responses, the oldest first, until ``leave`` are awaited: in all, or ``of`` one connection."""
        while (len(self._awaited) if of is None else of.awaited) > leave:
            connection, version = self._awaited.popleft()
            for topic in connection.receive(version, ProduceResponse).responses:
                for part in topic.partition_responses:
                    if part.error_code:
                        why = f"{error_name(part.error_code)}{_ADVICE.get(part.error_code, '')}"
                        raise KafkaError(f"a record for {topic.name}-{part.index} was not written: {why}")


class Spread:
    """Partitions for rows: that of the row, else by its key as Java's producer does, else whole batches in turn."""

    def __init__(self, batch_bytes: int) -> None:
        self._batch_bytes = batch_bytes
        self._next: int | None = None

    def choose(self, rows: Rows, count: int) -> npt.NDArray[np.int64]:
        """A partition for each row; below ``count``, where the row does not say another."""
        nowhere = np.full(len(rows.values), ANYWHERE, np.int64)
        chosen = nowhere if rows.partitions is None else rows.partitions.copy()
        if rows.keys is not None:
            has_key = rows.keys.is_valid().to_numpy(zero_copy_only=False)
            by_key = np.flatnonzero((chosen == ANYWHERE) & has_key)
            if len(by_key):
                chosen[by_key] = key_hashes(rows.keys.take(pa.array(by_key))) % count
        anywhere = np.flatnonzero(chosen == ANYWHERE)
        if len(anywhere):
            chosen[anywhere] = self._in_turn(rows.most_sizes()[anywhere], count)
        return chosen

    def _in_turn(self, sizes: npt.NDArray[np.int64], count: int) -> npt.NDArray[np.int64]:
        if self._next is None:
            self._next = random.randrange(count)  # so that small attempts do not all fill the first partition
        batches = np.cumsum(sizes) // self._batch_bytes
        found: npt.NDArray[np.int64] = (self._next + batches) % count
        self._next = int(found[-1]) + 1
        return found


class _Request:
    """Batches for one broker, at most one for each partition."""

    def __init__(self) -> None:
        self._batches: dict[TopicPartition, bytearray] = {}
        self._bytes = 0

    def has_room(self, to: TopicPartition, packed: Packed, most: int) -> bool:
        return to not in self._batches and self._bytes + len(packed.data) <= most

    def add(self, to: TopicPartition, packed: Packed) -> None:
        self._batches[to] = packed.data
        self._bytes += len(packed.data)

    def message(self, timeout_ms: int) -> ProduceRequest:
        topics: dict[str, ProduceRequestTopicProduceData] = {}
        for (name, partition), data in self._batches.items():
            topic = topics.setdefault(name, ProduceRequestTopicProduceData(name, partition_data=[]))
            topic.partition_data.append(ProduceRequestPartitionProduceData(partition, memoryview(data)))
        return ProduceRequest(acks=_ALL, timeout_ms=timeout_ms, topic_data=list(topics.values()))


def _pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """A batch in slices of about the size that waits at most."""
    rows = max(1, batch.num_rows * _WAITING_BYTES // max(1, batch.nbytes))
    for start in range(0, batch.num_rows, rows):
        yield batch.slice(start, rows)
