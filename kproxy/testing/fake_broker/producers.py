"""What a partition knows of idempotent producers, and the verdict on the next batch.

The rules are those of Kafka's ``ProducerStateManager`` and ``ProducerAppendInfo`` (KIP-98, KIP-360, KIP-890), as
measured on 4.3.0. Checking changes nothing: the caller appends, then records the batch.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from kproxy.codec.messages import ErrorCode

MAX_SEQUENCE: Final = 2**31 - 1
NO_SEQUENCE: Final = -1
DAY_MS: Final = 86_400_000
TEN_MINUTES_MS: Final = 600_000
_REMEMBERED_BATCHES: Final = 5


class SentBatch(NamedTuple):
    """A batch that the log holds: its sequences and offsets, both ends included."""

    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    append_time: int


@dataclass(slots=True)
class ProducerEntry:
    """One producer id on one partition; ``batches`` are the last five of the current epoch."""

    epoch: int
    last_timestamp: int
    last_offset: int = -1
    """Where the newest batch or marker is, also when retention has deleted it."""
    coordinator_epoch: int = -1
    batches: deque[SentBatch] = field(default_factory=lambda: deque(maxlen=_REMEMBERED_BATCHES))

    @property
    def last_sequence(self) -> int:
        """The sequence of the newest record, or -1 when the epoch has written none."""
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE


class Verdict(NamedTuple):
    """What to do with a batch: refuse it with ``error``, answer it as ``duplicate`` of a stored one, or append it."""

    error: ErrorCode = ErrorCode.NONE
    duplicate: SentBatch | None = None


def advance(sequence: int, count: int) -> int:
    """Return ``sequence`` moved on by ``count`` records; after 2^31-1 comes 0."""
    return (sequence + count) & MAX_SEQUENCE


class ProducerStates:
    """The producers of one partition.

    They outlive their records: neither DeleteRecords nor retention takes a producer along (measured on 4.3.0).

    :param expiration_ms: how long after its last record's timestamp a producer is remembered
        (``producer.id.expiration.ms``).
    :param check_ms: how often that is looked after (``producer.id.expiration.check.interval.ms``).
    """

    def __init__(self, expiration_ms: int = DAY_MS, check_ms: int = TEN_MINUTES_MS) -> None:
        self._expiration_ms = expiration_ms
        self._check_ms = check_ms
        self._next_expiry_check: int | None = None
        self._entries: dict[int, ProducerEntry] = {}
        #: The ids that were forgotten because they had expired.
        self.expired: set[int] = set()

    def items(self) -> list[tuple[int, ProducerEntry]]:
        return sorted(self._entries.items())

    def check(
        self, producer_id: int, epoch: int, first_sequence: int, last_sequence: int, *, anywhere: bool = True
    ) -> Verdict:
        """Judge the next batch of a producer.

        :param anywhere: a producer without an entry may have been forgotten, and begins at any sequence; if not, at 0.
        """
        entry = self._entries.get(producer_id)
        if entry is None:
            return Verdict(
                ErrorCode.NONE if anywhere or first_sequence == 0 else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            )
        if epoch < entry.epoch:
            return Verdict(ErrorCode.INVALID_PRODUCER_EPOCH)
        if epoch > entry.epoch:
            return Verdict(ErrorCode.NONE if first_sequence == 0 else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
        for batch in entry.batches:
            if (batch.first_sequence, batch.last_sequence) == (first_sequence, last_sequence):
                return Verdict(duplicate=batch)
        if first_sequence != advance(entry.last_sequence, 1):
            return Verdict(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
        return Verdict()

    def record(self, producer_id: int, epoch: int, batch: SentBatch, max_timestamp: int) -> None:
        entry = self._entries.get(producer_id)
        if entry is None or entry.epoch != epoch:
            entry = self._entries[producer_id] = ProducerEntry(epoch, max_timestamp)
        entry.last_timestamp = max_timestamp
        entry.last_offset = batch.last_offset
        entry.batches.append(batch)

    def marker(
        self, producer_id: int, epoch: int, coordinator_epoch: int, timestamp: int, offset: int = -1
    ) -> ErrorCode:
        """Apply a transaction marker, which raises the epoch also of a producer never seen here.

        :returns: INVALID_PRODUCER_EPOCH for an older epoch, TRANSACTION_COORDINATOR_FENCED for an older coordinator.
        """
        entry = self._entries.get(producer_id)
        if entry is not None and epoch < entry.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if entry is not None and coordinator_epoch < entry.coordinator_epoch:
            return ErrorCode.TRANSACTION_COORDINATOR_FENCED
        if entry is None or entry.epoch != epoch:
            entry = self._entries[producer_id] = ProducerEntry(epoch, timestamp)
        entry.last_timestamp, entry.last_offset = timestamp, offset
        entry.coordinator_epoch = coordinator_epoch
        return ErrorCode.NONE

    def ends_with(self, producer_id: int, last_offset: int) -> bool:
        """Tell whether the newest batch of a producer ends at this offset."""
        entry = self._entries.get(producer_id)
        return entry is not None and entry.last_offset == last_offset

    def keep_before(self, offset: int) -> None:
        """Drop the producers whose newest batch is not below ``offset``, before the log is read again from there."""
        self._entries = {
            producer_id: entry for producer_id, entry in self._entries.items() if entry.last_offset < offset
        }

    def keep(self, wanted: Callable[[int], bool]) -> None:
        """Drop the producers whose ids are not ``wanted``."""
        self._entries = {producer_id: entry for producer_id, entry in self._entries.items() if wanted(producer_id)}

    def expire(self, now: int) -> None:
        """Forget producers that are silent too long, if the check is due."""
        if self._next_expiry_check is None:
            self._next_expiry_check = now + self._check_ms
        if now >= self._next_expiry_check:
            self._next_expiry_check = now + self._check_ms
            self._drop_expired(now)

    def reload(self, now: int) -> None:
        """Know what a broker knows that was restarted: no expired producer, and of the others the last batch only.

        So a resend of an earlier one is OUT_OF_ORDER_SEQUENCE_NUMBER then (measured on 4.3.0, after ``kill -9``).
        """
        self._drop_expired(now)
        for entry in self._entries.values():
            while len(entry.batches) > 1:
                entry.batches.popleft()

    def _drop_expired(self, now: int) -> None:
        expired = [
            producer_id
            for producer_id, entry in self._entries.items()
            if now - entry.last_timestamp >= self._expiration_ms
        ]
        self.expired.update(expired)
        for producer_id in expired:
            del self._entries[producer_id]
