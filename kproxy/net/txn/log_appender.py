"""Appends to the transaction log: one batch, sent again unchanged until the broker's response is definite."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import trio

from kproxy.codec._generated.delete_records import (
    DeleteRecordsRequest,
    DeleteRecordsRequestDeleteRecordsPartition,
    DeleteRecordsRequestDeleteRecordsTopic,
    DeleteRecordsResponse,
)
from kproxy.codec._generated.produce import (
    ProduceRequest,
    ProduceRequestPartitionProduceData,
    ProduceRequestTopicProduceData,
    ProduceResponse,
)
from kproxy.codec.batch import Record, build_batch
from kproxy.codec.error_codes import NO_TOPIC, error_name
from kproxy.codec.messages import ErrorCode
from kproxy.codec.version_choice import VersionRange
from kproxy.config.transaction_options import TransactionOptions
from kproxy.dedup.produce_outcome import ProduceOutcome, outcome_of
from kproxy.errors import RemoteProtocolError
from kproxy.net.brokers.backoff import Backoff
from kproxy.net.brokers.cluster import Cluster
from kproxy.net.brokers.leaders import Leaders
from kproxy.net.brokers.metadata import NoLeader
from kproxy.net.own_topic import check
from kproxy.txn.procedures.outside import NotAppended

KeyValue: TypeAlias = tuple[bytes | None, bytes | None]
"""A record's key and value."""

_PRODUCE: Final[VersionRange] = (3, 8)
_DELETE: Final[VersionRange] = (0, 2)
#: To one broker, which answers a request only when all replicas have it; more requests wait for a connection.
_MOST_CONNECTIONS: Final = 8
_KIND: Final = "transaction_state_log"
#: Within the time for an append, so that a broker that is silent leaves time to ask another.
_ATTEMPTS: Final = 3
_FENCED: Final = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED})
#: Refusals after which another attempt may go well: damage on the way, brokers that do not know the topic yet.
_AGAIN: Final = NO_TOPIC | {ErrorCode.CORRUPT_MESSAGE}


class AppendError(NotAppended):
    """The log's leader did not acknowledge an append."""

    def __init__(self, partition: int, error_code: int) -> None:
        """``error_code``: the last one, Kafka's."""
        super().__init__(f"{type(self).__name__}: partition {partition}, {error_name(error_code)}")
        self.error_code = error_code


class AppendFenced(AppendError):
    """A higher epoch of the producer is in the log, and before it, if at all, an attempt that had no response."""


class AppendRefused(AppendError):
    """Nothing was written, and no attempt is in flight."""


class AppendUnknown(AppendError):
    """An attempt may be in the log, or may still reach it: the log has to be read to its end."""


@dataclass(slots=True)
class _Attempts:
    """The state of the attempts to append one batch."""

    error_code: int = int(ErrorCode.LEADER_NOT_AVAILABLE)
    #: One that has ended may be in the log, or may still reach it.
    open: bool = False
    #: So may the one that is under way.
    sent: bool = False


class LogAppender:
    """Many appends may be under way at a time, also to one partition; those of one producer go one after another."""

    def __init__(
        self, cluster: Cluster, config: TransactionOptions, topic: str, deadline_s: float | None = None
    ) -> None:
        """``deadline_s``: for an append with all its attempts; ``upstream_request_timeout_ms`` if omitted."""
        self._cluster = cluster
        self._config = config
        self._topic = topic
        self._deadline_s = config.upstream_request_timeout_ms / 1000 if deadline_s is None else deadline_s
        self._leaders = Leaders(cluster, config, _MOST_CONNECTIONS)
        #: Called with each response: when the append was sent (trio's clock), and the broker's time in ms, or -1.
        self.on_append_time: Callable[[float, int], None] = lambda sent_at, time_ms: None

    async def append(
        self, partition: int, producer_id: int, epoch: int, sequence: int, records: Sequence[KeyValue]
    ) -> int:
        """Appends one batch; its base offset, when all in-sync replicas have it, also if it was there already.

        AppendFenced; AppendRefused; AppendUnknown, as after a cancellation of this.
        """
        batch = build_batch(self._rows(records), producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
        return await self._append(partition, batch)

    async def append_unfenced(self, partition: int, records: Sequence[KeyValue]) -> int:
        """Appends without a producer: after lost responses the batch may be in the log more than once."""
        return await self._append(partition, build_batch(self._rows(records)))

    async def delete_records(self, partition: int, before: int) -> int:
        """Deletes all that lies before an offset; where the log begins then.

        Refused, also if the log ends before it; OSError, RemoteProtocolError if no leader did it in time: it may be
        done nevertheless.
        """
        rows = [DeleteRecordsRequestDeleteRecordsPartition(partition_index=partition, offset=before)]
        asked = DeleteRecordsRequestDeleteRecordsTopic(name=self._topic, partitions=rows)
        request = DeleteRecordsRequest(topics=[asked], timeout_ms=self._attempt_ms)
        failure: OSError | RemoteProtocolError = OSError("DeleteRecords: no leader was found in time")
        backoff = Backoff(self._config)
        with trio.move_on_after(self._deadline_s):
            while True:
                try:
                    return await self._delete(partition, request)
                except (OSError, RemoteProtocolError) as error:
                    failure = error
                self._failed(partition)
                await backoff.pause()
        raise failure

    def close(self) -> None:
        """Closes the connections."""
        self._leaders.close()

    @property
    def _attempt_ms(self) -> int:
        return int(self._deadline_s * 1000 / _ATTEMPTS)

    def _rows(self, records: Sequence[KeyValue]) -> list[Record]:
        now_ms = int(self._cluster.network.wall() * 1000)  # the broker's time replaces it
        return [Record(offset, now_ms, key, value) for offset, (key, value) in enumerate(records)]

    def _failed(self, partition: int) -> None:
        self._cluster.count_error(_KIND)
        self._cluster.metadata.forget((self._topic, partition))

    # -- Produce

    async def _append(self, partition: int, batch: bytearray) -> int:
        attempts = _Attempts()
        backoff = Backoff(self._config)
        with trio.move_on_after(self._deadline_s):
            while True:
                offset = await self._attempt(partition, batch, attempts)
                if not attempts.error_code and offset >= 0:
                    return offset
                self._judge(partition, attempts)
                self._failed(partition)
                await backoff.pause()
        if attempts.open or attempts.sent:
            raise AppendUnknown(partition, attempts.error_code)
        raise AppendRefused(partition, attempts.error_code)

    async def _attempt(self, partition: int, batch: bytearray, attempts: _Attempts) -> int:
        """Sends the batch once; the base offset, or -1."""
        offset, attempts.error_code = -1, ErrorCode.NETWORK_EXCEPTION
        part = ProduceRequestPartitionProduceData(index=partition, records=memoryview(batch))
        topic = ProduceRequestTopicProduceData(name=self._topic, partition_data=[part])
        request = ProduceRequest(acks=-1, timeout_ms=self._attempt_ms, topic_data=[topic])
        try:
            with trio.move_on_after(self._attempt_ms / 1000):
                async with self._leaders.to((self._topic, partition)) as client:
                    attempts.sent, sent_at = True, trio.current_time()
                    response = await client.call(request, ProduceResponse, _PRODUCE)
                row = next(row for found in response.responses for row in found.partition_responses)
                offset, attempts.error_code = row.base_offset, row.error_code
                self.on_append_time(sent_at, row.log_append_time_ms)
        except NoLeader as lost:
            attempts.error_code = lost.error_code
        except (OSError, RemoteProtocolError, StopIteration):
            pass
        return offset

    @staticmethod
    def _judge(partition: int, attempts: _Attempts) -> None:
        """Evaluates the error of an attempt; an AppendError if there is to be no further attempt."""
        error, outcome = attempts.error_code, outcome_of(attempts.error_code)
        if attempts.sent and outcome is ProduceOutcome.OPEN:
            attempts.open = True
        attempts.sent = False
        if error in _FENCED:
            raise AppendFenced(partition, error)
        if outcome is ProduceOutcome.WRITTEN:  # by whom, and where, it does not say
            raise AppendUnknown(partition, error)
        if outcome in (ProduceOutcome.REFUSED, ProduceOutcome.OUT_OF_SEQUENCE) and error not in _AGAIN:
            raise AppendUnknown(partition, error) if attempts.open else AppendRefused(partition, error)

    # -- DeleteRecords

    async def _delete(self, partition: int, request: DeleteRecordsRequest) -> int:
        with trio.move_on_after(self._attempt_ms / 1000):
            async with self._leaders.to((self._topic, partition)) as client:
                response = await client.call(request, DeleteRecordsResponse, _DELETE)
            row = next((row for found in response.topics for row in found.partitions), None)
            if row is None:
                raise RemoteProtocolError("DeleteRecords answer without the partition")
            check("DeleteRecords", self._topic, row.error_code)
            return row.low_watermark
        raise OSError("DeleteRecords: no answer in time")
