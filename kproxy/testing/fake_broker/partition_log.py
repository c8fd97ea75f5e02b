"""The log of one partition, in memory: appends with Kafka's checks, reads cut by bytes, look-ups by time and epoch."""

import struct
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from kproxy.codec.batch import BatchHeader, crc_ok, iter_records, read_header
from kproxy.codec.messages import ErrorCode
from kproxy.testing.fake_broker.log_cleaner import compacted, count_expired, is_compacted
from kproxy.testing.fake_broker.log_transactions import LogTransactions
from kproxy.testing.fake_broker.producers import DAY_MS, TEN_MINUTES_MS, ProducerStates, SentBatch, Verdict, advance
from kproxy.testing.fake_broker.stored_batches import (
    MAX_DECOMPRESSED_BYTES,
    StoredBatch,
    marker_batch,
    one_batch,
    recompressed,
    records_error,
    stamp_append_time,
)

_PREFIX: Final = struct.Struct(">qii")
_COORDINATOR_EPOCH: Final = slice(-5, -1)
"""Where a marker's only record has the epoch of the coordinator that wrote it."""
_CONTROL: Final = 0x20
DEFAULT_MAX_MESSAGE_BYTES: Final = 1_048_588
NO_OFFSET: Final = -1


class Appended(NamedTuple):
    """The result of an append; ``append_time`` is -1 when the records keep their producer's time.

    ``end_offset`` is the offset after the batch, also for a repeated one.
    """

    error: ErrorCode
    base_offset: int = NO_OFFSET
    append_time: int = -1
    end_offset: int = NO_OFFSET


class FoundOffset(NamedTuple):
    """A record found by time."""

    offset: int
    timestamp: int
    leader_epoch: int


class PartitionLog:
    """The batches of one partition and the state of its producers.

    :param config: the topic's settings.
    :param expiration_ms: ``producer.id.expiration.ms``.
    :param expiration_check_ms: how often that is looked after.
    """

    def __init__(
        self, config: Mapping[str, str], expiration_ms: int = DAY_MS, expiration_check_ms: int = TEN_MINUTES_MS
    ) -> None:
        self._config = config
        self._batches: list[StoredBatch] = []
        self.start_offset = 0
        self.end_offset = 0
        self.producers = ProducerStates(expiration_ms, expiration_check_ms)
        self.transactions = LogTransactions()

    def append(self, data: memoryview, leader_epoch: int, now: int, *, anywhere: bool = True) -> Appended:
        """Check one record set that a producer sent and append it.

        :param data: exactly one batch of format v2, or the response is INVALID_RECORD.
        :param now: the broker's time in ms.
        :param anywhere: a producer that is not known may have been forgotten, and begins at any sequence; if not, at 0.
        """
        self.producers.expire(now)
        header = one_batch(data)
        if isinstance(header, ErrorCode):
            return Appended(header)
        if len(data) > int(self._config.get("max.message.bytes", DEFAULT_MAX_MESSAGE_BYTES)):
            return Appended(ErrorCode.MESSAGE_TOO_LARGE)
        if not crc_ok(data, 0, len(data)):
            return Appended(ErrorCode.CORRUPT_MESSAGE)
        if header.attributes & _CONTROL or header.record_count != header.last_offset_delta + 1:
            return Appended(ErrorCode.INVALID_RECORD)
        if error := records_error(data, header, keyed=is_compacted(self._config)):
            return Appended(error)
        return self._append_checked(bytearray(data), header, leader_epoch, now, anywhere)

    def append_marker(
        self, producer_id: int, epoch: int, commit: bool, coordinator_epoch: int, leader_epoch: int, now: int
    ) -> ErrorCode:
        """Append the end marker of a transaction: a control batch of one record."""
        error = self.producers.marker(producer_id, epoch, coordinator_epoch, now, self.end_offset)
        if error is ErrorCode.NONE:
            self.transactions.ended(producer_id, self.end_offset, commit)
            self._store(marker_batch(producer_id, epoch, commit, coordinator_epoch, now), 0, leader_epoch, now)
        return error

    def read(self, offset: int, max_bytes: int, *, whole_first_batch: bool, end: int | None = None) -> bytes:
        """Return record batches from the one that holds ``offset`` on, cut after ``max_bytes`` like a file.

        :param end: the high watermark: batches from there on are not read.
        :param whole_first_batch: give the first batch whole even if it is bigger than ``max_bytes``; without, the
            response is empty if the first batch does not fit.
        """
        index = self._find(offset)
        stop = len(self._batches) if end is None or end >= self.end_offset else self._find(end)
        if index >= stop:
            return b""
        first = self._batches[index].data
        if len(first) > max_bytes:
            return first if whole_first_batch else b""
        parts = []
        size = 0
        while size < max_bytes and index < stop:
            parts.append(self._batches[index].data)
            size += len(parts[-1])
            index += 1
        return b"".join(parts)[:max_bytes]

    def find_timestamp(self, timestamp: int) -> FoundOffset | None:
        """Return the first record whose time is ``timestamp`` (ms) or later."""
        for batch in self._batches:
            if batch.max_timestamp < timestamp:
                continue
            for record in iter_records(batch.data, max_decompressed_bytes=MAX_DECOMPRESSED_BYTES):
                if record.timestamp >= timestamp and record.offset >= self.start_offset:
                    return FoundOffset(record.offset, record.timestamp, batch.leader_epoch)
        return None

    def max_timestamp(self) -> FoundOffset | None:
        """Return the first record with the newest time."""
        if not self._batches:
            return None
        return self.find_timestamp(max(batch.max_timestamp for batch in self._batches))

    def leader_epoch_at(self, offset: int) -> int:
        """Return the leader epoch under which ``offset`` was written; -1 when the log has no batch."""
        if not self._batches:
            return -1
        return self._batches[min(self._find(offset), len(self._batches) - 1)].leader_epoch

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """Return (the largest epoch not above ``epoch``, the offset after its last record), or (-1, -1)."""
        found = [batch for batch in self._batches if batch.leader_epoch <= epoch]
        return (found[-1].leader_epoch, found[-1].last_offset + 1) if found else (-1, NO_OFFSET)

    def delete_before(self, offset: int) -> None:
        """Move the log's start to ``offset``; batches wholly below it go, the state of their producers stays."""
        self.start_offset = max(self.start_offset, offset)
        del self._batches[: self._find(self.start_offset)]

    def apply_retention(self, now: int, high_watermark: int) -> None:
        """Throw away what ``retention.ms`` and ``retention.bytes`` allow; the state of the producers stays."""
        count = count_expired(self._batches, self._config, now, high_watermark)
        if count:
            self.delete_before(self._batches[count - 1].last_offset + 1)

    def compact(self, end: int | None = None) -> None:
        """Keep of each key the last record that is committed, as ``cleanup.policy=compact`` does.

        :param end: where the active segment begins, which stays as it is; None: the last batch is the active segment.
        """
        decided = self._find(self.transactions.stable_offset(self.end_offset))
        clean = self._batches[: min(decided, len(self._batches) - 1 if end is None else self._find(end))]
        self._batches[: len(clean)] = compacted(clean, self.producers.ends_with, self.transactions.is_aborted)

    def truncate(self, end: int) -> None:
        """Cut the log at ``end``: what an unclean election loses, or an election of one that had not copied all."""
        del self._batches[self._find(end) :]
        self.end_offset = min(self.end_offset, end)
        self.start_offset = min(self.start_offset, end)
        self.transactions.truncate(end)
        self.producers.keep_before(self._batches[0].base_offset if self._batches else end)
        replay(self._batches[: self._find(self.end_offset)], self.producers)

    def expire_producers(self) -> None:
        """Forget all producers but those that have an open transaction here."""
        self.producers.keep(lambda producer_id: self.transactions.first_offset(producer_id) >= 0)

    def forget_producers(self, now: int) -> None:
        """Know only the producers whose batches the log still holds.

        That is what a broker knows after ``kill -9`` when retention has thrown segments away, and a new replica.
        """
        self.producers.keep_before(0)
        replay(self._batches[: self._find(self.end_offset)], self.producers)
        self.producers.reload(now)

    def producers_before(self, end: int) -> ProducerStates:
        """Return what a replica knows of producers that has copied only what lies below ``end``."""
        known = ProducerStates()
        replay(self._batches[: self._find(end)], known)
        return known

    def _find(self, offset: int) -> int:
        """Return the index of the batch that holds ``offset`` or, failing that, of the next one."""
        return bisect_left(self._batches, (offset,))

    def _judge(self, header: BatchHeader, last_sequence: int, anywhere: bool) -> Verdict:
        """Return what is to become of a producer's batch."""
        if header.base_sequence < 0 or header.producer_epoch < 0:
            return Verdict(ErrorCode.INVALID_RECORD)
        producer = (header.producer_id, header.producer_epoch)
        verdict = self.producers.check(*producer, header.base_sequence, last_sequence, anywhere=anywhere)
        in_transaction = self.transactions.first_offset(header.producer_id) >= 0
        if verdict == Verdict() and in_transaction and not header.is_transactional:
            return Verdict(ErrorCode.INVALID_TXN_STATE)
        return verdict

    def _append_checked(
        self, data: bytearray, header: BatchHeader, leader_epoch: int, now: int, anywhere: bool
    ) -> Appended:
        if header.producer_id >= 0:
            last_sequence = advance(header.base_sequence, header.last_offset_delta)
            verdict = self._judge(header, last_sequence, anywhere)
            if verdict.duplicate is not None:
                known = verdict.duplicate
                return Appended(ErrorCode.NONE, known.first_offset, known.append_time, known.last_offset + 1)
            if verdict.error is not ErrorCode.NONE:
                return Appended(verdict.error)
        max_timestamp, append_time = header.max_timestamp, -1
        compression_type = self._config.get("compression.type", "producer")
        if compression_type != "producer":
            data = recompressed(data, header, compression_type)
        if self._config.get("message.timestamp.type") == "LogAppendTime":
            max_timestamp = append_time = now
            stamp_append_time(data, now)
        base_offset = self._store(data, header.last_offset_delta, leader_epoch, max_timestamp)
        if header.producer_id >= 0:
            sent = SentBatch(header.base_sequence, last_sequence, base_offset, self.end_offset - 1, append_time)
            self.producers.record(header.producer_id, header.producer_epoch, sent, max_timestamp)
        if header.is_transactional:
            self.transactions.began(header.producer_id, header.producer_epoch, base_offset)
        return Appended(ErrorCode.NONE, base_offset, append_time, self.end_offset)

    def _store(self, data: bytearray, last_offset_delta: int, leader_epoch: int, max_timestamp: int) -> int:
        base_offset = self.end_offset
        _PREFIX.pack_into(data, 0, base_offset, len(data) - 12, leader_epoch)
        last_offset = base_offset + last_offset_delta
        self._batches.append(StoredBatch(last_offset, base_offset, leader_epoch, max_timestamp, bytes(data)))
        self.end_offset = last_offset + 1
        return base_offset


def replay(batches: Iterable[StoredBatch], producers: ProducerStates) -> None:
    """Add to ``producers`` what these batches alone say of them, as after a restart or on another replica."""
    for batch in batches:
        header = read_header(batch.data)
        if header.is_control:
            coordinator_epoch = int.from_bytes(batch.data[_COORDINATOR_EPOCH], "big", signed=True)
            producers.marker(
                header.producer_id, header.producer_epoch, coordinator_epoch, batch.max_timestamp, batch.last_offset
            )
        elif header.producer_id >= 0:
            append_time = batch.max_timestamp if header.is_log_append_time else -1
            last = advance(header.base_sequence, header.last_offset_delta)
            sent = SentBatch(header.base_sequence, last, batch.base_offset, batch.last_offset, append_time)
            producers.record(header.producer_id, header.producer_epoch, sent, batch.max_timestamp)
