"""The log of one partition, in memory: appends with Kafka's checks, reads cut by bytes, look-ups by time and epoch."""

import struct
from bisect import bisect_left
from collections.abc import Mapping
from typing import Final, NamedTuple

import crc32c

from kproxy.codec.batch import HEADER_SIZE, BatchHeader, crc_ok, iter_records, read_header
from kproxy.codec.messages import ErrorCode
from kproxy.errors import RemoteProtocolError
from kproxy.testing.fake_broker.producers import ProducerStates, SentBatch, advance

_PREFIX: Final = struct.Struct(">qii")
_CRC_AT: Final = 17
_ATTRIBUTES_AT: Final = 21
_MAX_TIMESTAMP_AT: Final = 35
_PRODUCER_ID_AT: Final = 43
_CONTROL: Final = 0x20
_TRANSACTIONAL: Final = 0x10
_LOG_APPEND_TIME: Final = 0x08
_MAX_DECOMPRESSED_BYTES: Final = 64 << 20
DEFAULT_MAX_MESSAGE_BYTES: Final = 1_048_588
NO_OFFSET: Final = -1


class StoredBatch(NamedTuple):
    """A batch as the log keeps it: offset and leader epoch filled in."""

    last_offset: int
    base_offset: int
    leader_epoch: int
    max_timestamp: int
    data: bytes


class Appended(NamedTuple):
    """What became of a batch; ``append_time`` is -1 when the records keep their producer's time."""

    error: ErrorCode
    base_offset: int = NO_OFFSET
    append_time: int = -1


class FoundOffset(NamedTuple):
    """A record found by time."""

    offset: int
    timestamp: int
    leader_epoch: int


class PartitionLog:
    """The batches of one partition and the state of its producers."""

    def __init__(self, config: Mapping[str, str], expiration_ms: int = 86_400_000) -> None:
        self._config = config
        self._batches: list[StoredBatch] = []
        self.start_offset = 0
        self.end_offset = 0
        self.producers = ProducerStates(expiration_ms)

    def append(self, data: memoryview, leader_epoch: int, now: int) -> Appended:
        """Check one record set that a producer sent and append it.

        :param data: exactly one batch of format v2, or the answer is INVALID_RECORD.
        :param now: the broker's time in ms.
        """
        self.producers.expire(now)
        header = _one_batch(data)
        if isinstance(header, ErrorCode):
            return Appended(header)
        if len(data) > int(self._config.get("max.message.bytes", DEFAULT_MAX_MESSAGE_BYTES)):
            return Appended(ErrorCode.MESSAGE_TOO_LARGE)
        if not crc_ok(data, 0, len(data)):
            return Appended(ErrorCode.CORRUPT_MESSAGE)
        if header.attributes & _CONTROL or header.record_count != header.last_offset_delta + 1:
            return Appended(ErrorCode.INVALID_RECORD)
        return self._append_checked(bytearray(data), header, leader_epoch, now)

    def append_marker(
        self, producer_id: int, epoch: int, commit: bool, coordinator_epoch: int, leader_epoch: int, now: int
    ) -> ErrorCode:
        """Append the end marker of a transaction: a control batch of one record."""
        error = self.producers.marker(producer_id, epoch, coordinator_epoch, now)
        if error is ErrorCode.NONE:
            self._store(_marker_batch(producer_id, epoch, commit, coordinator_epoch, now), 0, leader_epoch, now)
        return error

    def read(self, offset: int, max_bytes: int, *, whole_first_batch: bool) -> bytes:
        """Return record batches from the one that holds ``offset`` on, cut after ``max_bytes`` like a file.

        :param whole_first_batch: give the first batch whole even if it is bigger than ``max_bytes``; without, the
            answer is empty if the first batch does not fit.
        """
        index = self._find(offset)
        if index == len(self._batches):
            return b""
        first = self._batches[index].data
        if len(first) > max_bytes:
            return first if whole_first_batch else b""
        parts = []
        size = 0
        while size < max_bytes and index < len(self._batches):
            parts.append(self._batches[index].data)
            size += len(parts[-1])
            index += 1
        return b"".join(parts)[:max_bytes]

    def find_timestamp(self, timestamp: int) -> FoundOffset | None:
        """Return the first record whose time is ``timestamp`` (ms) or later."""
        for batch in self._batches:
            if batch.max_timestamp < timestamp:
                continue
            for record in iter_records(batch.data, max_decompressed_bytes=_MAX_DECOMPRESSED_BYTES):
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
        """Return (the largest epoch not above ``epoch``, the offset behind its last record), or (-1, -1)."""
        found = [batch for batch in self._batches if batch.leader_epoch <= epoch]
        return (found[-1].leader_epoch, found[-1].last_offset + 1) if found else (-1, NO_OFFSET)

    def delete_before(self, offset: int) -> None:
        """Move the log's start to ``offset``; batches wholly below it go."""
        self.start_offset = max(self.start_offset, offset)
        del self._batches[: self._find(self.start_offset)]
        self.producers.forget_before(self.start_offset)

    def _find(self, offset: int) -> int:
        """Return the index of the batch that holds ``offset`` or, failing that, of the next one."""
        return bisect_left(self._batches, (offset,))

    def _append_checked(self, data: bytearray, header: BatchHeader, leader_epoch: int, now: int) -> Appended:
        if header.producer_id >= 0:
            if header.base_sequence < 0 or header.producer_epoch < 0:
                return Appended(ErrorCode.INVALID_RECORD)
            last_sequence = advance(header.base_sequence, header.last_offset_delta)
            verdict = self.producers.check(
                header.producer_id, header.producer_epoch, header.base_sequence, last_sequence
            )
            if verdict.duplicate is not None:
                return Appended(ErrorCode.NONE, verdict.duplicate.first_offset, verdict.duplicate.append_time)
            if verdict.error is not ErrorCode.NONE:
                return Appended(verdict.error)
        max_timestamp, append_time = header.max_timestamp, -1
        if self._config.get("message.timestamp.type") == "LogAppendTime":
            max_timestamp = append_time = now
            _stamp_append_time(data, now)
        base_offset = self._store(data, header.last_offset_delta, leader_epoch, max_timestamp)
        if header.producer_id >= 0:
            sent = SentBatch(header.base_sequence, last_sequence, base_offset, self.end_offset - 1, append_time)
            self.producers.record(header.producer_id, header.producer_epoch, sent, max_timestamp)
        return Appended(ErrorCode.NONE, base_offset, append_time)

    def _store(self, data: bytearray, last_offset_delta: int, leader_epoch: int, max_timestamp: int) -> int:
        base_offset = self.end_offset
        _PREFIX.pack_into(data, 0, base_offset, len(data) - 12, leader_epoch)
        last_offset = base_offset + last_offset_delta
        self._batches.append(StoredBatch(last_offset, base_offset, leader_epoch, max_timestamp, bytes(data)))
        self.end_offset = last_offset + 1
        return base_offset


def _one_batch(data: memoryview) -> BatchHeader | ErrorCode:
    """Return the header of the one batch that ``data`` must be, or the error of what it is instead."""
    if len(data) < HEADER_SIZE or data[16] != 2:
        return ErrorCode.INVALID_RECORD
    try:
        header = read_header(data)
    except RemoteProtocolError:
        return ErrorCode.INVALID_RECORD if crc_ok(data, 0, len(data)) else ErrorCode.CORRUPT_MESSAGE
    return header if header.length + 12 == len(data) else ErrorCode.INVALID_RECORD


def is_transactional(data: memoryview) -> bool:
    """Tell whether the record set begins with a batch of a producer that claims to be in a transaction."""
    if len(data) < HEADER_SIZE or data[16] != 2 or not data[_ATTRIBUTES_AT + 1] & _TRANSACTIONAL:
        return False
    return bool(data[_PRODUCER_ID_AT] < 0x80)


def _stamp_append_time(data: bytearray, now: int) -> None:
    data[_ATTRIBUTES_AT + 1] |= _LOG_APPEND_TIME
    struct.pack_into(">q", data, _MAX_TIMESTAMP_AT, now)
    struct.pack_into(">I", data, _CRC_AT, crc32c.crc32c(memoryview(data)[_ATTRIBUTES_AT:]))


def _marker_batch(producer_id: int, epoch: int, commit: bool, coordinator_epoch: int, now: int) -> bytearray:
    """Build the control batch that ends a transaction: key (version, type), value (version, coordinator epoch)."""
    key = struct.pack(">hh", 0, int(commit))
    value = struct.pack(">hi", 0, coordinator_epoch)
    # attributes, timestamp delta, offset delta; key and value lengths; no headers: all varints below 64.
    record = bytes([0, 0, 0, 2 * len(key)]) + key + bytes([2 * len(value)]) + value + b"\0"
    record = bytes([2 * len(record)]) + record
    attributes = _CONTROL | _TRANSACTIONAL
    body = struct.pack(">hiqqqhii", attributes, 0, now, now, producer_id, epoch, -1, 1) + record
    head = struct.pack(">qiibI", 0, len(body) + 9, -1, 2, crc32c.crc32c(body))
    return bytearray(head + body)
